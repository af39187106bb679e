//! Deferred norms. A norm divides a row by the root of its mean square, and multiplies it by a weight. Here the weight is applied
//! at once, and the products that read the row multiply their sums by what is left. So the product before such a norm can apply
//! the weight to each block that it makes, and no dispatch lies between the two products. That is done for a few rows.
//! Where the next layer is skipped or another one follows, the norm is a dispatch of its own, with the same bits.

use std::collections::{HashMap, HashSet};

use super::{
    super::{
        command::Binding,
        formats::{BLOCK, Format},
        params::{NormUnscaledParams, ProductParams},
        pipelines::{Bindings, Kernel, Mode},
        variants::Arith,
        weights::{Numbers, plain_norm},
    },
    Lowering, Ops, RowStep, Stage, in_two,
    lower::StepAt,
    products::{Matmul, Matrices},
    small::NormRows,
};
use crate::plan::{Buf, Norm, Op, OpId, OpList, PlanOp, UnitSet, WeightId};

/// The most blocks in a row that the kernel of many rows takes.
const MOST_BLOCKS: usize = 1024;

/// What is left to do of a norm behind its product.
pub(super) struct NormLeft {
    /// The product has done it.
    pub is_done: bool,
    /// Its rows go to a CPU that has low planes.
    pub leaves: bool,
}

/// A norm, and what the product that does it binds.
pub(super) struct Norming<'a> {
    pub norm: OpId,
    parts: &'a [Binding],
}

/// The deferred norms of a plan.
#[derive(Default)]
pub struct DeferredNorm {
    norms: HashMap<OpId, Folded>,
    /// Products that multiply their sums by the scale.
    readers: HashSet<WeightId>,
}

struct Folded {
    /// The product before it in the plan.
    before: WeightId,
    /// `None` where the norm's layer is on another device.
    bound: Option<Binding>,
    /// Makes the norm's rows in floats too, for a CPU that has the low planes of the matrices that read them.
    floats: Option<RowStep>,
    lanes: u32,
    /// By part of the product's matrix, if the product is on this device and does the norm.
    parts: Vec<Binding>,
}

impl DeferredNorm {
    /// Chosen by the plan and the types of weights alone, so that it does not depend on the placement.
    pub fn of(stage: &Stage) -> Self {
        let Stage { gpu, model, work, .. } = *stage;
        let mut all = DeferredNorm::default();
        let plan = &model.plan;
        let arith = gpu.variants.arith;
        let arith_of = |id: WeightId| Format::of(model.weight(id).ty()).map(|format| arith.of(format));
        let scales = |id: WeightId| arith_of(id) == Some(arith);
        let lists = plan.layers.iter().enumerate().flat_map(|(l, layer)| {
            std::iter::zip(OpList::of_layer(l), [&layer.shared, &layer.attn, &layer.mlp])
        });
        let lists: Vec<Vec<PlanOp>> = lists
            .map(|(list, ops)| list.number(ops).collect())
            .filter(|ops: &Vec<_>| !ops.is_empty())
            .collect();
        let blocks = plan.width(Buf::X) / BLOCK;
        let has_room = plan.width(Buf::X).is_multiple_of(BLOCK) && blocks <= MOST_BLOCKS;
        if gpu.norms_apart || !has_room || plan.carried().contains(Buf::H) || plan.inject.is_some() {
            return all;
        }
        for pair in lists.windows(2) {
            let (Some(before), Some((norm, ops))) = (pair[0].last(), pair[1].split_first()) else { continue };
            let Op::MatMul { weight, src, dst: Buf::X, add: true, .. } = *before.op else { continue };
            let Op::Norm { src: Buf::X, dst: Buf::H, .. } = *norm.op else { continue };
            let fits =
                Format::of(model.weight(weight).ty()).is_some_and(|format| arith.fits_gate_rows(format));
            if src == Buf::H || !fits || !scales(weight) || plain_norm(&work.layout, norm).is_none() {
                continue;
            }
            if let Some(readers) = readers(stage, ops, scales) {
                let lanes = gpu.tuning.lanes(blocks);
                let folded = Folded { before: weight, bound: None, floats: None, lanes, parts: Vec::new() };
                all.norms.insert(norm.id, folded);
                all.readers.extend(readers);
            }
        }
        all
    }

    pub fn has(&self, norm: OpId) -> bool {
        self.norms.contains_key(&norm)
    }

    pub fn are_read_by(&self, weight: WeightId) -> bool {
        self.readers.contains(&weight)
    }
}

/// The weights of the operations that read what the norm before them made; `None` if anything else reads it.
fn readers(stage: &Stage, ops: &[PlanOp], scales: impl Fn(WeightId) -> bool) -> Option<Vec<WeightId>> {
    let mut readers = Vec::new();
    for op in ops {
        let operands = stage.model.plan.operands(op);
        if operands.reads.contains(Buf::H) {
            match *op.op {
                Op::MatMul { weight, .. } => readers.push(weight),
                Op::Gate { gate, up, .. } => {
                    readers.extend([Some(gate), up].into_iter().flatten().map(|linear| linear.weight));
                }
                _ => return None,
            }
        }
        if operands.writes.contains(Buf::H) {
            return None;
        }
    }
    (!readers.is_empty() && readers.iter().all(|&id| scales(id))).then_some(readers)
}

impl Ops {
    /// Norms of the layers that live here, and products before them.
    pub(super) fn bind_unscaled(&mut self, stage: &Stage, held: &UnitSet) {
        let norms = held.ops(&stage.model.plan).into_iter().flatten();
        let norms: Vec<PlanOp> = norms.filter(|op| self.unscaled.has(op.id)).collect();
        for PlanOp { id, op: norm } in norms {
            let Op::Norm { norm: Norm { eps, .. }, src, dst, .. } = *norm else { continue };
            let Some(weight_id) = plain_norm(&stage.work.layout, norm) else { continue };
            let layout = stage.rows_of(src);
            let per_number = 1.0 / layout.width as f32;
            let stride = (layout.stride / 4) as u32;
            let params = self.params.add(&NormUnscaledParams { stride, eps, per_number, zero: 0 });
            let weight = stage.weights.numbers(Numbers::Vector(weight_id));
            let storage = [weight.clone(), stage.buffer(src), stage.prepared(dst)];
            let Folded { before, lanes, .. } = self.unscaled.norms[&id];
            let kernel = Kernel::NormUnscaled { arith: self.arith, lanes, whole: false };
            let bound = Binding { group: stage.bind(&self.params, kernel, &storage), params };
            let rows = NormRows { group: 0, src, dst, add: false, list_at: None };
            let floats = self.norm_of_rows(stage, weight_id, eps, rows, Arith::Float);
            let mut parts = Vec::new();
            let Ops { matmuls, params, .. } = self;
            let does_norm =
                |matmul: &&Matmul| matmul.mode == Mode::Add && stage.gpu.tuning.norms_in_products > 0;
            if let Some(matmul) = matmuls.get(&before).filter(does_norm) {
                for (part, made) in stage.weights.matrices[&before].parts.iter().zip(&matmul.parts) {
                    let given = ProductParams { eps, per_number, ..made.given };
                    let slot = params.add(&given);
                    let x = stage.input(matmul.matrices.src, matmul.matrices.arith);
                    let made = [stage.buffer(src), weight.clone(), stage.prepared(dst)];
                    let storage = stage.product(before, part, x, made);
                    parts.push(Binding {
                        group: stage.bind(params, Bindings::ADD_ROWS, &storage),
                        params: slot,
                    });
                }
            }
            let folded = self.unscaled.norms.get_mut(&id).expect("it is there");
            (folded.bound, folded.floats, folded.parts) = (Some(bound), Some(floats), parts);
        }
    }

    /// The commands that are left of a norm behind its product.
    pub(super) fn norm_unscaled(&self, out: &mut Lowering, norm: OpId, left: NormLeft) {
        let Folded { bound, floats, lanes, .. } = &self.unscaled.norms[&norm];
        let here = "it runs where its layer is";
        if left.leaves {
            floats.as_ref().expect(here).lower(out);
        }
        if !left.is_done {
            let whole = out.rows as u32 > out.gpu.tuning.norms_in_products;
            let kernel = Kernel::NormUnscaled { arith: self.arith, lanes: *lanes, whole };
            out.dispatch(kernel, bound.as_ref().expect(here), [1, out.rows as u32, 1]);
        }
        out.add_ready(Buf::H);
    }

    /// The norm behind the product of this step, if the product does it.
    pub(super) fn norming_product(
        &self,
        out: &Lowering,
        product: WeightId,
        at: StepAt,
    ) -> Option<Norming<'_>> {
        let is_few = out.rows as u32 <= out.gpu.tuning.norms_in_products;
        let adds = self.matmuls[&product].mode == Mode::Add;
        let next = at.behind().first().filter(|_| is_few && adds)?;
        let folded = self.unscaled.norms.get(&next.id)?;
        (folded.before == product && !folded.parts.is_empty())
            .then_some(Norming { norm: next.id, parts: &folded.parts })
    }

    pub(super) fn add_and_norm(&self, out: &mut Lowering, matmul: &Matmul, norming: &Norming, coarse: bool) {
        let Matrices { format, lanes, arith, .. } = matmul.matrices;
        self.make_ready_for(out, matmul);
        let coarse = matmul.matrices.weigh(out, coarse);
        let kernel = Kernel::AddRows { format, lanes, columns: out.rows as u32, coarse, arith };
        for (bound, part) in norming.parts.iter().zip(&matmul.parts) {
            let groups = part.rows.div_ceil(BLOCK as u32);
            out.dispatch(kernel, bound, in_two(groups, &out.gpu.limits));
        }
    }
}
