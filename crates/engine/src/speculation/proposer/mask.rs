//! The model drafts for itself, with some of its sublayers skipped or coarse.

use super::{LayerPasses, Passes, Proposer, Supply};
use crate::{
    Context, RunLayers,
    speculation::{
        frequent,
        policy::{Prefix, SourceInfo, SourceKind},
    },
};

/// Drafts on a fork of the text, which reads the full model's keys and values of the text so far.
#[derive(Clone)]
pub struct MaskProposer {
    name: String,
    kind: SourceKind,
    passes: LayerPasses,
}

impl MaskProposer {
    /// A draft by the layers of a mask.
    pub fn new(name: impl Into<String>, mask: RunLayers) -> Self {
        let passes = LayerPasses { prefix: mask.full_prefix(), mask, further: Vec::new() };
        MaskProposer { name: name.into(), kind: SourceKind::Mask, passes }
    }

    /// The first `layers` layers and the head. Panics if the model has fewer.
    pub fn exit(n_layer: usize, layers: usize) -> Self {
        let mask = (layers..n_layer).fold(RunLayers::all(n_layer), |mask, l| mask.skip_attn(l).skip_mlp(l));
        MaskProposer { kind: SourceKind::Exit, ..Self::new(format!("exit {layers}"), mask) }
    }

    /// The same without rows for the verification, which then begins with the first layer.
    pub fn keeping_nothing(self) -> Self {
        MaskProposer { passes: LayerPasses { prefix: 0, ..self.passes }, ..self }
    }

    /// The layers that a draft step runs.
    pub fn layers(&self) -> &RunLayers {
        &self.passes.mask
    }
}

impl Proposer for MaskProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        let LayerPasses { mask, prefix: layers, .. } = &self.passes;
        let cost = frequent::draft_cost(context, context.mask_cost(mask));
        let prefix = prefix(context, *layers);
        SourceInfo { name: self.name.clone(), kind: self.kind, cost, chance: chance(cost), prefix }
    }

    fn supply(&mut self, _: &[u32]) -> Supply {
        Supply::Any
    }

    fn passes(&self) -> Option<Passes<'_>> {
        Some(Passes::Layers(&self.passes))
    }
}

/// The more of the model a draft runs, the more often it agrees with it.
pub(super) fn chance(cost: f64) -> f64 {
    1.0 / (1.0 + (0.3 - 3.0 * cost.clamp(0.0, 1.0)).exp())
}

/// The part that verification saves by going on after so many layers; `None` if that is not possible.
pub(super) fn prefix(context: &Context, layers: usize) -> Option<Prefix> {
    let n_layer = context.model().plan.dims.n_layer;
    let possible = layers > 0 && context.keeps_hidden();
    let bytes = |layers| context.bytes_read(Some(&RunLayers::exit(n_layer, layers)));
    possible.then(|| Prefix {
        layers,
        share: (bytes(layers) - bytes(0)) as f64 / context.bytes_read(None) as f64,
    })
}
