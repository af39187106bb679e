//! What a pass says of a row: all of its logits, or only its best tokens. A GPU finds these where the logits are, so
//! that a few bytes come back instead of a vocabulary.

use std::cmp::Ordering;

/// What of a row's logits suffices; a backend may give more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// All logits.
    #[default]
    Logits,
    /// So many of the best tokens.
    Top(usize),
}

impl Want {
    /// What suffices for both.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Want::Top(a), Want::Top(b)) => Want::Top(a.max(b)),
            (Want::Logits, _) | (_, Want::Logits) => Want::Logits,
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
        Top { best, log_sum: log_sum_exp(logits) as f32 }
    }
}

/// What there is of a row.
#[derive(Clone, Copy, Debug)]
pub enum Scores<'a> {
    /// The logits of all tokens.
    All(&'a [f32]),
    /// The best tokens.
    Top(&'a Top),
}

impl Scores<'_> {
    /// How many tokens it has.
    pub fn count(self) -> usize {
        match self {
            Scores::All(logits) => logits.len(),
            Scores::Top(top) => top.best.len(),
        }
    }

    /// The lowest id among the highest logits; NaN never wins.
    pub fn greedy(self) -> u32 {
        match self {
            Scores::All(logits) => greedy(logits),
            Scores::Top(top) => top.best[0].0,
        }
    }
}

/// The lowest id among the highest logits; NaN never wins.
///
/// # Panics
/// If `logits` is empty.
pub fn greedy(logits: &[f32]) -> u32 {
    assert!(!logits.is_empty(), "no logits to choose from");
    const CHUNK: usize = 128;
    let (mut best, mut winner) = (f32::NEG_INFINITY, usize::MAX);
    // Only few chunks hold a new maximum, and the question whether one does compiles to SIMD.
    for (start, chunk) in (0..).step_by(CHUNK).zip(logits.chunks(CHUNK)) {
        if chunk.iter().fold(false, |any, &logit| any | (logit > best)) {
            for (id, &logit) in (start..).zip(chunk) {
                if logit > best {
                    (best, winner) = (logit, id);
                }
            }
        }
    }
    if winner == usize::MAX {
        winner = logits.iter().position(|l| !l.is_nan()).unwrap_or(0);
    }
    winner as u32
}

/// The places of the highest logits with them, best first, among equals the lower place; NaN and what is impossible is not
/// among them.
pub fn best(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    // Only few chunks hold one that is better than the last of those so far, and the question whether one does compiles to SIMD.
    const CHUNK: usize = 64;
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
    let mut least = if count == 0 { f32::INFINITY } else { f32::NEG_INFINITY };
    for (start, chunk) in (0..).step_by(CHUNK).zip(logits.chunks(CHUNK)) {
        if !chunk.iter().fold(false, |any, &logit| any | (logit > least)) {
            continue;
        }
        for (place, &logit) in (start..).zip(chunk) {
            if logit > least {
                let before = best.partition_point(|&(_, other)| other >= logit);
                best.insert(before, (place, logit));
                best.truncate(count);
                if best.len() == count {
                    least = best[count - 1].1;
                }
            }
        }
    }
    best
}

/// ln Σ exp(logit), passing over NaN. -inf where no token is possible, +inf where one is certain.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().fold(f32::NEG_INFINITY, |max, &l| max.max(l));
    if max.is_infinite() {
        return f64::from(max);
    }
    let max = f64::from(max);
    let sum: f64 = logits.iter().filter(|l| !l.is_nan()).map(|&l| (f64::from(l) - max).exp()).sum();
    max + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_among_equals_by_id_and_nan_last() {
        let row = [1.0, f32::NAN, 3.0, -0.0, 0.0, 3.0, f32::NEG_INFINITY];
        let ids = |k| Top::of(&row, k).best.iter().map(|&(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(7), [2, 5, 0, 3, 4, 6, 1]);
        assert_eq!((ids(2), ids(1), ids(100).len()), (vec![2, 5], vec![2], 7));
        let top = Top::of(&row, 3);
        assert_eq!((Scores::All(&row).greedy(), Scores::Top(&top).greedy()), (2, 2));
    }

    #[test]
    fn all_tokens_weigh_in_the_sum_also_those_that_are_not_among_the_best() {
        let top = Top::of(&[0.0, 2f32.ln(), 5f32.ln(), f32::NEG_INFINITY], 1);
        assert!((top.log_sum - 8f32.ln()).abs() < 1e-6, "{top:?}");
        assert_eq!(Top::of(&[f32::NEG_INFINITY; 2], 1).log_sum, f32::NEG_INFINITY);
    }

    #[test]
    fn a_want_grows_and_never_shrinks() {
        assert_eq!(Want::Top(1).and(Want::Top(4)), Want::Top(4));
        assert_eq!(Want::Top(9).and(Want::Top(4)), Want::Top(9));
        assert_eq!(Want::Logits.and(Want::Top(4)), Want::Logits);
    }

    #[test]
    fn the_best_are_those_of_the_highest_logits() {
        let logits: Vec<f32> = (0..100).map(|i| ((i * 37) % 100) as f32).collect();
        // 37 · 27 is 999, and so on down.
        let places =
            |logits, count| best(logits, count).into_iter().map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!(places(&logits, 3), [27, 54, 81]);
        assert_eq!(places(&logits[..2], 3), [1, 0]);
        assert_eq!(places(&[2.0, 5.0, 5.0], 2), [1, 2]);
        assert!(best(&logits, 0).is_empty());
    }
}
