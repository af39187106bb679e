//! Speculative decoding: the model drafts for itself and checks the draft in one pass.
//!
//! ```text
//! text ─ proposers ─ offers ─ Policy ─ draft (sequence 1, a fork: no copy) ─ verify (sequence 0, k + 1 rows)
//!   └──────────────────────── accepted + 1 tokens ──────────────────────────── accept ┘
//! ```
//!
//! The output is that of [`generate`](crate::generate::generate): bit for bit when greedy, because a row's logits are
//! the same bits in any batch; by distribution when sampling, because of the rule in [`accept`](fn@accept); and with
//! [`Speculation::repeatable`] again token for token. Nothing is evaluated twice by the full model: the next round
//! starts from the verified cells. A draft needs a free cell for each of its tokens, and gets by with fewer tokens
//! where there are fewer cells. On a GPU that holds the whole model a greedy round whose length is said beforehand
//! ([`Policy::length`]) is one submission: the draft's steps feed each other and the verification there.
//!
//! The parts are public. The loop by hand, for a greedy text drafted by the first six layers:
//!
//! ```
//! use spec_run::{
//!     Batch, Context, ContextConfig, Model, embedded,
//!     sampler::{Distribution, rng::Rng},
//!     scores::greedy,
//!     speculation::{DRAFT, MaskProposer, Proposal, TARGET, accept},
//! };
//!
//! let model = std::sync::Arc::new(Model::load(std::sync::Arc::new(embedded::open()?))?);
//! let exit = MaskProposer::exit(model.n_layer(), 6);
//! let mut context = Context::new(model, &ContextConfig::default())?;
//! let mut text = vec![1, 413, 441, 261, 386];
//! context.decode(&Batch::prompt(&text, 0, TARGET))?;
//! text.push(greedy(context.logits(0)));
//! while text.len() < 60 {
//!     // All but the last token is in the cache.
//!     let evaluated = text.len() as u32 - 1;
//!     context.fork(TARGET, DRAFT);
//!     let (mut draft, mut last) = (Vec::new(), text[text.len() - 1]);
//!     for pos in evaluated..evaluated + 3 {
//!         context.decode(&Batch::prompt(&[last], pos, DRAFT).with_layers(exit.layers().clone()))?;
//!         last = greedy(context.logits(0));
//!         draft.push(Proposal { token: last, q: None });
//!     }
//!     context.remove(DRAFT);
//!     let mut batch = Batch::new();
//!     let rows = text.last().copied().into_iter().chain(draft.iter().map(|proposal| proposal.token));
//!     (evaluated..).zip(rows).for_each(|(pos, token)| batch.push(token, pos, TARGET, true));
//!     context.decode(&batch)?;
//!     let p = |row| Distribution::one_hot(greedy(context.logits(row)));
//!     let outcome = accept(&draft, p, &mut Rng::new(0));
//!     text.extend(draft[..outcome.accepted].iter().map(|proposal| proposal.token));
//!     text.push(outcome.next);
//!     context.truncate(TARGET, text.len() - 1)?;
//! }
//! # let mut plain = vec![1, 413, 441, 261, 386];
//! # context.remove(TARGET);
//! # context.decode(&Batch::prompt(&plain, 0, TARGET))?;
//! # while plain.len() < text.len() {
//! #     plain.push(greedy(context.logits(0)));
//! #     context.decode(&Batch::prompt(&plain[plain.len() - 1..], plain.len() as u32 - 1, TARGET))?;
//! # }
//! # assert_eq!(text, plain);
//! # Ok::<(), spec_run::Error>(())
//! ```

pub(crate) mod accept;
pub(crate) mod acceptance;
pub mod candidates;
pub(crate) mod controller;
pub(crate) mod costs;
mod draws;
pub mod learned;
mod plain_steps;
pub(crate) mod policy;
pub(crate) mod proposer;
mod report;
mod round;
pub(crate) mod trial;
mod verify;

use std::{ops::ControlFlow, time::Instant};

pub use accept::{Proposal, Verdict, accept};
pub use controller::{Controller, Memory};
pub use costs::Costs;
pub use policy::{
    Drafted, Fixed, Offer, Policy, Prefix, Ready, Round, RoundChoice, SourceInfo, SourceKind, Speedup,
};
pub use proposer::{Draft, ExitsProposer, MaskProposer, NgramProposer, Proposer, Supply};
pub use report::Report;

use self::{draws::Draws, proposer::Made, trial::Choices};
use crate::{
    Batch, Context, Result, Sampler, Tokenizer,
    batch::SeqId,
    generate::{Generation, Request, Stop, make_room},
    sampler::{Distribution, top_logprobs},
    scores::{Scores, Want},
};

/// The sequence of the text.
pub const TARGET: SeqId = 0;
/// The sequence of a draft; empty between rounds, as are a few dozen after it.
pub const DRAFT: SeqId = 1;

/// What drafts and who decides.
pub struct Speculation<'a> {
    /// What can draft.
    pub proposers: &'a mut [Box<dyn Proposer>],
    /// Decides on each round.
    pub policy: &'a mut dyn Policy,
    /// A sampled text depends on the seed alone, not on what was drafted, at the price of a few more rejected drafts.
    pub repeatable: bool,
}

/// A token of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub id: u32,
    /// The source that had drafted it.
    pub drafted_by: Option<usize>,
}

/// As [`generate`](crate::generate::generate), faster: evaluates the prompt on sequence 0 and goes on from there in
/// rounds. `on_token` sees each token once it is certain and may end the run.
pub fn speculate(
    context: &mut Context,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    request: &Request,
    speculation: &mut Speculation,
    on_token: impl FnMut(Token) -> Result<ControlFlow<()>>,
) -> Result<(Generation, Report)> {
    request.check(context)?;
    let ends = |id| tokenizer.is_eog(id) && !request.ignore_eos;
    let sources: Vec<_> = speculation.proposers.iter().map(|p| p.info(context)).collect();
    speculation.policy.start(&sources);
    context.remove(TARGET);
    let started = Instant::now();
    // Which one to try may change as the text grows.
    let tries = |s: usize| speculation.policy.wants_trial(s, *trial::PLACES.start());
    let mut untried: Vec<usize> = (0..sources.len()).collect();
    untried.retain(|&s| speculation.proposers[s].mask().is_some());
    if !untried.iter().any(|&s| tries(s)) {
        untried.clear();
    }
    // Rows whose logits are wanted: for the first token, and for trials.
    let known = if untried.is_empty() { 1 } else { request.prompt.len().min(*trial::PLACES.end()) };
    let mut batch = Batch::prompt(request.prompt, 0, TARGET);
    batch.rows.iter_mut().rev().take(known).for_each(|row| row.logits = true);
    let want = request.want(sampler.config());
    context.decode_for(&batch, want)?;
    let mut choices = Choices::default();
    (0..known - 1).for_each(|i| choices.add(context.scores(i)));
    request.prompt.iter().for_each(|&token| sampler.accept(token));
    let mut run = Run {
        row: known - 1,
        choices,
        untried,
        want,
        draws: Draws::new(speculation.repeatable, sampler),
        text: Text {
            request,
            ends: &ends,
            on_token,
            out: Generation {
                tokens: Vec::new(),
                logprobs: Vec::new(),
                prefill_seconds: started.elapsed().as_secs_f64(),
                decode_seconds: 0.0,
                steps: 0,
                stop: Stop::MaxTokens,
            },
            callback_seconds: 0.0,
        },
        report: Report::new(sources),
        made: Made::default(),
        context,
        sampler,
        speculation,
    };
    let started = Instant::now();
    run.rounds()?;
    let Run { text: Text { mut out, .. }, mut report, .. } = run;
    out.decode_seconds = started.elapsed().as_secs_f64();
    report.finish(speculation.policy);
    Ok((out, report))
}

struct Run<'r, 'p, F> {
    context: &'r mut Context,
    sampler: &'r mut Sampler,
    speculation: &'r mut Speculation<'p>,
    draws: Draws,
    text: Text<'r, F>,
    report: Report,
    made: Made,
    /// Of the last pass, the row after the text's last token.
    row: usize,
    /// Sources that the policy wants to see tried, and what to compare them with.
    untried: Vec<usize>,
    choices: Choices,
    /// Of the full model's rows.
    want: Want,
}

/// A draft in `made`.
struct Drafting {
    source: Option<usize>,
    seconds: f64,
    /// Seconds of the full model's pass, if it has been made as well.
    verified: Option<f64>,
}

/// The text as it grows, and what ends it.
struct Text<'r, F> {
    request: &'r Request<'r>,
    ends: &'r dyn Fn(u32) -> bool,
    on_token: F,
    out: Generation,
    /// Spent in `on_token`, which is the caller's time.
    callback_seconds: f64,
}

impl<F: FnMut(Token) -> Result<ControlFlow<()>>> Text<'_, F> {
    /// How many more tokens may come; `None` without a limit.
    fn left(&self) -> Option<usize> {
        Some(self.request.max_tokens?.saturating_sub(self.out.tokens.len()))
    }

    /// A token that is certain, with what it was chosen from.
    fn add(&mut self, token: Token, scores: Scores, sampler: &mut Sampler) -> Result<ControlFlow<Stop>> {
        if (self.ends)(token.id) {
            return Ok(ControlFlow::Break(Stop::EndOfText));
        }
        if let (1.., Scores::All(logits)) = (self.request.logprobs, scores) {
            self.out.logprobs.push(top_logprobs(logits, self.request.logprobs));
        }
        sampler.accept(token.id);
        self.out.tokens.push(token.id);
        let started = Instant::now();
        let flow = (self.on_token)(token)?;
        self.callback_seconds += started.elapsed().as_secs_f64();
        Ok(match flow {
            ControlFlow::Break(()) => ControlFlow::Break(Stop::Interrupted),
            ControlFlow::Continue(()) if self.left() == Some(0) => ControlFlow::Break(Stop::MaxTokens),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        })
    }
}

impl<F: FnMut(Token) -> Result<ControlFlow<()>>> Run<'_, '_, F> {
    fn rounds(&mut self) -> Result<()> {
        if self.text.left() == Some(0) {
            return Ok(());
        }
        // The first token comes from the prompt's logits.
        let mut flow = self.judge(None)?.2;
        self.row = 0;
        loop {
            if let ControlFlow::Break(stop) = flow {
                self.text.out.stop = stop;
                return Ok(());
            }
            if self.context.kv().free_cells() == 0 && !make_room(self.context, self.text.request)? {
                self.text.out.stop = Stop::ContextFull;
                return Ok(());
            }
            self.trial()?;
            flow = self.round()?;
        }
    }

    /// Tries one of the sources that are still to be tried, if there is enough text by now and the policy has not
    /// seen enough.
    fn trial(&mut self) -> Result<()> {
        if self.text.out.tokens.len() > trial::LATEST {
            self.untried.clear();
        }
        let Some(choices) = self.choices.last() else { return Ok(()) };
        let policy = &mut *self.speculation.policy;
        let Some(next) = self.untried.iter().position(|&s| policy.wants_trial(s, choices.len())) else {
            return Ok(());
        };
        let source = self.untried.remove(next);
        let Some(mask) = self.speculation.proposers[source].mask() else { return Ok(()) };
        let started = Instant::now();
        // All of the text but its last token is evaluated.
        let text = self.sampler.history();
        let tried = trial::trial(self.context, &text[..text.len() - 1], mask, choices)?;
        let seconds = started.elapsed().as_secs_f64();
        policy.tried(source, &tried.unwrap_or_default(), seconds);
        self.report.trial_seconds += seconds;
        Ok(())
    }

    /// Drafts, verifies, accepts. Ends with the text's sequence holding all of the text but its last token.
    fn round(&mut self) -> Result<ControlFlow<Stop>> {
        let callbacks = self.text.callback_seconds;
        let started = Instant::now();
        let before = self.context.spent();
        let evaluated = self.context.kv().len(TARGET);
        let Drafting { source, seconds: draft_seconds, verified } = self.draft()?;
        let drafted = self.context.spent();
        let (verify_seconds, from_layer) = match verified {
            Some(seconds) => (seconds, 0),
            None => self.verify(source)?,
        };
        self.report.spent(drafted.since(before), self.context.spent().since(drafted));
        let (outcome, end, flow) = self.judge(source)?;
        // As plain decoding leaves it: all of the text but its last token, or all of it before an end-of-text token.
        self.context.truncate(TARGET, evaluated + 1 + end)?;
        self.text.out.steps += end + 1;
        let total = started.elapsed().as_secs_f64() - (self.text.callback_seconds - callbacks);
        let round = Round {
            source,
            drafted: &self.made.drafted,
            accepted: outcome.accepted,
            from_layer,
            draft_seconds,
            verify_seconds,
            other_seconds: (total - draft_seconds - verify_seconds).max(0.0),
        };
        self.speculation.policy.record(&round);
        self.report.record(&round, outcome.next, &self.made);
        Ok(flow)
    }

    /// The full model's pass over the last token and what was drafted; gives its seconds and the layer that it began at.
    fn verify(&mut self, source: Option<usize>) -> Result<(f64, usize)> {
        let started = Instant::now();
        let last = *self.text.out.tokens.last().expect("the first token came from the prompt");
        let Made { proposals, kept, .. } = &mut self.made;
        let fits = kept.fits(proposals.len(), self.context.model().plan.dims.dim);
        let resumes = fits && source.is_some_and(|s| self.speculation.policy.resumes(s, proposals.len()));
        let from_layer = if resumes { kept.layer } else { 0 };
        if !resumes {
            self.context.remove(DRAFT);
        }
        verify::verify(self.context, last, proposals, resumes.then_some(kept), self.want)?;
        Ok((started.elapsed().as_secs_f64(), from_layer))
    }

    /// Has the policy's choice drafted into `made`.
    fn draft(&mut self) -> Result<Drafting> {
        self.made.clear();
        self.row = 0;
        let room = self.context.kv().room_to_draft();
        let wanted = self.text.left().map_or(usize::MAX, |left| left - 1);
        let mut offers = Vec::with_capacity(self.speculation.proposers.len());
        let started = Instant::now();
        for (source, proposer) in self.speculation.proposers.iter_mut().enumerate() {
            let (most, ready) = match proposer.supply(self.sampler.history()) {
                Supply::Nothing => continue,
                Supply::Any => (usize::MAX, None),
                Supply::Found(ready) => (ready.tokens, Some(ready)),
            };
            match most.min(wanted).min(room) {
                0 => continue,
                most => offers.push(Offer { source, most, ready }),
            }
        }
        let (source, most) = match self.speculation.policy.choose(&offers) {
            RoundChoice::Draft { source, most } if most > 0 && offers.iter().any(|o| o.source == source) => {
                (source, most.min(room).min(wanted))
            }
            _ => {
                let seconds = started.elapsed().as_secs_f64();
                return Ok(Drafting { source: None, seconds, verified: None });
            }
        };
        if let Some(whole) = self.whole_round(source, most)? {
            return Ok(whole);
        }
        let text_len = self.sampler.history().len();
        let policy = &*self.speculation.policy;
        let keeps = self.report.sources[source].0.prefix.is_some() && policy.resumes(source, most);
        let mut draft = Draft {
            context: self.context,
            sampler: self.sampler,
            draws: &mut self.draws,
            ends: self.text.ends,
            draft_more: &|so_far| policy.draft_more(source, so_far),
            most,
            keeps,
            made: &mut self.made,
        };
        let result = self.speculation.proposers[source].draft(&mut draft);
        self.sampler.truncate(text_len);
        if result.is_err() || self.made.kept.layer == 0 {
            self.context.remove(DRAFT);
        }
        result?;
        self.made.trim(most, self.text.ends);
        if self.made.cut && most == room {
            self.report.shortened += 1;
        }
        let source = (!self.made.proposals.is_empty()).then_some(source);
        Ok(Drafting { source, seconds: started.elapsed().as_secs_f64(), verified: None })
    }

    /// Accepts what it can of `made`, by the logits of the last pass, and adds it to the text. Says also which of
    /// these tokens was the last to be looked at.
    fn judge(&mut self, source: Option<usize>) -> Result<(Verdict, usize, ControlFlow<Stop>)> {
        let outcome = self.accept();
        let drafted = self.made.proposals[..outcome.accepted].iter();
        let drafted = drafted.map(|proposal| Token { id: proposal.token, drafted_by: source });
        let tokens = drafted.chain([Token { id: outcome.next, drafted_by: None }]);
        for (place, token) in tokens.enumerate() {
            self.draws.settle(self.sampler);
            let scores = self.context.scores(self.row + place);
            if !self.untried.is_empty() {
                self.choices.add(scores);
            }
            let flow = self.text.add(token, scores, self.sampler)?;
            if flow.is_break() {
                return Ok((outcome, place, flow));
            }
        }
        Ok((outcome, outcome.accepted, ControlFlow::Continue(())))
    }

    fn accept(&mut self) -> Verdict {
        let Run { context, sampler, draws, made, row, .. } = self;
        let text_len = sampler.history().len();
        let mut rng = sampler.rng().clone();
        let p = |place: usize| -> Distribution {
            if place > 0 {
                sampler.accept(made.proposals[place - 1].token);
            }
            draws.target(sampler, context.scores(*row + place), place)
        };
        let outcome = accept(&made.proposals, p, &mut rng);
        sampler.truncate(text_len);
        *sampler.rng() = rng;
        outcome
    }
}
