//! How sure a draft is of its tokens, by its logits. A draft step of a small model takes a tenth of a millisecond, so this may only
//! take a few microseconds. It need not be exact: only statistics and the policy's estimates depend on it.

/// How many of a draft's best candidates are kept, to see later which would have been right.
pub const CANDIDATES: usize = 5;

use crate::scores::{self, Scores};

/// The ids of the highest logits, best first.
pub fn best(scores: Scores) -> Vec<u32> {
    best_of(scores, CANDIDATES)
}

/// The ids of the `count` highest logits, or as many as there are.
pub fn best_of(scores: Scores, count: usize) -> Vec<u32> {
    match scores {
        Scores::All(logits) => scores::best(logits, count).into_iter().map(|(id, _)| id).collect(),
        Scores::Top(top) => top.best.iter().take(count).map(|&(id, _)| id).collect(),
    }
}

/// The probability of a token, to about three digits; among the best tokens, if only these are known.
pub fn probability(scores: Scores, id: u32) -> f32 {
    match scores {
        Scores::All(logits) => probability_of(logits, logits[id as usize]),
        Scores::Top(top) => match top.best.iter().find(|best| best.0 == id) {
            Some(&(_, logit)) if top.log_sum.is_finite() => (logit - top.log_sum).exp().min(1.0),
            _ => 1.0,
        },
    }
}

/// The same of one of all logits.
pub fn probability_of(logits: &[f32], logit: f32) -> f32 {
    const LANES: usize = 8;
    let max = logits.iter().fold(f32::NEG_INFINITY, |max, &logit| max.max(logit));
    if !max.is_finite() {
        return 1.0;
    }
    let mut sums = [0.0f32; LANES];
    for chunk in logits.chunks(LANES) {
        for (sum, &logit) in sums.iter_mut().zip(chunk) {
            *sum += quick_exp(logit - max);
        }
    }
    (quick_exp(logit - max) / sums.iter().sum::<f32>()).min(1.0)
}

/// e^x for x ≤ 0: the exponent's bits for the whole part of x·log₂e, a cubic for the rest. NaN gives next to nothing.
fn quick_exp(x: f32) -> f32 {
    let y = (x * std::f32::consts::LOG2_E).max(-126.0);
    let whole = y.floor();
    let f = y - whole;
    let cubic = 1.0 + f * (0.695_976 + f * (0.224_940_4 + f * 0.079_083_6));
    f32::from_bits(((whole as i32 + 127) as u32) << 23) * cubic
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{rng::Rng, sampler::top_logprobs, scores::Top};

    #[test]
    fn quick_probabilities_agree_with_exact_ones() {
        let mut rng = Rng::new(4);
        for n in [1, 4, 63, 64, 65, 1000, 5003] {
            let logits: Vec<f32> = (0..n).map(|_| (30.0 * rng.next_f64() - 20.0) as f32).collect();
            let exact = top_logprobs(&logits, CANDIDATES);
            let top = Top::of(&logits, 40);
            for scores in [Scores::All(&logits), Scores::Top(&top)] {
                assert_eq!(best(scores), exact.iter().map(|e| e.0).collect::<Vec<_>>(), "{n}");
                for &(id, logprob) in &exact {
                    let (quick, exact) = (probability(scores, id), logprob.exp());
                    assert!((quick / exact - 1.0).abs() < 2e-3, "{n}: {quick} {exact}");
                }
            }
        }
    }

    #[test]
    fn equals_come_by_id_and_odd_logits_are_survived() {
        assert_eq!(best(Scores::All(&[1.0; 9])), [0, 1, 2, 3, 4]);
        let odd = [f32::NAN, 2.0, f32::NEG_INFINITY, 1.0];
        assert_eq!(best(Scores::All(&odd)), [1, 3]);
        for logits in [&odd[..], &[f32::NEG_INFINITY, 2.0, 1.0]] {
            let top = Top::of(logits, 2);
            for scores in [Scores::All(logits), Scores::Top(&top)] {
                assert!((probability(scores, 1) - 0.731).abs() < 1e-3);
            }
        }
        for certain in [&[f32::INFINITY, 0.0][..], &[f32::NEG_INFINITY; 3]] {
            assert_eq!(probability(Scores::All(certain), 0), 1.0);
            assert_eq!(probability(Scores::Top(&Top::of(certain, 1)), 0), 1.0);
        }
    }
}
