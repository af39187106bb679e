//! What is asked of an engine, and what became of it.

use std::time::Instant;

use super::{Event, Generation, Lane, Listener, Request, TextState, TokenScore};
use crate::{
    RunLayers, Sampler,
    sampler::{Rule, SamplerConfig},
    speculation::{Controller, Proposer, Report},
};

/// Names a job of an engine.
pub type JobId = u64;

/// A text to be made by an engine, and how the engine is to go about it.
#[derive(Clone, Debug)]
pub struct Job {
    /// The text.
    pub request: Request,
    /// How tokens are chosen. Without a seed one is drawn, and said at the end.
    pub sampler: SamplerConfig,
    /// Say how likely each token of the prompt is, from this place on. The first of a text has nothing before it: 1 and 0 are
    /// the same.
    pub scores_from: Option<usize>,
    /// What of the model makes the text; `None`: all of it.
    pub mask: Option<RunLayers>,
    /// How much of each adapter the text has, in the order of the context's; `None`: what the context gives where nothing is said.
    pub loras: Option<Vec<f32>>,
    /// Whether the text may be drafted. It is the same either way.
    pub drafts: bool,
    /// Whether it may begin with texts that are in the cache. It is the same either way.
    pub reuses: bool,
    /// The slot where it is to be made, when that is free; it then begins with that slot's texts only.
    pub slot: Option<usize>,
}

impl Job {
    /// By the sampler's defaults and all of the model.
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

/// What a text keeps to.
#[derive(Default)]
pub struct TextRule {
    /// What may come next.
    pub rule: Option<Box<dyn Rule>>,
    /// Drafts what the rule leaves no choice about.
    pub forced: Option<Box<dyn Proposer>>,
}

/// What became of a job.
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
    /// Parts of it were dropped to make room.
    pub shifted: bool,
    /// With it the text can be had again.
    pub seed: u32,
}

/// A job with all that belongs to it.
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
    /// Where it is made, or was before it had to wait again.
    pub slot: usize,
    pub began: Instant,
}

impl Running {
    /// What a round needs of it, and who hears of it.
    pub fn parts(&mut self) -> (Lane<'_>, &mut Listener) {
        let Running { text, sampler, proposers, policy, listener, .. } = self;
        (Lane { text, sampler, proposers, policy }, listener)
    }

    /// The tokens that its cells hold, if so many are evaluated.
    pub fn evaluated(&self, cells: usize) -> Option<&[u32]> {
        if self.text.shifted {
            return None;
        }
        match &self.text.prompt {
            Some(prompt) => prompt.tokens.get(..prompt.done.min(cells)),
            None => self.sampler.history().get(..cells),
        }
    }

    /// Says how it ended.
    pub fn end(mut self, result: Result<(), String>) {
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
