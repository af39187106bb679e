//! From logits to a token.
//!
//! ```text
//! logits ─ bias ─ penalties ─ top-k ─ typical ─ top-p ─ min-p ─ temperature ─ Distribution ─ draw(u) ─ token
//! ```
//!
//! The order is llama.cpp's. [`distribution`] is a pure function of configuration, logits and history, so a
//! speculative accept rule can ask for the p and the q of any position with that position's own history.
//! [`Sampler`] adds what a plain generation needs: a history, a random stream, and buffers that are kept.

mod chain;
mod config;
mod distribution;
mod logprobs;
pub mod rng;

pub use chain::{Chain, distribution};
pub use config::SamplerConfig;
pub use distribution::Distribution;
pub use logprobs::top_logprobs;

use self::rng::Rng;
use crate::{Result, scores::Scores};

/// Chooses tokens, and remembers which.
pub struct Sampler {
    config: SamplerConfig,
    seed: u64,
    rng: Rng,
    history: Vec<u32>,
    chain: Chain,
    distribution: Distribution,
    /// What the text is to be, by position, whatever the logits say.
    script: Vec<u32>,
}

impl Sampler {
    /// A sampler without a history. An error names the setting that is out of its range.
    pub fn new(config: SamplerConfig) -> Result<Self> {
        config.validate()?;
        let seed = config.seed.unwrap_or_else(rng::entropy_seed);
        let (history, chain, distribution) = (Vec::new(), Chain::default(), Distribution::default());
        Ok(Self { config, seed, rng: Rng::new(seed), history, chain, distribution, script: Vec::new() })
    }

    /// The seed in use, drawn at random where none was given; with it a run can be repeated.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The settings.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// From now on the n-th token of the history is followed by the one behind it in `script`, as far as that goes: for
    /// measuring what a model would take for a text that is known.
    #[doc(hidden)]
    pub fn follow(&mut self, script: Vec<u32>) {
        self.script = script;
    }

    fn next_of_script(&self) -> Option<u32> {
        self.script.get(self.history.len()).copied()
    }

    /// Chooses the next token, and leaves the history as it is: [`Sampler::accept`] adds to it.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        self.choose(Scores::All(logits))
    }

    /// [`Sampler::sample`] from what [`SamplerConfig::want`] asks for: the same token.
    pub fn choose(&mut self, scores: Scores) -> u32 {
        if let Some(token) = self.next_of_script() {
            return token;
        }
        if self.config.is_greedy() {
            return self.chain.greedy(&self.config, scores, &self.history);
        }
        self.chain.distribution(&self.config, scores, &self.history, &mut self.distribution);
        self.distribution.draw(self.rng.next_f64())
    }

    /// What [`Sampler::choose`] would draw from.
    pub fn distribution(&mut self, scores: Scores) -> Distribution {
        if let Some(token) = self.next_of_script() {
            return Distribution::one_hot(token);
        }
        let mut result = Distribution::default();
        self.chain.distribution(&self.config, scores, &self.history, &mut result);
        result
    }

    /// A token joins the text, whether sampled or of the prompt: penalties look at it from now on.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Forgets all but the first `len` tokens of the history.
    pub fn truncate(&mut self, len: usize) {
        self.history.truncate(len);
    }

    /// The tokens that were accepted so far.
    pub fn history(&self) -> &[u32] {
        &self.history
    }

    /// The random stream, for callers that draw by themselves.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}
