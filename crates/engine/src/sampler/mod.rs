//! From logits to a token.
//!
//! ```text
//! logits ─ bias ─ penalties ─ DRY ─ top-n-sigma ─ top-k ─ typical ─ top-p ─ min-p ─ XTC ─ temperature
//!   └ draw(u) from a Distribution ─ token
//! ```
//!
//! Order, arithmetic and random numbers are llama.cpp's: where the logits agree, a seed gives the same text.
//! [`distribution`] is a pure function of configuration, logits and history. [`Sampler`] adds a history, the seed's numbers, and
//! buffers. Its choice depends on the seed, the scores and the history alone: the n-th token after the prompt uses the n-th
//! number, and what XTC and mirostat remember is kept for each position. So tokens of a draft may be chosen and taken back
//! without changing anything.

mod candidates;
mod chain;
mod config;
mod distribution;
mod dry;
mod logprobs;
mod numbers;
mod stage;
mod stream;

pub use chain::{Chain, distribution};
pub use config::{Mirostat, SamplerConfig};
pub use distribution::Distribution;
pub use dry::{Breakers, Dry};
pub use logprobs::top_logprobs;
pub use numbers::{Allowed, NUMBERS, Number};

pub use stage::Stage;
pub use stream::random_seed;

use self::{chain::Turn, stream::Stream};
use crate::{
    Result,
    scores::{Scores, Want},
};

/// Restricts which tokens may come next, depending on the text alone.
pub trait Rule: Send {
    /// Sets the logits of tokens that may not follow to -inf. `text` is what was chosen so far, without the prompt. At least one token
    /// stays possible.
    fn mask(&mut self, text: &[u32], logits: &mut [f32]);

    /// Why the last call of [`Rule::mask`] failed, if it did. The tokens that it left possible then mean nothing, and the text cannot
    /// go on.
    fn fault(&self) -> Option<&str> {
        None
    }
}

/// What a choice depends on besides seed, history and scores. It follows from the choices before.
#[derive(Clone, Copy)]
struct Memory {
    /// Random numbers used so far.
    numbers: usize,
    chances: usize,
    mu: f32,
}

impl Memory {
    fn after(self, config: &SamplerConfig, turn: &Turn, from: &Distribution, token: u32) -> Self {
        let mirostat = config.mirostat.is_some();
        Memory {
            // Mirostat uses no random number where there is only one token.
            numbers: self.numbers + usize::from(!mirostat || from.len() > 1),
            chances: self.chances + usize::from(turn.chance_taken),
            mu: if mirostat { turn.mu_after(config, from.p(token) as f32) } else { self.mu },
        }
    }
}

/// Chooses tokens, and remembers which.
pub struct Sampler {
    config: SamplerConfig,
    seed: u32,
    numbers: Stream<f64>,
    /// XTC's own.
    chances: Stream<f32>,
    /// By position of the text, for settings that remember more than the text.
    memories: Vec<Memory>,
    history: Vec<u32>,
    /// How many tokens of the history are the prompt's.
    given: usize,
    rule: Option<Box<dyn Rule>>,
    masked: Vec<f32>,
    chain: Chain,
    distribution: Distribution,
    /// The tokens to choose, by position, regardless of the logits.
    script: Vec<u32>,
}

impl Sampler {
    /// A sampler without a history. An error names the setting that is out of its range.
    pub fn new(config: SamplerConfig) -> Result<Self> {
        config.validate()?;
        let seed = config.seed.unwrap_or_else(random_seed);
        let mu = Turn::first(&config).mu;
        Ok(Self {
            config,
            seed,
            numbers: Stream::doubles(seed),
            chances: Stream::floats(seed),
            memories: vec![Memory { numbers: 0, chances: 0, mu }],
            history: Vec::new(),
            given: 0,
            rule: None,
            masked: Vec::new(),
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

    /// The scores of a row that [`Sampler::choose`] depends on.
    pub fn want(&self) -> Want {
        if self.rule.is_some() { Want::Logits } else { self.config.want() }
    }

    /// Whether a rule restricts it.
    pub fn is_bound(&self) -> bool {
        self.rule.is_some()
    }

    /// Sets a rule: tokens that it forbids are not chosen. [`Sampler::want`] is then all logits.
    pub fn bind(&mut self, rule: Box<dyn Rule>) {
        self.rule = Some(rule);
    }

    /// Why the rule failed when a token was chosen last, if it did; that token then means nothing.
    pub fn fault(&self) -> Option<&str> {
        self.rule.as_ref()?.fault()
    }

    /// From now on the tokens of `script` are chosen, as far as it goes: to measure how long a model takes for a known text.
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
        self.memories.truncate(1);
    }

    /// Chooses the next token, and leaves the history as it is: [`Sampler::accept`] adds to it.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        self.choose(Scores::All(logits))
    }

    /// The same token as [`Sampler::sample`], from the scores that [`Sampler::want`] asks for.
    pub fn choose(&mut self, scores: Scores) -> u32 {
        if let Some(token) = self.next_of_script() {
            return token;
        }
        let (memory, mut turn) = self.turn();
        let scores = ruled(&mut self.rule, &mut self.masked, &self.history[self.given..], scores);
        if self.config.is_greedy() {
            return self.chain.greedy(&self.config, scores, &self.history);
        }
        self.chain.run(&self.config, scores, &self.history, &mut turn, &mut self.distribution);
        let token = self.distribution.draw(self.numbers.at(memory.numbers));
        if self.config.remembers() {
            let place = self.history.len() - self.given;
            self.memories.truncate(place + 1);
            self.memories.push(memory.after(&self.config, &turn, &self.distribution, token));
        }
        token
    }

    /// What is remembered for the next token of the text.
    fn turn(&mut self) -> (Memory, Turn) {
        let place = self.history.len() - self.given;
        if !self.config.remembers() {
            return (Memory { numbers: place, chances: 0, mu: 0.0 }, Turn::first(&self.config));
        }
        // A draft may have tokens that were not chosen here; then a guess is good enough.
        while self.memories.len() <= place {
            let last = self.memories[self.memories.len() - 1];
            self.memories.push(Memory { numbers: last.numbers + 1, chances: last.chances + 1, ..last });
        }
        let memory = self.memories[place];
        (memory, Turn { mu: memory.mu, chance: self.chances.at(memory.chances), chance_taken: false })
    }

    /// The distribution that [`Sampler::choose`] would draw from.
    pub fn distribution(&mut self, scores: Scores) -> Distribution {
        if let Some(token) = self.next_of_script() {
            return Distribution::one_hot(token);
        }
        let mut result = Distribution::default();
        let mut turn = self.turn().1;
        let scores = ruled(&mut self.rule, &mut self.masked, &self.history[self.given..], scores);
        self.chain.run(&self.config, scores, &self.history, &mut turn, &mut result);
        result
    }

    /// Adds a token to the text, chosen or drafted.
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

/// The scores that a rule leaves.
fn ruled<'s>(
    rule: &mut Option<Box<dyn Rule>>,
    masked: &'s mut Vec<f32>,
    text: &[u32],
    scores: Scores<'s>,
) -> Scores<'s> {
    match (rule, scores) {
        (Some(rule), Scores::All(logits)) => {
            masked.clear();
            masked.extend_from_slice(logits);
            rule.mask(text, masked);
            Scores::All(masked)
        }
        (None, scores) | (Some(_), scores @ Scores::Top(_)) => scores,
    }
}
