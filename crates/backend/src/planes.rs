//! Matrices whose high plane a GPU holds and whose low plane lies in RAM. A draft by the high planes alone never leaves the
//! GPU; where all bits count, the CPU makes the sums of the low planes first, and the GPU adds them to its own.

pub use super::cpu::matmul::{HighBits, PerHighBits};
use super::cpu::{matmul::Packed, simd::Isa};
use crate::{
    Model,
    plan::{Buf, BufSet, Op, PlanOp, Unit, UnitSet, WeightId},
};

/// Of which units a GPU has high planes alone, where a unit has some, and of how many bits.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanesApart {
    pub units: UnitSet,
    pub high: HighBits,
}

impl PlanesApart {
    /// Of no unit.
    pub fn none(n_layer: usize) -> Self {
        PlanesApart { units: UnitSet::none(n_layer), high: HighBits::default() }
    }
}

/// A product of a GPU that holds the high planes, and what the CPU makes before it.
#[derive(Clone, Debug, PartialEq)]
pub struct LowProduct {
    /// The first of them names it.
    pub weights: Vec<WeightId>,
    /// Of each, where there is one.
    pub biases: Vec<Option<WeightId>>,
    /// What they are multiplied with.
    pub src: Buf,
    /// Whether their rows go in turn, or one below the other.
    pub in_turn: bool,
}

/// The matrices of a unit's operations that can lie by planes: those whose rows the unit makes itself, right before, so
/// that they are on the GPU when the CPU needs them. Layers whose sublayers share operations, or that have experts, go to
/// and fro otherwise.
pub fn of_unit(model: &Model, unit: Unit, ops: &[PlanOp]) -> Vec<WeightId> {
    let layer = unit.layer().map(|layer| &model.plan.layers[layer]);
    if layer.is_none_or(|layer| !layer.shared.is_empty() || layer.mlp.iter().any(Op::is_of_experts)) {
        return Vec::new();
    }
    let mut made = BufSet::NONE;
    let mut found = Vec::new();
    for op in ops {
        let operands = model.plan.operands(op);
        let types: Vec<_> = operands.matrices().map(|(id, _)| model.weight(id).ty()).collect();
        let is_product = matches!(op.op, Op::MatMul { .. } | Op::Gate { .. });
        // A gate and its up matrix are one product, or two with one way to the CPU between them.
        let are_apart = types.iter().all(|&ty| Packed::has_low_plane(ty) && ty == types[0]);
        if is_product && are_apart && operands.matrices().all(|(_, src)| made.contains(src)) {
            found.extend(operands.matrices().map(|(id, _)| id));
        }
        made = made.union(operands.writes);
    }
    found
}

/// How many products of these matrices, in a unit's order, the CPU has a part of: a type's with the same rows are one.
pub fn products(model: &Model, ops: &[PlanOp], matrices: &[WeightId]) -> usize {
    let operands = ops.iter().flat_map(|op| model.plan.operands(op).matrices());
    let apart = operands.filter(|(id, _)| matrices.contains(id));
    let mut products: Vec<_> = apart.map(|(id, src)| (src, model.weight(id).ty())).collect();
    products.dedup();
    products.len()
}

/// Bytes of RAM of a matrix's low plane, with the scales.
pub fn low_bytes(model: &Model, id: WeightId, high: HighBits) -> u64 {
    let weight = model.weight(id);
    Packed::low_plane_bytes(weight.ty(), weight.rows, weight.cols, high)
}

/// The same where whole groups of rows are packed.
pub fn low_bytes_for(model: &Model, id: WeightId, high: HighBits, isa: Isa) -> u64 {
    let weight = model.weight(id);
    Packed::low_plane_bytes(weight.ty(), weight.rows.next_multiple_of(isa.lanes()), weight.cols, high)
}

/// By weight id, the bits of those that lie so.
pub fn of_units(model: &Model, apart: &PlanesApart) -> Vec<Option<HighBits>> {
    let mut by_planes = vec![None; model.weights.len()];
    for (unit, ops) in model.plan.units().filter(|(unit, _)| apart.units.holds(*unit)) {
        of_unit(model, unit, &ops).into_iter().for_each(|id| by_planes[id.0 as usize] = Some(apart.high));
    }
    by_planes
}
