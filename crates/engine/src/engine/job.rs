//! The jobs of an engine, and their results.

use std::time::Instant;

use super::{Event, Generation, Lane, Listener, Request, TextState, TokenScore};
use crate::{
    Result, RunLayers, Sampler,
    sampler::{Rule, SamplerConfig},
    speculation::{Controller, Proposer, Report},
};

/// Names a job of an engine.
pub type JobId = u64;

/// A text that an engine is to make, and how.
#[derive(Clone, Debug)]
pub struct Job {
    /// The text.
    pub request: Request,
    /// How tokens are chosen. Without a seed a random one is used, which the result reports.
    pub sampler: SamplerConfig,
    /// Report how likely each token of the prompt is, from this index on. The first token of a text has nothing before it, so 1 and
    /// 0 mean the same.
    pub scores_from: Option<usize>,
    /// Which layers make the text; `None`: all of them.
    pub mask: Option<RunLayers>,
    /// The scale of each adapter for the text, in the order of the context's; `None`: the context's defaults.
    pub loras: Option<Vec<f32>>,
    /// Whether the text may be drafted. It is the same either way.
    pub drafts: bool,
    /// Whether it may begin with texts that are in the cache. It is the same either way.
    pub reuses: bool,
    /// The slot where it is to be made, when that is free; it then begins with that slot's texts only.
    pub slot: Option<usize>,
}

impl Job {
    /// A job with the sampler's defaults and all of the model.
    pub fn new(request: Request) -> Self {
        Job {
            request,
            sampler: SamplerConfig::default(),
            scores_from: None,
            mask: None,
            loras: None,
            drafts: true,
            reuses: true,
            slot: None,
        }
    }
}

/// A rule that a text has to obey, as a grammar.
#[derive(Default)]
pub struct TextRule {
    /// Says which tokens are allowed next.
    pub rule: Option<Box<dyn Rule>>,
    /// Drafts tokens that are the only ones that the rule allows.
    pub forced: Option<Box<dyn Proposer>>,
}

/// The result of a job.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The text.
    pub generation: Generation,
    /// What drafting did.
    pub report: Report,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, in the cache before.
    pub cached: usize,
    /// How likely the prompt's tokens are, from where that was asked for.
    pub scored: Vec<TokenScore>,
    /// Whether parts of the text were dropped from the cache to make room.
    pub shifted: bool,
    /// The seed with which the text can be repeated.
    pub seed: u32,
}

/// A job with its state.
pub(super) struct Running {
    pub id: JobId,
    pub text: TextState,
    pub sampler: Sampler,
    pub proposers: Vec<Box<dyn Proposer>>,
    pub policy: Controller,
    pub listener: Listener,
    pub cached: usize,
    pub reuses: bool,
    /// The slot that was asked for.
    pub wanted: Option<usize>,
    /// The slot where it is made, or was made before it had to wait again.
    pub slot: usize,
    pub began: Instant,
}

impl Running {
    /// The lane for a round, and the listener.
    pub fn parts(&mut self) -> (Lane<'_>, &mut Listener) {
        let Running { text, sampler, proposers, policy, listener, .. } = self;
        (Lane { text, sampler, proposers, policy }, listener)
    }

    /// The tokens in its first `cells` cells, if so many are evaluated.
    pub fn evaluated(&self, cells: usize) -> Option<&[u32]> {
        if self.text.shifted {
            return None;
        }
        match &self.text.prompt {
            Some(prompt) => prompt.tokens.get(..prompt.done.min(cells)),
            None => self.sampler.history().get(..cells),
        }
    }

    /// Tells the listener how it ended.
    pub fn end(mut self, result: Result<()>) {
        let ended = result.map(|()| {
            let mut generation = self.text.out;
            let now = Instant::now();
            let first = self.text.first_token.unwrap_or(now);
            generation.prefill_seconds = first.duration_since(self.began).as_secs_f64();
            generation.decode_seconds = now.duration_since(first).as_secs_f64();
            if let Some(stop) = self.text.stop {
                generation.stop = stop;
            }
            let mut report = self.text.report;
            report.finish(&self.policy);
            Box::new(Ended {
                generation,
                report,
                prompt_tokens: self.text.spec.request.prompt.len(),
                cached: self.cached,
                scored: self.text.scored,
                shifted: self.text.shifted,
                seed: self.sampler.seed(),
            })
        });
        let _ = (self.listener)(Event::Ended(ended));
    }
}
