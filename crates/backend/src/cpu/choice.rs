//! Which experts a row goes through, and with what weights.

use crate::plan::{Gating, Groups, MoeSpec};

/// The smallest sum of weights that others are divided by.
const LEAST_SUM: f32 = 6.103_515_6e-5;

/// Per thread, kept from pass to pass.
#[derive(Default)]
pub struct ChoiceScratch {
    /// By expert: its score, and what it is chosen by.
    probabilities: Vec<f32>,
    keys: Vec<f32>,
    /// Experts, the chosen ones first.
    order: Vec<u32>,
    /// By group: the sum of its two best keys.
    sums: Vec<f32>,
    /// Groups, the best first.
    groups: Vec<u32>,
}

/// Writes the numbers of a row's `n` experts, the best first, and their weights behind where all would stand. Equal scores go to the lower number.
pub fn choose(
    moe: &MoeSpec,
    n: usize,
    scores: &[f32],
    bias: Option<&[f32]>,
    factors: Option<&[f32]>,
    scratch: &mut ChoiceScratch,
    out: &mut [f32],
) {
    let ChoiceScratch { probabilities, keys, order, sums, groups } = scratch;
    probabilities.clear();
    probabilities.extend_from_slice(scores);
    match moe.gating {
        Gating::Softmax => softmax(probabilities),
        Gating::Sigmoid => probabilities.iter_mut().for_each(|p| *p = 1.0 / (1.0 + (-*p).exp())),
        Gating::SoftmaxOfChosen => {}
    }
    keys.clear();
    keys.extend_from_slice(probabilities);
    if let Some(bias) = bias {
        keys.iter_mut().zip(bias).for_each(|(key, bias)| *key += bias);
    }
    // NaN counts as the least, so that every row has a choice.
    keys.iter_mut().filter(|key| key.is_nan()).for_each(|key| *key = f32::NEG_INFINITY);
    if let Some(Groups { count, used }) = moe.groups {
        let size = moe.n_expert / count;
        sums.clear();
        sums.extend(keys.chunks_exact(size).map(two_best));
        best_first(sums, count, groups);
        for &group in &groups[used..] {
            keys[group as usize * size..][..size].fill(f32::NEG_INFINITY);
        }
    }
    best_first(keys, n, order);
    let (numbers, weights) = out.split_at_mut(moe.n_used);
    let weights = &mut weights[..n];
    for ((number, weight), &expert) in numbers.iter_mut().zip(&mut *weights).zip(&*order) {
        (*number, *weight) = (expert as f32, probabilities[expert as usize]);
    }
    if moe.gating == Gating::SoftmaxOfChosen {
        softmax(weights);
    }
    if moe.renormalise {
        let sum: f32 = weights.iter().sum();
        let sum = sum.max(LEAST_SUM);
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    for (weight, &expert) in weights.iter_mut().zip(&*order) {
        *weight *= moe.scale * factors.map_or(1.0, |factors| factors[expert as usize]);
    }
}

/// Puts the `n` best of some keys in order, the others behind them as they come.
fn best_first(keys: &[f32], n: usize, order: &mut Vec<u32>) {
    order.clear();
    order.extend(0..keys.len() as u32);
    let better = |&a: &u32, &b: &u32| keys[b as usize].total_cmp(&keys[a as usize]).then(a.cmp(&b));
    if n < keys.len() {
        order.select_nth_unstable_by(n, better);
    }
    order[..n].sort_unstable_by(better);
}

fn two_best(keys: &[f32]) -> f32 {
    let (mut best, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &key in keys {
        if key > best {
            (best, second) = (key, best);
        } else if key > second {
            second = key;
        }
    }
    best + second
}

fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}
