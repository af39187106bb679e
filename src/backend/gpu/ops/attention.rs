//! Attention's operations: keys and values put down, heads attended to, chunks joined.

use super::{
    super::{
        formats::BLOCK,
        params::{AttendParams, RopeParams},
        pipelines::{Family, Kernel, LONG_HEAD},
        record::Recorder,
        rows::halves,
        variants::Arith,
        weights::Numbers,
        work::{CHUNK, Stored, head_stride},
    },
    Bound, Ops, Ready, Stage,
};
use crate::{
    Result,
    backend::View,
    plan::{AttnId, AttnSpec, Buf, Norm, NormKind},
};

/// What of one layer's attention is not a matrix.
pub struct Attention {
    /// With the number of their heads: all of them, or queries, keys and values that lie apart.
    stores: Vec<(Bound, u32)>,
    attend: Bound,
    split: Bound,
    join: Bound,
    spec: AttnSpec,
    stored: Stored,
    /// How the rows of `attend` and `join` are rounded.
    arith: Arith,
    /// Of a cell's keys and values.
    cell_bytes: u64,
    /// Of the lists that the bind groups show.
    generation: u64,
}

impl Attention {
    fn params(&self) -> (Vec<u32>, u32) {
        (self.stores.iter().map(|(bound, _)| bound.params).collect(), self.attend.params)
    }
}

/// Heads that lie one after the other: the buffer of the first, its number among all heads, and how many they are.
struct Heads {
    buf: Buf,
    last: Buf,
    first: usize,
    count: usize,
}

/// How rope_store.wgsl has flags, and nothing.
const QUERIES_NORMED: u32 = 1;
const KEYS_NORMED: u32 = 2;
const QUERIES_CENTRED: u32 = 4;
const KEYS_CENTRED: u32 = 8;
const NORMED_AFTER: u32 = 16;
const NONE: u32 = u32::MAX;

impl Ops {
    /// The attention of a slot, made or made anew where the lists have moved.
    pub fn prepare_attention(&mut self, stage: &Stage, slot: usize, id: AttnId) {
        let generation = stage.rows.lists.generation;
        let known = self.attentions.get(&(slot, id));
        if known.is_some_and(|attention| attention.generation == generation) {
            return;
        }
        let params = known.map(Attention::params);
        let made = self.make_attention(stage, slot, id, params);
        self.attentions.insert((slot, id), made);
    }

    fn make_attention(
        &mut self,
        stage: &Stage,
        slot: usize,
        id: AttnId,
        old: Option<(Vec<u32>, u32)>,
    ) -> Attention {
        let spec = stage.model.plan.attention(id);
        let stores = heads_in(stage, spec);
        let (store_params, attend_params) = old.unwrap_or_else(|| {
            let stores = stores.iter().map(|heads| self.params.add(&store_params(stage, spec, slot, heads)));
            (stores.collect(), self.params.add(&attend_params(stage, spec, slot)))
        });
        let cache = stage.cache;
        let slot = cache.slot(slot);
        let numbers = |numbers: Option<Numbers>| match numbers {
            Some(numbers) => stage.weights.numbers(numbers),
            None => stage.weights.binding(stage.weights.nothing),
        };
        let norm = |norm: Option<Norm>| {
            numbers(norm.map(|norm| Numbers::of_norm(stage.model, &norm, spec.head_dim)))
        };
        let sinks = spec.sinks.map(Numbers::Vector);
        let whole = wgpu::Buffer::as_entire_buffer_binding;
        let (rows, lists, work) = (&stage.rows.rows, &stage.rows.lists.buffer, stage.work);
        let stores = stores.iter().zip(&store_params).map(|(heads, &params)| {
            let storage = [
                whole(rows),
                whole(&stage.rows.turned),
                stage.room(heads.buf),
                norm(spec.q_norm),
                norm(spec.k_norm),
                whole(&work.q),
                whole(&slot.keys),
                whole(slot.values.as_ref().unwrap_or(&cache.nothing)),
            ];
            let group = stage.bind(&self.params, Family::RopeStore, &storage);
            (Bound { group, params }, heads.count as u32)
        });
        let stores = stores.collect();
        // Rows are rounded where they are made, but not where a block has parts of two heads, or a head has no room.
        let whole_blocks = spec.head_dim.is_multiple_of(BLOCK);
        let arith = if whole_blocks && spec.head_dim <= LONG_HEAD { self.arith } else { Arith::Float };
        let bind = |kernel: Kernel, mut storage: Vec<_>, arith| {
            storage.extend((arith != Arith::Float).then(|| stage.rounded(spec.out)));
            let group = stage.bind(&self.params, kernel.family(), &storage);
            Bound { group, params: attend_params }
        };
        let attend = |split, arith, out| {
            let kernel = attend_kernel(spec, cache.stored(spec.values_are_keys), (split, false), arith);
            let storage = vec![
                whole(rows),
                whole(lists),
                whole(&work.q),
                whole(&slot.keys),
                whole(slot.values.as_ref().unwrap_or(&slot.keys)),
                numbers(sinks),
                out,
            ];
            bind(kernel, storage, arith)
        };
        let joined = vec![whole(rows), whole(&work.chunks), numbers(sinks), stage.room(spec.out)];
        let [key_words, value_words] = cache.words(spec.head_dim, spec.values_are_keys);
        let cell_words = if spec.values_are_keys { key_words } else { key_words + value_words };
        Attention {
            stores,
            attend: attend(false, arith, stage.room(spec.out)),
            split: attend(true, Arith::Float, whole(&work.chunks)),
            join: bind(Kernel::AttendJoin(arith), joined, arith),
            spec: *spec,
            stored: cache.stored(spec.values_are_keys),
            arith,
            cell_bytes: 4 * (spec.n_kv_head * cell_words) as u64,
            generation: stage.rows.lists.generation,
        }
    }

    pub(super) fn store(&self, recorder: &mut Recorder, attention: &Attention, rows: usize) -> Result<()> {
        for (bound, heads) in &attention.stores {
            recorder.dispatch(Kernel::RopeStore(attention.stored), bound, [*heads, rows as u32, 1])?;
        }
        Ok(())
    }

    pub(super) fn attend(
        &self,
        recorder: &mut Recorder,
        attention: &Attention,
        view: &View,
        ready: &mut Ready,
    ) -> Result<()> {
        let Attention { spec, arith, .. } = attention;
        let seen = || view.visible.iter().map(|seen| seen.to - seen.from);
        let (heads, rows) = (spec.n_head as u32, view.visible.len() as u32);
        let chunks = seen().max().unwrap_or(0).div_ceil(CHUNK) as u32;
        let split = chunks > 1 && rows as usize <= self.split_rows;
        recorder.weigh(0, attention.cell_bytes * seen().sum::<usize>() as u64);
        let y = if split { chunks } else { 1 };
        let pieces = shared_heads(spec, y * rows, recorder.gpu.tuning.crowd);
        let first = if split { Arith::Float } else { *arith };
        let kernel = attend_kernel(spec, attention.stored, (split, pieces.is_some()), first);
        let groups = [pieces.unwrap_or(heads), y, rows];
        if split {
            recorder.dispatch(kernel, &attention.split, groups)?;
            recorder.dispatch(Kernel::AttendJoin(*arith), &attention.join, [heads, 1, rows])?;
        } else {
            recorder.dispatch(kernel, &attention.attend, groups)?;
        }
        if *arith != Arith::Float {
            ready.add(spec.out);
        }
        Ok(())
    }
}

/// Queries, and keys and values where it has its own, in as few pieces as they lie in.
fn heads_in(stage: &Stage, spec: &AttnSpec) -> Vec<Heads> {
    let AttnSpec { n_head, n_kv_head, .. } = *spec;
    let of = |buf, first, count| Heads { buf, last: buf, first, count };
    let mut pieces = vec![of(spec.q, 0, n_head)];
    if spec.keys_of.is_none() {
        let keys = of(spec.k, n_head, n_kv_head);
        let values = (!spec.values_are_keys).then(|| of(spec.v, n_head + n_kv_head, n_kv_head));
        for next in [Some(keys), values].into_iter().flatten() {
            match pieces.last_mut() {
                Some(piece) if stage.work.layout.adjoin(piece.last, next.buf) => {
                    piece.last = next.buf;
                    piece.count += next.count;
                }
                _ => pieces.push(next),
            }
        }
    }
    pieces
}

fn attend_kernel(spec: &AttnSpec, stored: Stored, (split, shared): (bool, bool), arith: Arith) -> Kernel {
    Kernel::Attend { split, shared, long: spec.head_dim > LONG_HEAD, stored, arith }
}

fn store_params(stage: &Stage, spec: &AttnSpec, slot: usize, heads: &Heads) -> RopeParams {
    let lying = stage.cache.keys(slot);
    let plan = &stage.model.plan;
    let rope = spec.rope.map(|id| (&plan.ropes[id.0 as usize], stage.rows.turns.begin(id)));
    let factor = spec.temperature.and_then(|temperature| stage.rows.turns.factor(temperature));
    let place = stage.place(heads.buf);
    let [key_words, value_words] = stage.cache.words(spec.head_dim, spec.values_are_keys);
    let centred = |norm: Option<Norm>| norm.is_some_and(|norm| norm.kind == NormKind::Layer);
    let flags = [
        (spec.q_norm.is_some(), QUERIES_NORMED),
        (spec.k_norm.is_some(), KEYS_NORMED),
        (centred(spec.q_norm), QUERIES_CENTRED),
        (centred(spec.k_norm), KEYS_CENTRED),
        (spec.norm_after_rope, NORMED_AFTER),
    ];
    let eps = |norm: Option<Norm>| norm.map_or(0.0, |norm| norm.eps);
    RopeParams {
        heads: spec.n_head as u32,
        kv_heads: spec.n_kv_head as u32,
        head_dim: spec.head_dim as u32,
        first_head: heads.first as u32,
        in_stride: place.stride as u32,
        in_first: place.column as u32,
        turned: rope.map_or(0, |(rope, _)| rope.freqs.len() as u32),
        halves: rope.map_or(0, |(rope, _)| halves(rope)),
        turns_stride: stage.rows.turns.len as u32,
        turns_at: rope.map_or(0, |(_, begin)| begin as u32),
        factor_at: factor.map_or(NONE, |at| at as u32),
        head_stride: head_stride(spec.head_dim) as u32,
        cells: lying.n_cells as u32,
        cells_at: stage.rows.sections.cells(lying.class) as u32,
        key_words: key_words as u32,
        value_words: value_words as u32,
        flags: flags.into_iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
        q_eps: eps(spec.q_norm),
        k_eps: eps(spec.k_norm),
    }
}

fn attend_params(stage: &Stage, spec: &AttnSpec, slot: usize) -> AttendParams {
    let sections = &stage.rows.sections;
    let [key_words, value_words] = stage.cache.words(spec.head_dim, spec.values_are_keys);
    AttendParams {
        heads: spec.n_head as u32,
        group: spec.group() as u32,
        head_dim: spec.head_dim as u32,
        head_stride: head_stride(spec.head_dim) as u32,
        cells: stage.cache.keys(slot).n_cells as u32,
        key_words: key_words as u32,
        value_words: value_words as u32,
        scale: spec.scale,
        cap: spec.cap.unwrap_or(0.0),
        has_sinks: u32::from(spec.sinks.is_some()),
        out_stride: stage.place(spec.out).stride as u32,
        view_at: sections.view(slot, spec.window) as u32,
        spans_at: sections.spans() as u32,
        view_rows: sections.max_rows as u32,
        most_chunks: stage.work.most_chunks as u32,
    }
}

/// How many workgroups there are for the heads of a row where up to four that share keys and values have one
/// together; `None` where that would leave the device idle, or few heads share. No bit depends on it.
fn shared_heads(spec: &AttnSpec, others: u32, crowd: u32) -> Option<u32> {
    let group = spec.group() as u32;
    let groups = spec.n_kv_head as u32 * group.div_ceil(4);
    (group > 2 && groups * others >= crowd).then_some(groups)
}
