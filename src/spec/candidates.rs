//! Drafts to try on a model about which nothing is known.

use super::MaskProposer;
use crate::RunLayers;

/// Layers skipped in the middle, where models can spare them most; the first and the last layers always run.
pub fn masks(n_layer: usize) -> Vec<MaskProposer> {
    let skip = |layers: &[usize]| {
        let whole = RunLayers::all(n_layer);
        layers.iter().fold(whole, |mask, &l| mask.skip_attn(l).skip_mlp(l))
    };
    let middle = n_layer / 4..n_layer - n_layer / 8;
    let run: Vec<usize> = middle.clone().collect();
    let every_second: Vec<usize> = middle.step_by(2).collect();
    let named = [("skip middle", run), ("skip every second", every_second)];
    let named = named.into_iter().filter(|(_, layers)| !layers.is_empty() && layers.len() < n_layer);
    named.map(|(name, layers)| MaskProposer::new(name, skip(&layers))).collect()
}

/// Early exits, which only models trained for them are good at.
pub fn exits(n_layer: usize) -> Vec<MaskProposer> {
    let mut layers: Vec<usize> = [n_layer / 4, n_layer * 3 / 8].into_iter().filter(|&e| e > 0).collect();
    layers.dedup();
    layers.into_iter().map(|e| MaskProposer::exit(n_layer, e)).collect()
}
