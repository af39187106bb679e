//! From logits to a token.
//!
//! ```text
//! logits ─ bias ─ penalties ─ top-k ─ typical ─ top-p ─ min-p ─ temperature ─ Distribution ─ draw(u) ─ token
//! ```
//!
//! Order, arithmetic and random numbers are llama.cpp's: where the logits agree, a seed gives the same text.
//! [`distribution`] is a pure function of configuration, logits and history. [`Sampler`] adds a history, the seed's
//! numbers, and buffers that are kept. Its choice depends on the seed, the scores and the history alone: the n-th token
//! after what was given has the n-th number. So a draft may choose and be taken back, and nothing changes.

mod candidates;
mod chain;
mod config;
mod distribution;
mod logprobs;
pub mod rng;
mod stream;

pub use chain::{Chain, distribution};
pub use config::SamplerConfig;
pub use distribution::Distribution;
pub use logprobs::top_logprobs;

use self::stream::{Stream, random_seed};
use crate::{
    Result,
    scores::{Scores, Want},
};

/// Chooses tokens, and remembers which.
pub struct Sampler {
    config: SamplerConfig,
    seed: u32,
    numbers: Stream<f64>,
    history: Vec<u32>,
    /// So many tokens of the history were not chosen.
    given: usize,
    chain: Chain,
    distribution: Distribution,
    /// What the text is to be, by position, whatever the logits say.
    script: Vec<u32>,
}

impl Sampler {
    /// A sampler without a history. An error names the setting that is out of its range.
    pub fn new(config: SamplerConfig) -> Result<Self> {
        config.validate()?;
        let seed = config.seed.unwrap_or_else(random_seed);
        Ok(Self {
            config,
            seed,
            numbers: Stream::doubles(seed),
            history: Vec::new(),
            given: 0,
            chain: Chain::default(),
            distribution: Distribution::default(),
            script: Vec::new(),
        })
    }

    /// The seed in use, drawn at random where none was given; with it a run can be repeated.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// The settings.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// What of a row's logits [`Sampler::choose`] depends on.
    pub fn want(&self) -> Want {
        self.config.want()
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

    /// Begins a text with tokens that are given. The seed's first number is for the token after them.
    pub fn begin(&mut self, prompt: &[u32]) {
        self.history.clear();
        self.history.extend_from_slice(prompt);
        self.given = prompt.len();
    }

    /// Chooses the next token, and leaves the history as it is: [`Sampler::accept`] adds to it.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        self.choose(Scores::All(logits))
    }

    /// [`Sampler::sample`] from what [`Sampler::want`] asks for: the same token.
    pub fn choose(&mut self, scores: Scores) -> u32 {
        if let Some(token) = self.next_of_script() {
            return token;
        }
        if self.config.is_greedy() {
            return self.chain.greedy(&self.config, scores, &self.history);
        }
        self.chain.distribution(&self.config, scores, &self.history, &mut self.distribution);
        let place = self.history.len() - self.given;
        self.distribution.draw(self.numbers.at(place))
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

    /// A token joins the text, chosen or drafted.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Forgets all but the first `len` tokens of the history.
    pub fn truncate(&mut self, len: usize) {
        self.history.truncate(len);
        self.given = self.given.min(len);
    }

    /// The tokens of the text so far.
    pub fn history(&self) -> &[u32] {
        &self.history
    }
}
