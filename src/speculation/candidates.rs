//! Drafts to try on a model about which nothing is known.

use super::{AheadProposer, MaskProposer, NgramProposer, Proposer};
use crate::{Context, RunLayers};

/// All of them that a context can have.
pub fn all(context: &Context) -> Vec<MaskProposer> {
    let model = context.model();
    let mut all = masks(model.n_layer(), context.has_planes(), model.experts_used());
    all.extend(exits(model.n_layer()));
    all
}

/// What drafts for a text: what stood in it before, the head for one token more if there is one, and these masks.
pub fn proposers(masks: &[MaskProposer], predicts_ahead: bool) -> Vec<Box<dyn Proposer>> {
    let ngram: Box<dyn Proposer> = Box::<NgramProposer>::default();
    let ahead = predicts_ahead.then(|| Box::new(AheadProposer) as _);
    let masks = masks.iter().map(|mask| Box::new(mask.clone()) as _);
    std::iter::once(ngram).chain(ahead).chain(masks).collect()
}

/// Everything from its high bits, where the weights have them apart: the best draft that needs no training and
/// no search. Then with layers skipped in the middle as well, where models can spare them most; without planes
/// these are skipped outright. Of `experts` a token goes through half of them.
pub fn masks(n_layer: usize, planes: bool, experts: Option<usize>) -> Vec<MaskProposer> {
    let whole = RunLayers::all(n_layer);
    let coarse = (0..n_layer).fold(whole.clone(), |mask, l| mask.coarse_attn(l).coarse_mlp(l));
    let middle = (n_layer / 4).max(1)..n_layer.saturating_sub((n_layer / 8).max(1));
    let skip = |mask: &RunLayers, step: usize| {
        middle.clone().step_by(step).fold(mask.clone(), |mask, l| mask.skip_attn(l).skip_mlp(l))
    };
    let halved = |mask: &RunLayers, experts: usize| {
        (0..n_layer).fold(mask.clone(), |mask, l| mask.experts(l, experts / 2))
    };
    let mut masks = match planes {
        true => vec![
            ("coarse", coarse.clone()),
            ("coarse, every third skipped", skip(&coarse, 3)),
            ("coarse, middle skipped", skip(&coarse, 1)),
        ],
        false => vec![("middle skipped", skip(&whole, 1)), ("every second skipped", skip(&whole, 2))],
    };
    if let Some(experts) = experts.filter(|&experts| experts > 1) {
        masks.push(("half of the experts", halved(if planes { &coarse } else { &whole }, experts)));
    }
    masks.into_iter().filter(|(_, mask)| *mask != whole).map(|(n, m)| MaskProposer::new(n, m)).collect()
}

/// Early exits, which only models trained for them are good at.
pub fn exits(n_layer: usize) -> Vec<MaskProposer> {
    let mut layers: Vec<usize> = [n_layer / 4, n_layer * 3 / 8].into_iter().filter(|&e| e > 0).collect();
    layers.dedup();
    layers.into_iter().map(|e| MaskProposer::exit(n_layer, e)).collect()
}

/// Exits among which each token may find its own: a quarter, three eighths and half of the layers.
pub fn exits_to_choose_from(n_layer: usize) -> Vec<usize> {
    let mut layers: Vec<usize> = [2, 3, 4]
        .map(|eighths| n_layer * eighths / 8)
        .into_iter()
        .filter(|&e| e > 0 && e < n_layer)
        .collect();
    layers.dedup();
    layers
}
