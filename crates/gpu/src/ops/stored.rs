//! Queries, keys and values that go where attention finds them as soon as they are multiplied: a few rows of heads
//! whose pairs are neighbours, and that no norm waits for.

use super::{
    super::{
        command::Binding,
        params::ProductParams,
        pipelines::{Bindings, Kernel},
        stored::Stored,
        tuning::FEW_ROWS,
        work::Slot,
    },
    Lowering, Ops, Stage,
    attention::{AttentionKey, store_params},
    in_two,
    lower::StepAt,
    products::{Matmul, Matrices},
};
use crate::{
    kv_type::KvType,
    plan::{AttnSpec, Buf, Op, RopeId, RopePairs, Step, WeightId},
};

/// The most parts of matrices that an attention's products are in.
pub(super) const MOST_PARTS: usize = 4;

/// The products that make what one attention stores.
#[derive(Default)]
pub struct AtOnce(Vec<StoringProduct>);

struct StoringProduct {
    product: HeadProduct,
    /// By part of its matrix.
    bounds: Vec<Binding>,
}

/// A product that makes rows of heads.
#[derive(Clone, Copy)]
struct HeadProduct {
    /// The first of its weights.
    weight: WeightId,
    /// Where its rows begin among those of all heads.
    first_row: usize,
}

/// What a product that stores what it makes binds, and how it is stored.
pub(super) struct Storing<'a> {
    bounds: &'a [Binding],
    stored: Stored,
}

/// What is stored, and where its rows begin among those of all heads.
struct HeadRows {
    buf: Buf,
    row: usize,
}

impl AtOnce {
    /// Whether so many rows are stored by their products.
    pub fn takes(&self, rows: usize) -> bool {
        rows <= FEW_ROWS && !self.0.is_empty()
    }
}

impl Ops {
    /// For a step that stores what steps before it make.
    pub(super) fn stored_at_once(&mut self, stage: &Stage, at: StepAt, spec: &AttnSpec) -> AtOnce {
        let stored = stage.cache.stored(spec.values_are_keys);
        if !Bindings::STORE_ROWS.fits(&stage.gpu.limits) || !is_plain(stage, spec, stored) {
            return AtOnce::default();
        }
        let heads = heads_of(spec);
        let is_read = |step: &&Step| {
            let reads = stage.model.plan.operands(step.op).reads;
            !matches!(step.op, Op::Attend(_)) && heads.iter().any(|heads| reads.contains(heads.buf))
        };
        let unit = at.step().unit;
        if at.behind().iter().take_while(|next| next.unit == unit).any(|next| is_read(&next)) {
            return AtOnce::default();
        }
        let Some(products) = self.products_of(at.before(), &heads) else { return AtOnce::default() };
        let made = products.into_iter().map(|product| {
            let bounds = self.storing(stage, product, spec, at.step().slot);
            StoringProduct { product, bounds }
        });
        AtOnce(made.collect())
    }

    /// The products that the steps end with, if they make these buffers and nothing else.
    fn products_of(&self, steps: &[Step], heads: &[HeadRows]) -> Option<Vec<HeadProduct>> {
        let row_of = |step: &Step| match *step.op {
            Op::MatMul { dst, add: false, .. } => {
                heads.iter().find(|heads| heads.buf == dst).map(|heads| heads.row)
            }
            _ => None,
        };
        let of_heads = steps.iter().rev().map_while(row_of).count();
        let mut steps = &steps[steps.len() - of_heads..];
        let mut made: Vec<usize> = steps.iter().filter_map(row_of).collect();
        made.sort_unstable();
        if !made.iter().eq(heads.iter().map(|heads| &heads.row)) {
            return None;
        }
        let (mut products, mut parts) = (Vec::new(), 0);
        while let Some(Step { op: Op::MatMul { weight, .. }, .. }) = steps.first() {
            let matmul = self.matmuls.get(weight)?;
            let (joined, rest) = steps.split_at_checked(matmul.covers)?;
            // One below the other, as heads are.
            if !matmul.is_alone() || !joined.iter().filter_map(row_of).is_sorted() {
                return None;
            }
            products.push(HeadProduct { weight: *weight, first_row: row_of(&joined[0])? });
            parts += matmul.parts.len();
            steps = rest;
        }
        (parts <= MOST_PARTS).then_some(products)
    }

    fn storing(
        &mut self,
        stage: &Stage,
        HeadProduct { weight, first_row: first }: HeadProduct,
        spec: &AttnSpec,
        slot: usize,
    ) -> Vec<Binding> {
        let heads = store_params(stage, spec, slot, spec.q, 0);
        let Slot { keys, values } = stage.cache.slot(slot);
        let Ops { matmuls, params, .. } = self;
        let matmul = &matmuls[&weight];
        let rows = matmul.parts.iter().map(|part| part.rows as usize).sum::<usize>();
        // What it makes none of is another buffer than what others write.
        let makes = |begin: usize, len: usize| begin < first + rows && first < begin + len;
        let [no_queries, no_keys, no_values] = &stage.cache.unwritten;
        let (q, kv) = (spec.q_width(), spec.kv_width());
        let queries = if makes(0, q) { &stage.work.q } else { no_queries };
        let keys = if makes(q, kv) { keys } else { no_keys };
        let values = values.as_ref().filter(|_| makes(q + kv, kv)).unwrap_or(no_values);
        let parts = stage.weights.matrices[&weight].parts.iter().zip(&matmul.parts);
        let bounds = parts.map(|(part, made)| {
            let params_at = params.add(&ProductParams {
                head_row: (first + part.first_row) as u32,
                heads: heads.heads,
                kv_heads: heads.kv_heads,
                head_dim: heads.head_dim,
                turned: heads.turned,
                turns_stride: heads.turns_stride,
                turns_at: heads.turns_at,
                factor_at: heads.factor_at,
                cells: heads.cells,
                cells_at: heads.cells_at,
                key_words: heads.key_words,
                value_words: heads.value_words,
                ..made.given
            });
            let x = stage.input(matmul.matrices.src, matmul.matrices.arith);
            let made = [queries, &stage.rows.rows, &stage.rows.turned, keys, values];
            let storage = stage.product(weight, part, x, made.map(wgpu::Buffer::as_entire_buffer_binding));
            Binding { group: stage.bind(params, Bindings::STORE_ROWS, &storage), params: params_at }
        });
        bounds.collect()
    }

    /// What a product binds if it stores what this attention is to have.
    pub(super) fn storing_product(
        &self,
        out: &Lowering,
        key: AttentionKey,
        weight: WeightId,
    ) -> Option<Storing<'_>> {
        let attention = &self.attentions[&key];
        let products = attention.at_once().takes(out.rows).then_some(&attention.at_once().0)?;
        let found = products.iter().find(|of| of.product.weight == weight)?;
        Some(Storing { bounds: &found.bounds, stored: attention.stored })
    }

    pub(super) fn multiply_and_store(
        &self,
        out: &mut Lowering,
        matmul: &Matmul,
        Storing { bounds, stored }: Storing,
        coarse: bool,
    ) {
        let &Matmul { matrices: Matrices { format, lanes, arith, .. }, scales, .. } = matmul;
        self.make_ready_for(out, matmul);
        let coarse = matmul.matrices.weigh(out, coarse);
        let columns = out.rows as u32;
        for (bound, part) in bounds.iter().zip(&matmul.parts) {
            let kernel = Kernel::StoreRows { format, lanes, columns, coarse, arith, stored, scales };
            let groups = part.rows.div_ceil(kernel.rows_at_once(&out.gpu.tuning));
            out.dispatch(kernel, bound, in_two(groups, &out.gpu.limits));
        }
    }
}

/// Whether heads are stored as floats or halves, without more than a rotation of neighbours.
fn is_plain(stage: &Stage, spec: &AttnSpec, stored: Stored) -> bool {
    let turns_neighbours = |id: RopeId| {
        let rope = &stage.model.plan.ropes[id.0 as usize];
        rope.pairs != RopePairs::Halves && 2 * rope.freqs.len() <= spec.head_dim
    };
    let apart = |ty| matches!(ty, KvType::F32 | KvType::F16);
    spec.head_dim.is_multiple_of(8)
        && spec.rope.is_none_or(turns_neighbours)
        && spec.q_norm.is_none()
        && spec.k_norm.is_none()
        && apart(stored.keys)
        && apart(stored.values)
}

fn heads_of(spec: &AttnSpec) -> Vec<HeadRows> {
    let mut heads = vec![HeadRows { buf: spec.q, row: 0 }];
    if spec.keys_of.is_none() {
        heads.push(HeadRows { buf: spec.k, row: spec.q_width() });
        if !spec.values_are_keys {
            heads.push(HeadRows { buf: spec.v, row: spec.q_width() + spec.kv_width() });
        }
    }
    heads
}
