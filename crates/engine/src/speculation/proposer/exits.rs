//! The model drafts with its first layers, for each token with as many of them as it needs to be sure.

use super::{
    LayerPasses, Passes, Proposer, Supply,
    mask::{chance, prefix},
};
use crate::{
    Context, RunLayers,
    speculation::{
        frequent,
        policy::{SourceInfo, SourceKind},
    },
};

/// Ends a draft step at the first of some layers where the head is sure of the next token, and at the last of them in any case.
/// Where it is not sure, the row goes on from there. The layers between have keys and values only of the tokens that came that
/// far. Verification goes on from the first exit, which all tokens reached.
///
/// Where the device keeps no rows, each exit would have to begin again, so there is only the first.
#[derive(Clone)]
pub struct ExitsProposer {
    /// Ascending.
    exits: Vec<usize>,
    passes: LayerPasses,
}

impl ExitsProposer {
    /// `exits` are numbers of layers that run, at least one of them.
    pub fn new(n_layer: usize, mut exits: Vec<usize>) -> Self {
        exits.sort_unstable();
        exits.dedup();
        let exit = |&layers: &usize| RunLayers::exit(n_layer, layers);
        let further = exits.iter().copied().zip(exits[1..].iter().map(exit)).collect();
        let passes = LayerPasses { mask: exit(&exits[0]), prefix: exits[0], further };
        ExitsProposer { exits, passes }
    }

    /// The same without rows for the verification, which then begins with the first layer.
    pub fn keeping_nothing(self) -> Self {
        ExitsProposer { passes: LayerPasses { prefix: 0, ..self.passes }, ..self }
    }
}

impl Proposer for ExitsProposer {
    /// Assumes that half of the tokens go on at each exit, until the time of steps is measured.
    fn info(&self, context: &Context) -> SourceInfo {
        let n_layer = context.model().plan.dims.n_layer;
        let cost = |layers: usize| context.mask_cost(&RunLayers::exit(n_layer, layers));
        let costs: Vec<f64> = self.exits.iter().map(|&layers| cost(layers)).collect();
        let further = costs.windows(2).map(|pair| pair[1] - pair[0] + cost(0));
        let share = std::iter::successors(Some(0.5), |share| Some(share * 0.5));
        let cost = costs[0] + further.zip(share).map(|(cost, share)| cost * share).sum::<f64>();
        let cost = frequent::draft_cost(context, cost);
        let layers: Vec<_> = self.exits.iter().map(usize::to_string).collect();
        let name = format!("exit {}", layers.join(" or "));
        let prefix = prefix(context, self.passes.prefix);
        SourceInfo { name, kind: SourceKind::Exit, cost, chance: chance(cost), prefix }
    }

    fn supply(&mut self, _: &[u32]) -> Supply {
        Supply::Any
    }

    fn passes(&self) -> Option<Passes<'_>> {
        Some(Passes::Layers(&self.passes))
    }
}
