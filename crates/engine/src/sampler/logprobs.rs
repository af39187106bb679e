//! Log-probabilities of the model itself, before any sampler setting.

use super::candidates::{by_rank, select_top};
use crate::scores::log_sum_exp;

/// The `k` likeliest tokens with their log-probabilities, best first, among equals by id. Impossible tokens
/// are left out.
pub fn top_logprobs(logits: &[f32], k: usize) -> Vec<(u32, f32)> {
    if k == 0 {
        return Vec::new();
    }
    let mut best = Vec::new();
    select_top(logits, k, &mut best);
    best.sort_unstable_by(by_rank);
    let total = log_sum_exp(logits);
    if total == f64::INFINITY {
        let certain = logits.iter().filter(|&&l| l == f32::INFINITY).count();
        let share = -(certain as f64).ln();
        return best.iter().filter(|c| c.logit == f32::INFINITY).map(|c| (c.id, share as f32)).collect();
    }
    best.iter().map(|c| (c.id, (f64::from(c.logit) - total) as f32)).collect()
}
