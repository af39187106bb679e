//! What a pass says of a row: all of its logits, or only its best tokens. A GPU finds these where the logits are, so
//! that a few bytes come back instead of a vocabulary.

use std::cmp::Ordering;

/// What of a row's logits suffices; a backend may give more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    #[default]
    Logits,
    /// So many of the best tokens.
    Top(usize),
}

impl Want {
    /// The same, for somebody who looks at `count` of the best as well.
    pub fn or_top(self, count: usize) -> Self {
        match self {
            Want::Logits => Want::Logits,
            Want::Top(k) => Want::Top(k.max(count)),
        }
    }
}

/// A row's best tokens, and what all of its tokens weigh together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Top {
    /// Best first, among equals by id, NaN last. Never empty.
    pub best: Vec<(u32, f32)>,
    /// ln Σ exp(logit), rounded a few times on its way; -inf where no token is possible, +inf where one is certain.
    pub log_sum: f32,
}

impl Top {
    /// The `k` best of a row, by sorting it: what a device has to agree with.
    pub fn of(logits: &[f32], k: usize) -> Self {
        let mut best: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
        // NaN before everything when ascending, so after everything here.
        let rank = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
            (false, false) => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
            (a, b) => a.cmp(&b),
        };
        best.sort_by(|a, b| rank(a.1, b.1).then(a.0.cmp(&b.0)));
        best.truncate(k);
        Top { best, log_sum: crate::sampler::log_sum_exp(logits) as f32 }
    }
}

/// What there is of a row.
#[derive(Clone, Copy, Debug)]
pub enum Scores<'a> {
    All(&'a [f32]),
    Top(&'a Top),
}

impl Scores<'_> {
    /// The lowest id among the highest logits; NaN never wins.
    pub fn greedy(self) -> u32 {
        match self {
            Scores::All(logits) => crate::sampler::greedy(logits),
            Scores::Top(top) => top.best[0].0,
        }
    }
}
