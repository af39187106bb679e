//! Matrices whose high plane a GPU holds and whose low plane lies in RAM. A draft by the high planes alone never leaves the
//! GPU; where all bits count, the CPU makes the sums of the low planes first, and the GPU adds them to its own.

use super::cpu::{matmul::Packed, simd::Isa};
use crate::{
    Model,
    plan::{Buf, BufSet, Op, Unit, UnitSet, WeightId},
};

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
pub fn of_unit(model: &Model, unit: Unit, ops: &[&Op]) -> Vec<WeightId> {
    let layer = unit.layer().map(|layer| &model.plan.layers[layer]);
    if layer.is_none_or(|layer| !layer.shared.is_empty() || layer.mlp.iter().any(Op::is_of_experts)) {
        return Vec::new();
    }
    let mut made = BufSet::NONE;
    let mut found = Vec::new();
    for op in ops {
        let operands = model.plan.operands(op);
        let matrices = || operands.matrices().map(|(id, _)| id);
        let is_product = matches!(op, Op::MatMul { .. } | Op::Gate { .. });
        let all_apart = matrices().all(|id| Packed::has_low_plane(model.weight(id).ty()));
        if is_product && all_apart && operands.matrices().all(|(_, src)| made.contains(src)) {
            found.extend(matrices());
        }
        made = made.union(operands.writes);
    }
    found
}

/// Bytes of RAM of a matrix's low plane, with the scales.
pub fn low_bytes(model: &Model, id: WeightId) -> u64 {
    let weight = model.weight(id);
    Packed::low_plane_bytes(weight.ty(), weight.rows, weight.cols)
}

/// The same where whole groups of rows are packed.
pub fn low_bytes_for(model: &Model, id: WeightId, isa: Isa) -> u64 {
    let weight = model.weight(id);
    Packed::low_plane_bytes(weight.ty(), weight.rows.next_multiple_of(isa.lanes()), weight.cols)
}

/// By weight id, of some units.
pub fn of_units(model: &Model, units: &UnitSet) -> Vec<bool> {
    let mut by_planes = vec![false; model.weights.len()];
    for (unit, ops) in model.plan.units().filter(|(unit, _)| units.holds(*unit)) {
        of_unit(model, unit, &ops).into_iter().for_each(|id| by_planes[id.0 as usize] = true);
    }
    by_planes
}
