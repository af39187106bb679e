//! From logits to a distribution: bias, then the stages in the order of the settings.

use super::{
    Distribution, Mirostat, SamplerConfig, Stage,
    candidates::{Candidates, log2},
    dry::Repetitions,
};
use crate::scores::Scores;

/// The processed distribution of one position whose text so far is `history`. It does not depend on earlier choices or random
/// numbers: mirostat is at its beginning, and XTC only removes tokens if it always does.
///
/// NaN and impossible (-inf) tokens get no probability, and +inf tokens share all of it. Where nothing is possible, the choice of
/// [`greedy`](crate::scores::greedy) is certain.
///
/// # Panics
/// If `logits` is empty.
pub fn distribution(config: &SamplerConfig, logits: &[f32], history: &[u32]) -> Distribution {
    let mut result = Distribution::default();
    Chain::default().distribution(config, Scores::All(logits), history, &mut result);
    result
}

/// What a choice depends on besides text and logits.
pub(super) struct Turn {
    /// The surprise that mirostat allows, in bits.
    pub mu: f32,
    /// XTC's random number.
    pub chance: f32,
    /// Whether it was used.
    pub chance_taken: bool,
}

impl Turn {
    pub fn first(config: &SamplerConfig) -> Self {
        Turn { mu: 2.0 * config.mirostat_tau, chance: 1.0, chance_taken: false }
    }

    /// The surprise that mirostat allows after a token with that probability.
    pub fn mu_after(&self, config: &SamplerConfig, p: f32) -> f32 {
        self.mu - config.mirostat_eta * (-log2(p) - config.mirostat_tau)
    }
}

/// The stages' buffers, which are reused from call to call.
#[derive(Default)]
pub struct Chain {
    candidates: Candidates,
    window: Vec<u32>,
    repetitions: Repetitions,
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
        self.run(config, scores, history, &mut Turn::first(config), result);
    }

    pub(super) fn run(
        &mut self,
        config: &SamplerConfig,
        scores: Scores,
        history: &[u32],
        turn: &mut Turn,
        result: &mut Distribution,
    ) {
        if config.is_greedy() {
            return result.set_one_hot(self.greedy(config, scores, history));
        }
        let mut stages = config.active().peekable();
        if config.logit_bias.is_empty() && stages.next_if_eq(&Stage::TopK).is_some() {
            self.candidates.fill_top(scores, config.top_k);
        } else {
            self.fill(config, scores);
        }
        for stage in stages {
            self.stage(stage, config, history, turn);
        }
        if let Some(version) = config.mirostat {
            self.candidates.temperature(config.temp);
            match version {
                Mirostat::One => self.candidates.mirostat_one(turn.mu, scores.count()),
                Mirostat::Two => self.candidates.mirostat_two(turn.mu),
            }
        }
        result.set(self.candidates.weights());
        if result.is_empty() {
            result.set_one_hot(scores.greedy());
        }
    }

    /// The highest logit after bias and penalties.
    pub fn greedy(&mut self, config: &SamplerConfig, scores: Scores, history: &[u32]) -> u32 {
        let mut changes = config.active().take_while(|stage| stage.changes_logits()).peekable();
        if config.logit_bias.is_empty() && changes.peek().is_none() {
            return scores.greedy();
        }
        self.fill(config, scores);
        for stage in changes {
            self.stage(stage, config, history, &mut Turn::first(config));
        }
        self.candidates.best().unwrap_or_else(|| scores.greedy())
    }

    /// All tokens, with bias.
    fn fill(&mut self, config: &SamplerConfig, scores: Scores) {
        self.candidates.fill(scores);
        for &(id, bias) in &config.logit_bias {
            self.candidates.change(id, |logit| logit + bias);
        }
        self.candidates.changed();
    }

    fn stage(&mut self, stage: Stage, config: &SamplerConfig, history: &[u32], turn: &mut Turn) {
        let Self { candidates, window, repetitions } = self;
        match stage {
            Stage::Penalties => {
                window.clear();
                window.extend_from_slice(&history[history.len().saturating_sub(config.repeat_last_n)..]);
                penalize(candidates, config, window);
            }
            Stage::Dry => {
                for (token, penalty) in repetitions.penalties(&config.dry, history) {
                    candidates.change(token, |logit| logit - penalty);
                }
                candidates.changed();
            }
            Stage::TopNSigma => candidates.top_n_sigma(config.top_n_sigma),
            Stage::TopK => candidates.top_k(config.top_k),
            Stage::TypicalP => candidates.typical(config.typical_p),
            Stage::TopP => candidates.top_p(config.top_p),
            Stage::MinP => candidates.min_p(config.min_p),
            Stage::Xtc => candidates.xtc(config.xtc_threshold, || {
                turn.chance_taken = true;
                turn.chance <= config.xtc_probability
            }),
            Stage::Temperature if config.dynatemp_range > 0.0 => {
                let (range, exponent) = (config.dynatemp_range, config.dynatemp_exponent);
                candidates.dynamic_temperature(config.temp, range, exponent);
            }
            Stage::Temperature => candidates.temperature(config.temp),
        }
    }
}

/// Applies the three penalties to the tokens of `window`, which is reordered.
fn penalize(candidates: &mut Candidates, config: &SamplerConfig, window: &mut [u32]) {
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
    candidates.changed();
}
