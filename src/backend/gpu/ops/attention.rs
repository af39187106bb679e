//! Attention's operations: keys and values put down, heads attended to, chunks joined.

use super::{
    super::{
        params::{AttendParams, RopeParams},
        pipelines::{Family, Kernel},
        rows::halves,
        variants::Arith,
        work::{head_stride, padded},
    },
    Bound, Ops, Stage,
};
use crate::plan::{Buf, Uniform, WeightId};

/// What of one layer's attention is not a matrix.
pub struct Attention {
    pub store: Bound,
    pub attend: Bound,
    pub split: Bound,
    pub join: Bound,
    /// How the rows of `attend` and `join` are rounded.
    pub arith: Arith,
    /// Of the lists that the bind groups show.
    generation: u64,
}

/// Norms of queries and keys, which with a slot tell one attention from another.
pub type SlotKey = (usize, Option<WeightId>, Option<WeightId>);

impl Ops {
    /// The attention of a slot, made or made anew where the lists have moved.
    pub fn attention(&mut self, stage: &Stage, key: SlotKey, eps: f32, scale: f32) {
        let generation = stage.rows.lists.generation;
        let stale = self.attentions.get(&key).is_none_or(|a| a.generation != generation);
        if stale {
            let old = self.attentions.remove(&key).map(|a| (a.store.params, a.attend.params));
            let made = self.make_attention(stage, key, (eps, scale), old);
            self.attentions.insert(key, made);
        }
    }

    fn make_attention(
        &mut self,
        stage: &Stage,
        (slot, q_norm, k_norm): SlotKey,
        (eps, scale): (f32, f32),
        old: Option<(u32, u32)>,
    ) -> Attention {
        let dims = stage.dims();
        let rope = stage.model.plan.only_rope();
        let cache = stage.cache;
        let sections = stage.rows.sections;
        let [key_words, value_words] = cache.words(dims);
        let (store_params, attend_params) = old.unwrap_or_else(|| {
            let store = self.params.add(&RopeParams {
                heads: dims.n_head as u32,
                kv_heads: dims.n_kv_head as u32,
                head_dim: dims.head_dim as u32,
                turned: rope.freqs.len() as u32,
                halves: halves(rope),
                qkv_stride: (dims.width(Buf::Q) + 2 * dims.kv_width()) as u32,
                head_stride: head_stride(dims.head_dim) as u32,
                cells: cache.n_cells as u32,
                cells_at: sections.cells() as u32,
                key_words: key_words as u32,
                value_words: value_words as u32,
                normed: u32::from(q_norm.is_some()) | u32::from(k_norm.is_some()) << 1,
                eps,
            });
            let attend = self.params.add(&AttendParams {
                heads: dims.n_head as u32,
                group: (dims.n_head / dims.n_kv_head) as u32,
                head_dim: dims.head_dim as u32,
                head_stride: head_stride(dims.head_dim) as u32,
                cells: cache.n_cells as u32,
                key_words: key_words as u32,
                value_words: value_words as u32,
                scale,
                out_stride: padded(dims.width(Buf::A)) as u32,
                view_at: (sections.views() + slot) as u32,
                spans_at: sections.spans() as u32,
                view_rows: sections.max_rows as u32,
                most_chunks: stage.work.most_chunks as u32,
            });
            (store, attend)
        });
        let (keys, values) = cache.slot(slot);
        let vector = |id: Option<WeightId>| {
            stage.weights.binding(id.map_or(stage.weights.nothing, |id| stage.weights.vectors[&id]))
        };
        let (rows, lists) = (&stage.rows.rows, &stage.rows.lists.buffer);
        let work = stage.work;
        let store = stage.bind(
            &self.params,
            Family::RopeStore,
            &[
                rows.as_entire_buffer_binding(),
                stage.rows.turns.as_entire_buffer_binding(),
                work.qkv.as_entire_buffer_binding(),
                vector(q_norm),
                vector(k_norm),
                work.q.as_entire_buffer_binding(),
                keys.as_entire_buffer_binding(),
                values.as_entire_buffer_binding(),
            ],
        );
        let arith = stage.head_arith();
        let bind = |kernel: Kernel, buffers: &[&wgpu::Buffer], arith| {
            let rounded = (arith != Arith::Float).then(|| stage.rounded(Buf::A));
            let storage: Vec<_> =
                buffers.iter().copied().chain(rounded).map(|b| b.as_entire_buffer_binding()).collect();
            stage.bind(&self.params, kernel.family(), &storage)
        };
        let attend = |split, arith, out| {
            let kernel = Kernel::Attend { split, shared: false, stored: cache.stored, arith };
            bind(kernel, &[rows, lists, &work.q, keys, values, out], arith)
        };
        let join = bind(Kernel::AttendJoin(arith), &[rows, &work.chunks, &work.a], arith);
        Attention {
            store: Bound { group: store, params: store_params },
            attend: Bound { group: attend(false, arith, &work.a), params: attend_params },
            split: Bound { group: attend(true, Arith::Float, &work.chunks), params: attend_params },
            join: Bound { group: join, params: attend_params },
            arith,
            generation: stage.rows.lists.generation,
        }
    }
}

/// How many workgroups there are for the heads of a row where up to four that share keys and values have one
/// together; `None` where that would leave the device idle, or few heads share. No bit depends on it.
pub fn shared_heads(dims: &Uniform, others: u32, crowd: u32) -> Option<u32> {
    let group = (dims.n_head / dims.n_kv_head) as u32;
    let groups = dims.n_kv_head as u32 * group.div_ceil(4);
    (group > 2 && groups * others >= crowd).then_some(groups)
}
