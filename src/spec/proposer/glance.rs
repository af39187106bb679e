//! What a draft's logits say at a glance. A draft step of a small model takes a tenth of a millisecond, so this may
//! take a few microseconds, and need not be exact: nothing but statistics and the policy's estimates depend on it.

/// How many of a draft's best candidates are kept, to see later which would have been right.
pub const CANDIDATES: usize = 5;

const CHUNK: usize = 64;

/// The ids of the highest logits, best first. Only few chunks hold one that is better than the last of those so far, and
/// the question whether one does compiles to SIMD.
pub fn best(logits: &[f32]) -> Vec<u32> {
    let mut best: Vec<(f32, u32)> = Vec::with_capacity(CANDIDATES + 1);
    let mut least = f32::NEG_INFINITY;
    for (start, chunk) in (0..).step_by(CHUNK).zip(logits.chunks(CHUNK)) {
        if !chunk.iter().fold(false, |any, &logit| any | (logit > least)) {
            continue;
        }
        for (id, &logit) in (start..).zip(chunk) {
            if logit > least {
                let place = best.partition_point(|b| b.0 >= logit);
                best.insert(place, (logit, id));
                best.truncate(CANDIDATES);
                if best.len() == CANDIDATES {
                    least = best[CANDIDATES - 1].0;
                }
            }
        }
    }
    best.into_iter().map(|(_, id)| id).collect()
}

/// The probability of a token, to about three digits.
pub fn probability(logits: &[f32], id: u32) -> f32 {
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
    (quick_exp(logits[id as usize] - max) / sums.iter().sum::<f32>()).min(1.0)
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
    use crate::sampler::{rng::Rng, top_logprobs};

    #[test]
    fn a_glance_agrees_with_a_close_look() {
        let mut rng = Rng::new(4);
        for n in [1, 4, 63, 64, 65, 1000, 5003] {
            let logits: Vec<f32> = (0..n).map(|_| (30.0 * rng.next_f64() - 20.0) as f32).collect();
            let exact = top_logprobs(&logits, CANDIDATES);
            assert_eq!(best(&logits), exact.iter().map(|e| e.0).collect::<Vec<_>>(), "{n}");
            for (id, logprob) in exact {
                let (quick, exact) = (probability(&logits, id), logprob.exp());
                assert!((quick / exact - 1.0).abs() < 2e-3, "{n}: {quick} {exact}");
            }
        }
    }

    #[test]
    fn equals_come_by_id_and_odd_logits_are_survived() {
        assert_eq!(best(&[1.0; 9]), [0, 1, 2, 3, 4]);
        let odd = [f32::NAN, 2.0, f32::NEG_INFINITY, 1.0];
        assert_eq!(best(&odd), [1, 3]);
        assert!((probability(&odd, 1) - 0.731).abs() < 1e-3);
        assert_eq!(probability(&[f32::INFINITY, 0.0], 0), 1.0);
        assert_eq!(probability(&[f32::NEG_INFINITY; 3], 0), 1.0);
    }
}
