//! How often drafted tokens are accepted, for forecasts.

use std::fmt;

use super::{HighBits, forecast::Origin};
use crate::{RunLayers, quant::GgmlType};

/// Tokens beyond have the last chance again.
const MOST: usize = 16;

/// The chance of each drafted token to be accepted if those before it are. Tokens after the last one have its chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acceptance {
    chances: [f64; MOST],
    count: usize,
    origin: Origin,
}

impl Acceptance {
    /// At least one chance; those beyond the sixteenth are left out.
    pub fn new(chances: &[f64], origin: Origin) -> Self {
        assert!(
            !chances.is_empty() && chances.iter().all(|chance| (0.0..=1.0).contains(chance)),
            "{chances:?}"
        );
        let mut all = [0.0; MOST];
        let count = chances.len().min(MOST);
        all[..count].copy_from_slice(&chances[..count]);
        Acceptance { chances: all, count, origin }
    }

    /// The chances that are known.
    pub fn chances(&self) -> &[f64] {
        &self.chances[..self.count]
    }

    /// Where they come from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Tokens that a round gives with so many drafted ones.
    pub fn tokens(&self, drafted: usize) -> f64 {
        let chance = |place: usize| self.chances[place.min(self.count - 1)];
        let survivals = (0..drafted).scan(1.0, |survival, place| {
            *survival *= chance(place);
            Some(*survival)
        });
        1.0 + survivals.sum::<f64>()
    }
}

impl fmt::Display for Acceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent: Vec<String> =
            self.chances().iter().map(|chance| format!("{:.0}", 100.0 * chance)).collect();
        write!(f, "{} % of drafted tokens standing ({})", percent.join(", "), self.origin.name())
    }
}

/// What was measured on a model that people trained, whose matrices are mostly of one of these types.
struct Evidence {
    types: &'static [GgmlType],
    high: HighBits,
    chances: &'static [f64],
}

const QWEN: Origin = Origin::MeasuredOn("Qwen2.5-Coder-1.5B");
const FOUR_BITS: &[GgmlType] = &[GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q4_K];

/// All layers by the high bits alone, at temperature 0; of how many drafts the first token was accepted, the first two, and so on.
/// Q4_K_M: 84, 63, 50 and 39 %, six prompts, 2026-11-26. Q8_0, made of the same file: 93.9, 87.2, 85.1, 80.9, 80.9, 72.3, 67.4, 65.2, 60.9,
/// 54.3, 52.2 and 48.9 %, three prompts and 49 drafts of 16, 2026-11-28. The others: six prompts, drafts of six, 2026-11-29. Q5_K_S 98.5, 93.9, 92.4,
/// 92.4, 89.4 and 87.9 %, Q6_K 95.5, 92.4, 87.9, 84.8, 83.3 and 83.3 %; with two bits Q4_K_M 81.1, 65.1, 51.9, 37.7, 30.2 and 27.4 %, Q5_K_S 81.0, 62.9, 53.3,
/// 45.7, 35.2 and 33.3 %, Q6_K 75.4, 60.5, 44.7, 38.6, 34.2 and 22.8 %, Q8_0 78.3, 57.4, 47.8, 37.4, 30.4 and 20.9 %. Files made of Q4_K_M have noise of half
/// of its step in these: else their weights have 16 values, which docs/log/drafting.md is about.
const EVIDENCE: &[Evidence] = &[
    Evidence { types: FOUR_BITS, high: HighBits::Most, chances: &[0.84, 0.75, 0.79, 0.78] },
    Evidence {
        types: &[GgmlType::Q5_K],
        high: HighBits::Most,
        chances: &[0.985, 0.954, 0.984, 1.0, 0.967, 0.983],
    },
    Evidence {
        types: &[GgmlType::Q6_K],
        high: HighBits::Most,
        chances: &[0.955, 0.968, 0.951, 0.966, 0.982, 1.0],
    },
    Evidence {
        types: &[GgmlType::Q8_0],
        high: HighBits::Most,
        chances: &[0.939, 0.929, 0.976, 0.951, 1.0, 0.894, 0.932, 0.967, 0.934, 0.892, 0.961, 0.937],
    },
    Evidence { types: FOUR_BITS, high: HighBits::Two, chances: &[0.811, 0.802, 0.797, 0.727, 0.8, 0.906] },
    Evidence {
        types: &[GgmlType::Q5_K],
        high: HighBits::Two,
        chances: &[0.81, 0.776, 0.848, 0.857, 0.771, 0.946],
    },
    Evidence {
        types: &[GgmlType::Q6_K],
        high: HighBits::Two,
        chances: &[0.754, 0.802, 0.739, 0.863, 0.886, 0.667],
    },
    Evidence {
        types: &[GgmlType::Q8_0],
        high: HighBits::Two,
        chances: &[0.783, 0.733, 0.833, 0.782, 0.814, 0.686],
    },
];

/// A small head that was fitted for 1.6 minutes drafts Qwen2.5-Coder-1.5B's tokens: of chains on topics that it had not seen,
/// 43.2, 19.5, 9.8 and 4.4 % had their first one to four tokens right. Temperature 0, 2026-11-27.
pub fn of_fitted_head() -> Acceptance {
    Acceptance::new(&[0.432, 0.451, 0.503, 0.449], Origin::MeasuredOn("Qwen2.5-Coder-1.5B"))
}

/// An EAGLE-3 head of Llama 3.3 70B gives 4.81 tokens a round with seven drafted at temperature 0, the mean of MT-bench, HumanEval
/// and GSM8K, as the card of nebius/EAGLE3-Llama-3.3-70B-Instruct says: that is this chance for each token.
pub fn of_eagle() -> Acceptance {
    Acceptance::new(&[0.847], Origin::Published("Llama-3.3-70B, not run here"))
}

/// What is known of drafts under a mask that reads the high bits of all layers, whose matrices are mostly of a type.
pub fn of_high_bits(mask: &RunLayers, n_layer: usize, ty: GgmlType, high: HighBits) -> Option<Acceptance> {
    let all =
        (0..n_layer).fold(RunLayers::all(n_layer), |mask, layer| mask.coarse_attn(layer).coarse_mlp(layer));
    let of_type = |evidence: &&Evidence| evidence.high == high && evidence.types.contains(&ty);
    let known = EVIDENCE.iter().find(of_type).filter(|_| *mask == all)?;
    Some(Acceptance::new(known.chances, QWEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_chance_holds_for_all_that_follow() {
        let acceptance = Acceptance::new(&[0.8, 0.5], Origin::Given);
        let by_hand = [1.0, 1.8, 2.2, 2.4, 2.5];
        for (drafted, tokens) in by_hand.into_iter().enumerate() {
            assert!(
                (acceptance.tokens(drafted) - tokens).abs() < 1e-12,
                "{drafted}: {}",
                acceptance.tokens(drafted)
            );
        }
        assert_eq!(acceptance.to_string(), "80, 50 % of drafted tokens standing (given)");
    }

    #[test]
    fn heads_have_the_chains_that_were_reported() {
        let fitted = of_fitted_head();
        let survivals = (1..=4).map(|n| fitted.tokens(n) - fitted.tokens(n - 1));
        for (survival, seen) in survivals.zip([0.432, 0.195, 0.098, 0.044]) {
            assert!((survival - seen).abs() < 0.001, "{survival} {seen}");
        }
        assert!((of_eagle().tokens(7) - 4.81).abs() < 0.01, "{}", of_eagle().tokens(7));
    }

    /// The chains are those that were measured.
    #[test]
    fn evidence_gives_the_chains_that_were_seen() {
        let mask = (0..3).fold(RunLayers::all(3), |mask, layer| mask.coarse_attn(layer).coarse_mlp(layer));
        let eight_bits =
            &[0.939, 0.872, 0.851, 0.809, 0.809, 0.723, 0.674, 0.652, 0.609, 0.543, 0.522, 0.489];
        let seen: [(GgmlType, HighBits, &[f64]); 8] = [
            (GgmlType::Q4_K, HighBits::Most, &[0.84, 0.63, 0.50, 0.39]),
            (GgmlType::Q5_K, HighBits::Most, &[0.985, 0.939, 0.924, 0.924, 0.894, 0.879]),
            (GgmlType::Q6_K, HighBits::Most, &[0.955, 0.924, 0.879, 0.848, 0.833, 0.833]),
            (GgmlType::Q8_0, HighBits::Most, eight_bits),
            (GgmlType::Q4_K, HighBits::Two, &[0.811, 0.651, 0.519, 0.377, 0.302, 0.274]),
            (GgmlType::Q5_K, HighBits::Two, &[0.810, 0.629, 0.533, 0.457, 0.352, 0.333]),
            (GgmlType::Q6_K, HighBits::Two, &[0.754, 0.605, 0.447, 0.386, 0.342, 0.228]),
            (GgmlType::Q8_0, HighBits::Two, &[0.783, 0.574, 0.478, 0.374, 0.304, 0.209]),
        ];
        for (ty, high, chain) in seen {
            let known = of_high_bits(&mask, 3, ty, high).expect("it was measured");
            assert_eq!(known.chances().len(), chain.len());
            let mut survival = 1.0;
            for (chance, seen) in known.chances().iter().zip(chain) {
                survival *= chance;
                assert!((survival - seen).abs() < 0.006, "{ty} {high:?}: {survival} {seen}");
            }
            assert!(known.to_string().ends_with("(measured on Qwen2.5-Coder-1.5B)"), "{known}");
        }
        assert!(of_high_bits(&mask.clone().skip_mlp(1), 3, GgmlType::Q4_K, HighBits::Most).is_none());
        assert!(of_high_bits(&mask, 3, GgmlType::Q5_0, HighBits::Most).is_none());
    }
}
