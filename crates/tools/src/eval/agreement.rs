//! How close a model under a mask comes to the full model, position by position.
//!
//! The full model's word on a position is kept as a [`Reference`]: its first choice, its likeliest tokens with
//! their log-probabilities, and all other tokens as one bucket. So a text is evaluated in full once, and any
//! number of masks is held against it afterwards, at a few hundred bytes a position. Taking tokens together
//! can only hide differences: over buckets the overlap is never lower and the divergence never higher than over
//! single tokens, and with all tokens kept both are exact.

use serde::{Deserialize, Serialize};

use crate::sampler::top_logprobs;

/// Tokens that a reference keeps where nothing else is said.
pub const TOP: usize = 64;

/// Log-probabilities of one row, computed on demand from its logits.
pub struct LogProbs<'a> {
    logits: &'a [f32],
    /// The likeliest token.
    pub best: usize,
    log_sum: f64,
}

impl<'a> LogProbs<'a> {
    /// The log-probabilities of these logits.
    pub fn new(logits: &'a [f32]) -> Self {
        let best = (1..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
        let max = logits[best];
        let sum: f64 = logits.iter().map(|&l| f64::from((l - max).exp())).sum();
        LogProbs { logits, best, log_sum: f64::from(max) + sum.ln() }
    }

    /// The log-probability of a token.
    pub fn at(&self, token: usize) -> f64 {
        f64::from(self.logits[token]) - self.log_sum
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.logits.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.logits.is_empty()
    }
}

/// What the full model says at one position.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Its first choice.
    pub best: u32,
    /// ln Σ exp(logit).
    pub log_sum: f64,
    top: Vec<(u32, f32)>,
}

impl Reference {
    /// What the full model says, with its `top` likeliest tokens.
    pub fn new(logits: &[f32], top: usize) -> Self {
        let row = LogProbs::new(logits);
        Reference { best: row.best as u32, log_sum: row.log_sum, top: top_logprobs(logits, top) }
    }

    /// Whether the row was one of numbers.
    pub fn is_sound(&self) -> bool {
        !self.log_sum.is_nan()
    }

    /// The likeliest tokens with their log-probabilities, best first.
    pub fn top(&self) -> &[(u32, f32)] {
        &self.top
    }
}

/// A masked row beside the full one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Both have the same first choice.
    pub agreed: bool,
    /// Σ min(p, q): the chance that sampling accepts what the masked model draws.
    pub overlap: f64,
    /// KL divergence of the masked model from the full one, in nats.
    pub kl: f64,
}

impl Comparison {
    /// Over the reference's tokens and the bucket of all others.
    pub fn with_reference(full: &Reference, masked: &LogProbs) -> Self {
        let mut sums = Buckets::default();
        let (mut p_rest, mut q_rest) = (1.0, 1.0);
        for &(token, log_p) in &full.top {
            let (log_p, log_q) = (f64::from(log_p), masked.at(token as usize));
            sums.add(log_p, log_q);
            p_rest -= log_p.exp();
            q_rest -= log_q.exp();
        }
        // Rounding may leave a little, of either sign, where nothing is left.
        if full.top.len() < masked.len() && p_rest > 0.0 {
            sums.add(p_rest.ln(), q_rest.max(f64::MIN_POSITIVE).ln());
        }
        sums.against(full.best as usize == masked.best)
    }

    /// Over every token.
    pub fn exact(full: &LogProbs, masked: &LogProbs) -> Self {
        let mut sums = Buckets::default();
        (0..full.len()).for_each(|token| sums.add(full.at(token), masked.at(token)));
        sums.against(full.best == masked.best)
    }
}

#[derive(Default)]
struct Buckets {
    overlap: f64,
    kl: f64,
}

impl Buckets {
    fn add(&mut self, log_p: f64, log_q: f64) {
        let p = log_p.exp();
        self.overlap += p.min(log_q.exp());
        if p > 0.0 {
            self.kl += p * (log_p - log_q);
        }
    }

    fn against(self, agreed: bool) -> Comparison {
        Comparison { agreed, overlap: self.overlap, kl: self.kl }
    }
}

/// Comparisons summed over positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    agreed: u64,
    overlap: f64,
    kl: f64,
}

impl Agreement {
    /// Adds a position.
    pub fn add(&mut self, row: &Comparison) {
        self.agreed += u64::from(row.agreed);
        self.overlap += row.overlap;
        self.kl += row.kl;
    }

    /// Adds other positions.
    pub fn add_all(&mut self, other: &Agreement) {
        self.agreed += other.agreed;
        self.overlap += other.overlap;
        self.kl += other.kl;
    }

    /// Share of positions where both models' most likely token is the same.
    pub fn agreement(&self, positions: u64) -> f64 {
        self.agreed as f64 / positions as f64
    }

    /// Mean of Σ min(p, q): the acceptance that sampling would see.
    pub fn overlap(&self, positions: u64) -> f64 {
        self.overlap / positions as f64
    }

    /// Mean KL divergence of the masked model from the full one, in nats.
    pub fn kl(&self, positions: u64) -> f64 {
        self.kl / positions as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(p: &[f32], q: &[f32], top: usize) -> Comparison {
        Comparison::with_reference(&Reference::new(p, top), &LogProbs::new(q))
    }

    #[test]
    fn overlap_and_kl_of_two_known_distributions() {
        // p = (3/4, 1/4), q = (1/4, 3/4): Σ min = 1/2, KL = 1/2 · ln 3.
        let (p, q) = ([3f32.ln(), 0.0], [0.0, 3f32.ln()]);
        let exact = Comparison::exact(&LogProbs::new(&p), &LogProbs::new(&q));
        for row in [exact, compare(&p, &q, 2)] {
            assert!((row.overlap - 0.5).abs() < 1e-6, "{row:?}");
            assert!((row.kl - 0.5 * 3f64.ln()).abs() < 1e-6, "{row:?}");
            assert!(!row.agreed);
        }
    }

    #[test]
    fn a_bucket_takes_the_rest_together() {
        // Kept: token 0 with 1/2 against 1/4; the rest is 1/2 against 3/4, whoever holds it.
        let p = [0.5f32.ln(), 0.5f32.ln(), -80.0];
        let q = [0.25f32.ln(), -80.0, 0.75f32.ln()];
        let row = compare(&p, &q, 1);
        assert!((row.overlap - 0.75).abs() < 1e-6, "{row:?}");
        let kl = 0.5 * 2f64.ln() + 0.5 * (2f64 / 3.0).ln();
        assert!((row.kl - kl).abs() < 1e-6, "{row:?}");
    }

    #[test]
    fn buckets_hide_differences_and_never_add_any() {
        let p: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let q: Vec<f32> = (0..50).map(|i| (i as f32 * 0.6).cos() * 3.0).collect();
        let exact = Comparison::exact(&LogProbs::new(&p), &LogProbs::new(&q));
        let all = compare(&p, &q, 50);
        assert!((all.overlap - exact.overlap).abs() < 1e-5 && (all.kl - exact.kl).abs() < 1e-5);
        let mut last = exact;
        for top in [40, 20, 10, 5, 1] {
            let row = compare(&p, &q, top);
            assert!(row.overlap >= last.overlap - 1e-6 && row.kl <= last.kl + 1e-6, "top {top}: {row:?}");
            last = row;
        }
        assert!(last.overlap > exact.overlap + 0.01, "a single bucket must hide something here");
    }

    #[test]
    fn a_model_agrees_with_itself() {
        let p: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        for top in [0, 1, 7, 50] {
            let row = compare(&p, &p, top);
            assert!(row.agreed && (row.overlap - 1.0).abs() < 1e-6 && row.kl.abs() < 1e-6, "{row:?}");
        }
    }
}
