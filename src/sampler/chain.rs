//! The stages, in llama.cpp's order: bias, penalties, top-k, typical, top-p, min-p, temperature.

use std::cmp::Ordering;

use super::{Distribution, SamplerConfig};
use crate::scores::Scores;

/// The processed distribution of one position whose text so far is `history`.
///
/// NaN and impossible (-inf) tokens never get a share; +inf ones share everything. Where nothing is possible,
/// the choice of [`greedy`](crate::scores::greedy) gets it all.
///
/// # Panics
/// If `logits` is empty.
pub fn distribution(config: &SamplerConfig, logits: &[f32], history: &[u32]) -> Distribution {
    let mut result = Distribution::default();
    Chain::default().distribution(config, Scores::All(logits), history, &mut result);
    result
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub id: u32,
    pub logit: f32,
    weight: f64,
}

/// Best first; among equals the lower id.
pub(super) fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// The stages' buffers. Nothing else is kept from call to call.
#[derive(Default)]
pub struct Chain {
    adjusted: Vec<f32>,
    window: Vec<u32>,
    candidates: Vec<Candidate>,
}

impl Chain {
    /// As the function [`distribution`], into `result` and without allocating once the buffers have grown.
    pub fn distribution(
        &mut self,
        config: &SamplerConfig,
        scores: Scores,
        history: &[u32],
        result: &mut Distribution,
    ) {
        if config.is_greedy() {
            return result.set_one_hot(self.greedy(config, scores, history));
        }
        let Self { adjusted, window, candidates } = self;
        let scores = adjust(config, scores, history, adjusted, window);
        match scores {
            Scores::All(logits) => select_top(logits, config.top_k, candidates),
            Scores::Top(top) => {
                candidates.clear();
                let possible = |&&(_, logit): &&(u32, f32)| logit > f32::NEG_INFINITY;
                let best = top.best.iter().take(config.top_k).filter(possible);
                candidates.extend(best.map(|&(id, logit)| Candidate { id, logit, weight: 0.0 }));
            }
        }
        certain_alone(candidates);
        if candidates.is_empty() {
            return result.set_one_hot(scores.greedy());
        }
        typical(candidates, config.typical_p);
        top_p(candidates, config.top_p);
        min_p(candidates, config.min_p);
        if config.temp <= 0.0 {
            let best = candidates.iter().min_by(|a, b| by_rank(a, b)).map_or(0, |c| c.id);
            return result.set_one_hot(best);
        }
        let total = soften(candidates, config.temp);
        result.entries.clear();
        result.entries.extend(candidates.iter().map(|c| (c.id, c.weight / total)).filter(|e| e.1 > 0.0));
        result.entries.sort_unstable_by_key(|e| e.0);
    }

    /// The highest logit after bias and penalties.
    pub fn greedy(&mut self, config: &SamplerConfig, scores: Scores, history: &[u32]) -> u32 {
        adjust(config, scores, history, &mut self.adjusted, &mut self.window).greedy()
    }
}

/// Bias and penalties; the scores themselves where there are none, as with those that have only the best.
fn adjust<'a>(
    config: &SamplerConfig,
    scores: Scores<'a>,
    history: &[u32],
    adjusted: &'a mut Vec<f32>,
    window: &mut Vec<u32>,
) -> Scores<'a> {
    let Scores::All(logits) = scores else { return scores };
    if config.logit_bias.is_empty() && !config.penalizes() {
        return scores;
    }
    adjusted.clear();
    adjusted.extend_from_slice(logits);
    for &(id, bias) in &config.logit_bias {
        if let Some(logit) = adjusted.get_mut(id as usize) {
            *logit += bias;
        }
    }
    if config.penalizes() {
        window.clear();
        window.extend_from_slice(&history[history.len().saturating_sub(config.repeat_last_n)..]);
        window.sort_unstable();
        for same in window.chunk_by(|a, b| a == b) {
            let Some(logit) = adjusted.get_mut(same[0] as usize) else { continue };
            // Towards "less likely" on either side of zero.
            match *logit <= 0.0 {
                true => *logit *= config.repeat_penalty,
                false => *logit /= config.repeat_penalty,
            }
            *logit -= same.len() as f32 * config.frequency_penalty + config.presence_penalty;
        }
    }
    Scores::All(adjusted)
}

/// Up to so many of the best come in order, as a device gives them: sums over them are then the same bits.
const ORDERED: usize = 256;

/// The `k` best possible tokens (0: all); best first if there are few. One pass over the logits, and selections
/// among at most 2k candidates whenever that many have gathered.
pub(super) fn select_top(logits: &[f32], k: usize, best: &mut Vec<Candidate>) {
    let k = if k == 0 { logits.len() } else { k };
    let full = k.saturating_mul(2).max(64);
    let mut threshold = f32::NEG_INFINITY;
    best.clear();
    for (id, &logit) in logits.iter().enumerate() {
        // NaN fails this too. An equal of the k-th best has a higher id and loses.
        if logit > threshold {
            best.push(Candidate { id: id as u32, logit, weight: 0.0 });
            if best.len() == full {
                best.select_nth_unstable_by(k - 1, by_rank);
                best.truncate(k);
                threshold = best[k - 1].logit;
            }
        }
    }
    if best.len() > k {
        best.select_nth_unstable_by(k - 1, by_rank);
        best.truncate(k);
    }
    if best.len() <= ORDERED {
        best.sort_unstable_by(by_rank);
    }
}

/// Infinite logits leave nothing to the others, and cannot be computed with.
fn certain_alone(candidates: &mut Vec<Candidate>) {
    if candidates.iter().any(|c| c.logit == f32::INFINITY) {
        candidates.retain(|c| c.logit == f32::INFINITY);
        candidates.iter_mut().for_each(|c| c.logit = 0.0);
    }
}

fn highest(candidates: &[Candidate]) -> f32 {
    candidates.iter().fold(f32::NEG_INFINITY, |max, c| max.max(c.logit))
}

/// Sets every weight to exp((logit - highest) / temp); returns their sum.
fn soften(candidates: &mut [Candidate], temp: f32) -> f64 {
    let max = f64::from(highest(candidates));
    let temp = f64::from(temp);
    let mut total = 0.0;
    for c in candidates {
        c.weight = ((f64::from(c.logit) - max) / temp).exp();
        total += c.weight;
    }
    total
}

/// Keeps the tokens whose information lies nearest to the entropy, until they hold more than `p`.
fn typical(candidates: &mut Vec<Candidate>, p: f32) {
    if p >= 1.0 {
        return;
    }
    let total = soften(candidates, 1.0);
    let offset = f64::from(highest(candidates)) + total.ln();
    let information = |c: &Candidate| offset - f64::from(c.logit);
    let entropy: f64 = candidates.iter().map(|c| c.weight / total * information(c)).sum();
    let distance = |c: &Candidate| (information(c) - entropy).abs();
    let nearest = |a: &Candidate, b: &Candidate| distance(a).total_cmp(&distance(b)).then(by_rank(a, b));
    let limit = f64::from(p) * total;
    keep_fewest(candidates, nearest, |held| held > limit);
}

/// Keeps the fewest of the best tokens that hold at least `p` together.
fn top_p(candidates: &mut Vec<Candidate>, p: f32) {
    if p >= 1.0 {
        return;
    }
    let limit = f64::from(p) * soften(candidates, 1.0);
    keep_fewest(candidates, by_rank, |held| held >= limit);
}

/// Keeps the shortest prefix, in the given order, whose weight is enough. Halves the part where it ends by
/// selection, which ranks nothing and so costs O(n) even for a flat distribution over a whole vocabulary.
fn keep_fewest(
    candidates: &mut Vec<Candidate>,
    order: impl Fn(&Candidate, &Candidate) -> Ordering,
    enough: impl Fn(f64) -> bool,
) {
    // The first `kept` are in and hold too little; from `end` on, none is needed.
    let (mut kept, mut end, mut held) = (0, candidates.len(), 0.0);
    while end - kept > 1 {
        let half = (end - kept) / 2;
        candidates[kept..end].select_nth_unstable_by(half - 1, &order);
        let with_half = candidates[kept..kept + half].iter().fold(held, |sum, c| sum + c.weight);
        match enough(with_half) {
            true => end = kept + half,
            false => (kept, held) = (kept + half, with_half),
        }
    }
    candidates.truncate(end);
}

/// Keeps the tokens at least `p` times as likely as the likeliest.
fn min_p(candidates: &mut Vec<Candidate>, p: f32) {
    if p <= 0.0 {
        return;
    }
    let least = f64::from(highest(candidates)) + f64::from(p).ln();
    candidates.retain(|c| f64::from(c.logit) >= least);
}
