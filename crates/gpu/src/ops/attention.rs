//! Attention's operations: keys and values are stored, heads attend, chunks are joined.

use std::ops::Range;

use super::{
    super::{
        command::{Binding, Load},
        formats::BLOCK,
        params::{AttentionParams, RopeStoreParams},
        pipelines::{Kernel, MOST_PREPARED_HEAD},
        record::MOST_WORK,
        rows::halves,
        stored::Stored,
        variants::Arith,
        weights::Numbers,
        work::{CHUNK, Slot, head_stride},
    },
    Lowering, Ops, Stage,
    lower::StepAt,
    stored::AtOnce,
};
use crate::{
    backend::View,
    plan::{AttnId, AttnSpec, Buf, Norm, NormKind, Op},
};

/// Which attention of which slot of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionKey {
    pub slot: usize,
    pub id: AttnId,
}

/// A layer's attention without its matrices.
pub struct Attention {
    fixed: Fixed,
    attend: wgpu::BindGroup,
    split: wgpu::BindGroup,
    join: wgpu::BindGroup,
    spec: AttnSpec,
    pub(super) stored: Stored,
    /// How the rows of `attend` and `join` are prepared for products.
    arith: Arith,
    /// Of a cell's keys and values.
    cell_bytes: u64,
    /// The generation of the lists of cells that are bound.
    generation: u64,
}

/// The part of an attention that stays when the lists of cells get another buffer.
struct Fixed {
    stores: Vec<StoredHeads>,
    at_once: AtOnce,
    /// Parameters of [`Attention::attend`], `split` and `join` for each piece of a batch's rows.
    pieces: Vec<u32>,
}

/// What stores some heads: all of them, or queries, keys and values that lie apart.
struct StoredHeads {
    bound: Binding,
    count: u32,
}

impl Attention {
    pub(super) fn at_once(&self) -> &AtOnce {
        &self.fixed.at_once
    }

    /// Multiplications of a row that sees so many cells.
    fn work(&self, seen: usize) -> u64 {
        (2 * self.spec.n_head * self.spec.head_dim * seen) as u64
    }
}

/// Heads that lie one after the other: the buffer of the first, its number among all heads, and how many they are.
struct Heads {
    buf: Buf,
    last: Buf,
    first: usize,
    count: usize,
}

/// Flags of rope_store.wgsl, and its number for nothing.
const QUERIES_NORMED: u32 = 1;
const KEYS_NORMED: u32 = 2;
const QUERIES_CENTRED: u32 = 4;
const KEYS_CENTRED: u32 = 8;
const NORMED_AFTER: u32 = 16;
const NONE: u32 = u32::MAX;

impl Ops {
    /// The attention that this step stores for, if it does: made, or made again if the lists of cells have another buffer.
    pub(super) fn attention_of_store(&mut self, stage: &Stage, at: StepAt) -> Option<AttentionKey> {
        let Op::Store(id) = *at.step().op else { return None };
        let (generation, slot) = (stage.rows.lists.generation, at.step().slot);
        let key = AttentionKey { slot, id };
        if self.attentions.get(&key).is_some_and(|known| known.generation == generation) {
            return Some(key);
        }
        let spec = stage.model.plan.attention(id);
        let fixed = match self.attentions.remove(&key) {
            Some(known) => known.fixed,
            None => {
                let attend = attend_params(stage, spec, slot);
                let first_rows = (0..stage.work.max_rows).step_by(stage.work.piece_rows);
                let pieces = first_rows
                    .map(|row| self.params.add(&AttentionParams { first_row: row as u32, ..attend }));
                let pieces = pieces.collect();
                let at_once = self.stored_at_once(stage, at, spec);
                Fixed { stores: self.stores(stage, spec, slot), at_once, pieces }
            }
        };
        let made = self.make_attention(stage, spec, slot, fixed);
        self.attentions.insert(key, made);
        Some(key)
    }

    /// What stores heads, in as few dispatches as they lie in pieces.
    fn stores(&mut self, stage: &Stage, spec: &AttnSpec, slot: usize) -> Vec<StoredHeads> {
        let norm = |norm: Option<Norm>| {
            let numbers = norm.map(|norm| Numbers::of_norm(stage.model, &norm, spec.head_dim));
            stage.weights.numbers_if_any(numbers)
        };
        let whole = wgpu::Buffer::as_entire_buffer_binding;
        let Slot { keys, values } = stage.cache.slot(slot);
        let stores = heads_in(stage, spec).into_iter().map(|heads| {
            let params = self.params.add(&store_params(stage, spec, slot, heads.buf, heads.first));
            let storage = [
                whole(&stage.rows.rows),
                whole(&stage.rows.turned),
                stage.buffer(heads.buf),
                norm(spec.q_norm),
                norm(spec.k_norm),
                whole(&stage.work.q),
                whole(keys),
                whole(values.as_ref().unwrap_or(&stage.cache.nothing)),
            ];
            let kernel = Kernel::RopeStore(stage.cache.stored(spec.values_are_keys));
            let group = stage.bind(&self.params, kernel, &storage);
            StoredHeads { bound: Binding { group, params }, count: heads.count as u32 }
        });
        stores.collect()
    }

    fn make_attention(&self, stage: &Stage, spec: &AttnSpec, slot: usize, fixed: Fixed) -> Attention {
        let cache = stage.cache;
        let slot = cache.slot(slot);
        let sinks = || stage.weights.numbers_if_any(spec.sinks.map(Numbers::Vector));
        let whole = wgpu::Buffer::as_entire_buffer_binding;
        let (rows, lists, work) = (&stage.rows.rows, &stage.rows.lists.buffer, stage.work);
        // Rows are prepared where they are made, but not where a block has parts of two heads, or a head is too long.
        let whole_blocks = spec.head_dim.is_multiple_of(BLOCK);
        let arith =
            if whole_blocks && spec.head_dim <= MOST_PREPARED_HEAD { self.arith } else { Arith::Float };
        let bind = |kernel: Kernel, mut storage: Vec<_>, arith| {
            storage.extend((arith != Arith::Float).then(|| stage.prepared(spec.out)));
            stage.bind(&self.params, kernel, &storage)
        };
        let attend = |split, arith, out| {
            let kernel =
                Kernel::Attend { split, shared: false, stored: cache.stored(spec.values_are_keys), arith };
            let storage = vec![
                whole(rows),
                whole(lists),
                whole(&work.q),
                whole(&slot.keys),
                whole(slot.values.as_ref().unwrap_or(&slot.keys)),
                sinks(),
                out,
            ];
            bind(kernel, storage, arith)
        };
        let joined = vec![whole(rows), whole(&work.chunks), sinks(), stage.buffer(spec.out)];
        let [key_words, value_words] = cache.words(spec.head_dim, spec.values_are_keys);
        let cell_words = if spec.values_are_keys { key_words } else { key_words + value_words };
        Attention {
            fixed,
            attend: attend(false, arith, stage.buffer(spec.out)),
            split: attend(true, Arith::Float, whole(&work.chunks)),
            join: bind(Kernel::AttendJoin(arith), joined, arith),
            spec: *spec,
            stored: cache.stored(spec.values_are_keys),
            arith,
            cell_bytes: 4 * (spec.n_kv_head * cell_words) as u64,
            generation: stage.rows.lists.generation,
        }
    }

    pub(super) fn store(&self, out: &mut Lowering, attention: &Attention) {
        if attention.at_once().takes(out.rows) {
            return;
        }
        for StoredHeads { bound, count } in &attention.fixed.stores {
            out.dispatch(Kernel::RopeStore(attention.stored), bound, [*count, out.rows as u32, 1]);
        }
    }

    pub(super) fn attend(&self, out: &mut Lowering, attention: &Attention, view: &View) {
        let Attention { spec, arith, .. } = attention;
        let seen: Vec<usize> = view.visible.iter().map(|seen| seen.to - seen.from).collect();
        let (heads, crowd) = (spec.n_head as u32, out.gpu.tuning.crowd);
        let groups_of = |others: usize| shared_heads(spec, others as u32, crowd);
        // Contexts are split where the device would be idle otherwise.
        let whole_groups = groups_of(seen.len()).unwrap_or(heads) * seen.len() as u32;
        let is_idle = seen.len() <= FEW_ROWS || whole_groups < ENOUGH * crowd;
        let fits = seen.len().min(self.piece_rows) <= self.split_rows;
        let splits = is_idle && fits && seen.iter().any(|&seen| seen > CHUNK);
        for range in dispatches(attention, &seen, self.piece_rows, splits) {
            let (first, rows) = (range.start, range.len());
            let seen = &seen[range];
            let cells: usize = seen.iter().sum();
            let (work, bytes) = (attention.work(cells), attention.cell_bytes * cells as u64);
            out.weigh(Load { work, bytes, of_matrices: 0 });
            let bound = |group: &wgpu::BindGroup| Binding {
                group: group.clone(),
                params: attention.fixed.pieces[first / self.piece_rows],
            };
            let chunks = if splits { seen.iter().max().map_or(1, |seen| seen.div_ceil(CHUNK)) } else { 1 };
            let shared = groups_of(chunks * rows);
            let arith = if splits { Arith::Float } else { *arith };
            let kernel =
                Kernel::Attend { split: splits, shared: shared.is_some(), stored: attention.stored, arith };
            let group = if splits { &attention.split } else { &attention.attend };
            let groups = [shared.unwrap_or(heads), chunks as u32, rows as u32];
            out.dispatch(kernel, &bound(group), groups);
            if splits {
                let join = Kernel::AttendJoin(attention.arith);
                out.dispatch(join, &bound(&attention.join), [heads, 1, rows as u32]);
            }
        }
        if *arith != Arith::Float {
            out.add_ready(spec.out);
        }
    }
}

/// Up to so many rows always have their contexts split.
const FEW_ROWS: usize = 8;

/// Contexts are not split if there are this many times [`Tuning::crowd`](super::super::tuning::Tuning) workgroups without.
const ENOUGH: u32 = 4;

/// The rows of each dispatch: a piece where contexts are split, because chunks have room for no
/// more, else as many pieces as one submission may have.
fn dispatches(attention: &Attention, seen: &[usize], piece_rows: usize, splits: bool) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    let mut work = 0;
    for (i, piece) in seen.chunks(piece_rows).enumerate() {
        let more = attention.work(piece.iter().sum());
        match all.last_mut() {
            Some(rows) if !splits && work + more <= MOST_WORK => rows.end += piece.len(),
            _ => {
                all.push(i * piece_rows..i * piece_rows + piece.len());
                work = 0;
            }
        }
        work += more;
    }
    all
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

/// `buf`: where the first of these heads lies, which is so many after the first of all.
pub(super) fn store_params(
    stage: &Stage,
    spec: &AttnSpec,
    slot: usize,
    buf: Buf,
    first: usize,
) -> RopeStoreParams {
    let lying = stage.cache.keys(slot);
    let plan = &stage.model.plan;
    let rope = spec.rope.map(|id| (&plan.ropes[id.0 as usize], stage.rows.turns.begin(id)));
    let factor = spec.temperature.and_then(|temperature| stage.rows.turns.factor(temperature));
    let layout = stage.rows_of(buf);
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
    RopeStoreParams {
        heads: spec.n_head as u32,
        kv_heads: spec.n_kv_head as u32,
        head_dim: spec.head_dim as u32,
        first_head: first as u32,
        in_stride: layout.stride as u32,
        in_first: layout.column as u32,
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

fn attend_params(stage: &Stage, spec: &AttnSpec, slot: usize) -> AttentionParams {
    let sections = &stage.rows.sections;
    let [key_words, value_words] = stage.cache.words(spec.head_dim, spec.values_are_keys);
    AttentionParams {
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
        out_stride: stage.rows_of(spec.out).stride as u32,
        view_at: sections.view(slot, spec.window) as u32,
        spans_at: sections.spans() as u32,
        view_rows: sections.max_rows as u32,
        most_chunks: stage.work.most_chunks as u32,
        first_row: 0,
        zero: 0,
    }
}

/// How many workgroups there are for the heads of a row where up to four that share keys and values have one
/// together; `None` where that would leave the device idle, or few heads share. No bit depends on it.
fn shared_heads(spec: &AttnSpec, others: u32, crowd: u32) -> Option<u32> {
    let group = spec.group() as u32;
    let groups = spec.n_kv_head as u32 * group.div_ceil(4);
    (group > 2 && groups * others >= crowd).then_some(groups)
}
