//! The stages, in llama.cpp's order: bias, penalties, top-k, typical, top-p, min-p, temperature.

use super::{Distribution, SamplerConfig, candidates::Candidates};
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

/// The stages' buffers. Nothing else is kept from call to call.
#[derive(Default)]
pub struct Chain {
    candidates: Candidates,
    window: Vec<u32>,
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
        match config.top_k {
            k @ 1.. if !config.adjusts() => self.candidates.fill_top(scores, k),
            k => {
                self.adjust(config, scores, history);
                self.candidates.top_k(k);
            }
        }
        let Self { candidates, .. } = self;
        if config.typical_p < 1.0 {
            candidates.typical(config.typical_p);
        }
        if config.top_p < 1.0 {
            candidates.top_p(config.top_p);
        }
        if config.min_p > 0.0 {
            candidates.min_p(config.min_p);
        }
        candidates.temperature(config.temp);
        result.set(candidates.weights());
        if result.is_empty() {
            result.set_one_hot(scores.greedy());
        }
    }

    /// The highest logit after bias and penalties.
    pub fn greedy(&mut self, config: &SamplerConfig, scores: Scores, history: &[u32]) -> u32 {
        if !config.adjusts() {
            return scores.greedy();
        }
        self.adjust(config, scores, history);
        self.candidates.best().unwrap_or_else(|| scores.greedy())
    }

    /// Bias and penalties.
    fn adjust(&mut self, config: &SamplerConfig, scores: Scores, history: &[u32]) {
        let Self { candidates, window } = self;
        candidates.fill(scores);
        for &(id, bias) in &config.logit_bias {
            candidates.change(id, |logit| logit + bias);
        }
        if config.penalizes() {
            window.clear();
            window.extend_from_slice(&history[history.len().saturating_sub(config.repeat_last_n)..]);
            window.sort_unstable();
            for same in window.chunk_by(|a, b| a == b) {
                candidates.change(same[0], |logit| {
                    // Towards "less likely" on either side of zero.
                    let scaled = match logit <= 0.0 {
                        true => logit * config.repeat_penalty,
                        false => logit / config.repeat_penalty,
                    };
                    scaled - (same.len() as f32 * config.frequency_penalty + config.presence_penalty)
                });
            }
        }
        candidates.changed();
    }
}
