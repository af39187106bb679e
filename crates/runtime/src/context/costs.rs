//! The costs of passes: bytes of weights that they read, and a first guess of their time.

use super::{Context, Spent};
use crate::{
    mask::RunLayers,
    placement::{Basis, Place},
    plan::Step,
};

impl Context {
    /// How the time of a pass of so many rows is spent, under a mask or in full. A first guess by usual speeds where none was
    /// measured.
    pub fn expected(&self, mask: Option<&RunLayers>, rows: usize) -> Spent {
        let usual = Basis::default();
        let basis = self.speeds.map_or(usual, |speeds| usual.with_measured(speeds.read, speeds.round_trip));
        let mut spent = Spent::default();
        let apart = self.placement.planes_apart();
        for step in self.model.plan.steps(mask) {
            let experts = self.model.plan.operands(step.op).experts().next();
            let more = experts.map_or(1.0, |matrices| matrices.choice.over_one(rows));
            let bytes = self.step_bytes(&step) as f64 * more;
            let low = if apart.units.holds(step.unit) && !step.coarse {
                bytes - self.step_bytes(&Step { coarse: true, ..step }) as f64
            } else {
                0.0
            };
            spent.ram += low / basis.ram.value;
            let bytes = bytes - low;
            match self.placement.place_of(step.unit) {
                Place::Vram => spent.vram += bytes / basis.vram.value,
                Place::Ram => spent.ram += bytes / basis.ram.value,
                Place::File => spent.file += bytes / basis.file.value,
            }
        }
        spent
    }

    /// Bytes of weights that a step reads.
    pub(super) fn step_bytes(&self, step: &Step) -> u64 {
        self.model.bytes_read(step.op, step.experts, |id| self.backend.weight_bytes(id, step.coarse))
    }

    /// Bytes of weights that one token's pass reads, under a mask or in full.
    pub fn bytes_read(&self, mask: Option<&RunLayers>) -> u64 {
        self.model.plan.steps(mask).iter().map(|step| self.step_bytes(step)).sum()
    }

    /// The share of a full pass's weight bytes that a masked pass reads.
    pub fn mask_cost(&self, mask: &RunLayers) -> f64 {
        self.bytes_read(Some(mask)) as f64 / self.bytes_read(None) as f64
    }

    /// The share of a full pass's weight bytes that a shortlist can save: the head's, or nothing where shortlists are not used.
    pub fn head_share(&self) -> f64 {
        let head = self.model.plan.head_op().map_or(0, |op| self.step_bytes(&Step::of_head(op)));
        if self.shortlists { head as f64 / self.bytes_read(None) as f64 } else { 0.0 }
    }

    /// Whether any sublayer's weights have their high bits apart, so that a coarse pass reads less than a full one.
    pub fn has_planes(&self) -> bool {
        let layers = 0..self.model.plan.dims.n_layer;
        let all = layers.fold(RunLayers::all(self.model.plan.dims.n_layer), |mask, layer| {
            mask.coarse_attn(layer).coarse_mlp(layer)
        });
        self.mask_cost(&all) < 1.0
    }
}
