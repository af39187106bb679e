//! A mask that was found, as it stands in a file.

use serde_json::{Map, Value, json};

use super::{Member, PassCosts};
use crate::mask::skips::NamedMask;

impl Member {
    /// As it stands in a file of masks.
    pub fn named(&self, costs: &PassCosts) -> NamedMask {
        let proof = &self.proof;
        let (greedy, sampled) = (proof.greedy(costs), proof.sampled(costs));
        let mut mask = NamedMask::new(&self.name, self.candidate.mask());
        mask.agreement = Some(rounded(proof.agreement));
        mask.overlap = Some(rounded(proof.overlap.min(1.0)));
        mask.cost = Some(rounded(proof.cost));
        let predicted: Map<String, Value> = [
            ("speedup", json!(rounded(greedy.speedup))),
            ("draft_len", json!(greedy.draft_len)),
            ("positions", json!(proof.positions)),
            ("tok_s", json!(rounded(greedy.speedup / costs.step_seconds))),
            ("tokens_per_round", json!(rounded(proof.greedy_tokens[greedy.draft_len - 1]))),
            ("sampled_speedup", json!(rounded(sampled.speedup))),
            ("sampled_draft_len", json!(sampled.draft_len)),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect();
        mask.predicted = predicted;
        if let Some(m) = &self.measured {
            mask.measured = [
                ("speedup", json!(rounded(m.speedup))),
                ("quartiles", json!(m.quartiles.map(|ends| ends.map(rounded)))),
                ("predicted", json!(rounded(m.predicted))),
                ("tok_s", json!(rounded(m.tok_s))),
                ("acceptance", json!(rounded(m.acceptance))),
                ("tokens_per_round", json!(rounded(m.tokens_per_round))),
                ("tokens", json!(m.tokens)),
            ]
            .into_iter()
            .map(|(key, value)| (key.to_string(), value))
            .collect();
        }
        mask
    }
}

/// To what is known of it at best.
fn rounded(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}
