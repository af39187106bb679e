//! Makes several texts at once in one context.
//!
//! ```text
//! Job ─ Engine: waiting ─ running (a Lane each) ─ drafts, chosen together ─ one pass ─ verdicts ─ listeners
//!                  ↑ preempted            ended ─ kept as prefixes ─ forked by the next prompt
//! ```
//!
//! A lane (`Lane`) is one text with its sampler, its proposers and the policy that decides about its drafts. It says which rows
//! it needs and takes their results. Only the functions here that hold the context evaluate batches.
//!
//! **A text does not depend on other texts.** The bits of a row depend on its sequence alone, and the random number of a token on
//! its position. So a text does not depend on other jobs, on what was in the cache, on chunks, on drafts, or on whether it had
//! to give up its cells and was evaluated again.

pub mod alone;
mod chain;
mod decision;
mod drafting;
mod event;
mod guided;
mod job;
mod prefixes;
mod request;
mod room;
mod round;
mod saved;
mod session;
mod slots;
mod status;
mod tapped;
mod text;
mod trial;
mod unseen;
mod verify;
mod worker;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use event::{Event, Listener, OnEvent};
pub use job::{Ended, Job, JobId, TextRule};
pub use request::{Generation, Request, Stop};
pub use saved::{SavedCells, SavedText};
pub use session::Session;
pub use slots::SlotStatus;
pub use status::{Done, Status};
pub use text::TokenScore;
pub use text::{Lane, Maker, TextSpec, TextState};
pub use worker::{Handle, Worker};

use self::{
    job::Running,
    prefixes::Prefixes,
    round::{Passes, Terms},
    text::Prompt,
};
use crate::{
    Batch, Context, ContextConfig, Error, Model, Result, Sampler, Tokenizer,
    batch::SeqId,
    lora::Scales,
    speculation::{
        Controller, Costs, Memory, Policy, Proposer, Report, candidates::Drafters, costs::Together, learned,
    },
};

/// How an engine shares its context.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The most texts at once.
    pub texts: usize,
    /// The most tokens of one text; `None`: as many as the context holds.
    pub tokens_of_text: Option<usize>,
    /// The most rows of prompts in one pass. It limits how long other texts wait for a pass.
    pub chunk: usize,
    /// Whether texts that have ended stay in the cache while there is room, for prompts that begin alike.
    pub keeps_prefixes: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig { texts: 4, tokens_of_text: None, chunk: 256, keeps_prefixes: true }
    }
}

/// Cells that have to be free for each text to grow before another text begins.
const HEADROOM: usize = 64;

/// Makes the proposers of a text.
pub type MakeProposers = Box<dyn Fn() -> Vec<Box<dyn Proposer>> + Send>;

/// Makes several texts at once in one context.
pub struct Engine {
    context: Context,
    tokenizer: Arc<Tokenizer>,
    config: EngineConfig,
    make_proposers: MakeProposers,
    /// What new texts know of costs and sources.
    controller: Controller,
    running: Vec<Running>,
    /// Jobs that wait, in the order in which they came.
    waiting: Vec<Running>,
    prefixes: Prefixes,
    /// The costs of passes with several texts.
    together: Together,
    /// Rounds since the last one with several texts.
    alone: usize,
    done: Done,
    next_seq: SeqId,
    next_job: JobId,
}

/// Texts often begin together. After a round with several texts, a text that is alone is drafted only after so many more rounds: a
/// round with a draft takes long, and a text that comes in the meantime waits for its end.
const COMPANY_MAY_COME: usize = 4;

impl Engine {
    /// Opens an engine for a model, with a context of its own and the draft sources that suit the model.
    pub fn open(model: Arc<Model>, context: &ContextConfig, config: EngineConfig) -> Result<Self> {
        let tokenizer = Arc::new(Tokenizer::from_gguf(&model.gguf)?);
        let mut context = Context::new(model, context)?;
        let drafters = Drafters::all(&context);
        let make: MakeProposers = Box::new(move || drafters.proposers());
        let controller = learned::prepare_for(&mut context, &make(), None)?;
        Ok(Engine::new(context, tokenizer, config).drafting(make, controller))
    }

    /// An engine that does not draft.
    pub fn new(mut context: Context, tokenizer: Arc<Tokenizer>, config: EngineConfig) -> Self {
        context.remove_all();
        Engine {
            context,
            tokenizer,
            prefixes: Prefixes::new(4 * config.texts),
            config,
            make_proposers: Box::new(Vec::new),
            controller: Controller::new(Costs::guess(&[]), Memory::new()),
            running: Vec::new(),
            waiting: Vec::new(),
            together: Together::default(),
            alone: COMPANY_MAY_COME,
            done: Done::default(),
            next_seq: 0,
            next_job: 0,
        }
    }

    /// The same engine with drafts by these proposers. `controller` has to be prepared for them.
    pub fn drafting(self, make_proposers: MakeProposers, mut controller: Controller) -> Self {
        let sources: Vec<_> = make_proposers().iter().map(|p| p.info(&self.context)).collect();
        controller.start(&sources);
        Engine { make_proposers, controller, ..self }
    }

    /// The same engine with the counts of an engine before it.
    pub fn counting_from(self, done: Done, next_job: JobId) -> Self {
        Engine { done, next_job, ..self }
    }

    /// The number of the next job.
    pub fn next_job(&self) -> JobId {
        self.next_job
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// What was learnt of the sources so far.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// What it is doing, and what it has done.
    pub fn status(&self) -> Status {
        Status {
            running: self.running.len(),
            waiting: self.waiting.len(),
            free_cells: self.context.kv().free_cells(),
            cells: self.context.kv().capacity(),
            slots: self.slots(),
            done: self.done.clone(),
        }
    }

    /// The most tokens of one text.
    pub fn tokens_of_text(&self) -> usize {
        let all = self.context.kv().capacity();
        self.config.tokens_of_text.map_or(all, |most| most.min(all))
    }

    /// Adds a job, which begins when there is room for it. [`Engine::step`] calls the listener.
    pub fn submit(&mut self, job: Job, listener: Listener) -> Result<JobId> {
        self.submit_with_rule(job, TextRule::default(), listener)
    }

    /// The same for a text with a rule.
    pub fn submit_with_rule(&mut self, job: Job, bound: TextRule, listener: Listener) -> Result<JobId> {
        self.check(&job)?;
        let scales = self.scales(&job)?;
        let mut sampler = Sampler::new(job.sampler.clone())?;
        let drafts = job.drafts && job.mask.is_none();
        let mut proposers = if drafts { (self.make_proposers)() } else { Vec::new() };
        // After the others, which the controller knows by their index.
        proposers.extend(bound.forced.filter(|_| drafts));
        let sources: Vec<_> = proposers.iter().map(|p| p.info(&self.context)).collect();
        let policy = self.controller.for_text(&sources);
        if let Some(rule) = bound.rule {
            sampler.bind(rule);
        }
        let seq = self.sequences();
        let mut spec = TextSpec::of(job.request, &self.tokenizer, seq, seq + 1);
        spec.maker = Maker { mask: job.mask, scales };
        spec.most_cells = self.tokens_of_text();
        let mut text =
            TextState::new(spec, &sampler, Report::new(sources)).drafted_by(&mut proposers, &self.context);
        if let Some(from) = job.scores_from {
            text.score_prompt(from);
        }
        let id = self.next_job;
        self.next_job += 1;
        self.waiting.push(Running {
            id,
            text,
            sampler,
            proposers,
            policy,
            listener,
            cached: 0,
            reuses: job.reuses,
            wanted: job.slot,
            slot: 0,
            began: Instant::now(),
        });
        Ok(id)
    }

    /// Ends a job and tells its listener. Nothing happens if it has ended already.
    pub fn cancel(&mut self, id: JobId) {
        let all = self.running.iter_mut().chain(&mut self.waiting);
        if let Some(job) = all.into_iter().find(|job| job.id == id) {
            job.text.stop = Some(Stop::Interrupted);
        }
    }

    /// Runs one round. False if there was nothing to do.
    pub fn step(&mut self) -> bool {
        self.retire();
        self.admit();
        if self.running.is_empty() {
            return !self.waiting.is_empty();
        }
        self.make_cells();
        if let Err(error) = self.round() {
            // It is not known which text's rows failed.
            let failed = std::mem::take(&mut self.running);
            for job in failed {
                self.context.remove(job.text.spec.seq);
                self.context.remove(job.text.spec.draft);
                job.end(Err(Error::Device(error.to_string())));
            }
        }
        self.retire();
        true
    }

    /// Runs until nothing is left to do.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// The scales of adapters for a job's text.
    fn scales(&self, job: &Job) -> Result<Option<Scales>> {
        let Some(scales) = &job.loras else { return Ok(self.context.default_scales().cloned()) };
        let count = self.context.loras().len();
        match scales.iter().all(|scale| scale.is_finite()) && scales.len() == count {
            true => Ok(Scales::new(scales)),
            false => Err(Error::Input(format!(
                "the scales {scales:?} of adapters: there must be a number for each of the {count} in `loras`"
            ))),
        }
    }

    fn check(&self, job: &Job) -> Result<()> {
        let (tokens, most) = (job.request.prompt.len(), self.tokens_of_text());
        job.request.check_some()?;
        if tokens > most {
            return Err(Error::TooLong { tokens, most });
        }
        job.sampler.check_vocabulary(self.context.model().n_vocab())?;
        job.slot.map_or(Ok(()), |slot| self.check_slot(slot))?;
        // Whatever else a context could refuse.
        let mut batch = Batch::prompt(&job.request.prompt, 0, SeqId::MAX);
        batch.run_layers = job.mask.clone();
        self.context.check_rows(&batch)
    }

    /// Two sequence ids that are not used.
    fn sequences(&mut self) -> SeqId {
        const NAMES: SeqId = 1 << 30;
        loop {
            let seq = self.next_seq;
            self.next_seq = (seq + 2) % NAMES;
            let taken = |job: &Running| job.text.spec.seq == seq;
            let jobs = self.running.iter().chain(&self.waiting);
            if self.context.kv().is_empty(seq) && !jobs.into_iter().any(taken) {
                return seq;
            }
        }
    }

    /// Removes texts that have ended. Their cells stay in the cache as prefixes.
    fn retire(&mut self) {
        let ended = |job: &mut Running| job.text.has_ended();
        for job in self.waiting.extract_if(.., ended) {
            job.end(Ok(()));
        }
        for mut job in self.running.extract_if(.., ended) {
            let TextSpec { seq, draft, ref maker, .. } = job.text.spec;
            self.context.remove(draft);
            let cells = self.context.kv().len(seq);
            match job.evaluated(cells).filter(|_| self.config.keeps_prefixes) {
                Some(tokens) => {
                    let dropped = self.prefixes.keep(seq, maker.clone(), tokens.to_vec(), job.slot);
                    dropped.into_iter().for_each(|seq| self.context.remove(seq));
                }
                None => self.context.remove(seq),
            }
            self.controller.learn_of(&job.policy);
            self.done.add_drafts(&job.text.report);
            let fault = job.text.fault.take();
            job.end(fault.map_or(Ok(()), |why| Err(Error::Input(why))));
        }
    }

    /// Begins waiting jobs, as far as there is room for them.
    fn admit(&mut self) {
        while self.running.len() < self.config.texts
            && let Some(next) = self.waiting.iter().position(|job| self.has_slot(job))
        {
            let mut job = self.waiting.remove(next);
            let source = self.fork_prefix(&mut job);
            let needed = job.text.prompt.as_ref().map_or(0, |p| p.tokens.len() - p.done) + 1;
            // A text that begins in the last free cells would soon have to give them up again.
            let needed = needed + HEADROOM.min(self.context.kv().capacity() / 8) * (self.running.len() + 1);
            let texts = self.running.len() + 1;
            while !self.has_room(needed, texts) && self.evict() {}
            if !self.has_room(needed, texts) && !self.running.is_empty() {
                self.context.remove(job.text.spec.seq);
                if let Some(prompt) = &mut job.text.prompt {
                    prompt.done = 0;
                }
                return self.waiting.insert(next, job);
            }
            // A text that had to give up its cells may find all its tokens in another text's cells.
            job.text.prompt = job.text.prompt.take().filter(|prompt| prompt.done < prompt.tokens.len());
            let TextSpec { seq, maker, .. } = &job.text.spec;
            if source.is_none() {
                self.context
                    .adapt(*seq, maker.scales.clone())
                    .expect("it is empty, and its scales are checked");
            }
            job.slot = self.slot_for(job.wanted, source);
            if job.text.first_token.is_none() {
                let cached = job.text.prompt.as_ref().map_or(0, |p| p.done);
                job.cached = cached;
                if (job.listener)(Event::Begun { cached, slot: job.slot }).is_break() {
                    job.text.stop = Some(Stop::Interrupted);
                }
            }
            self.running.push(job);
        }
    }

    /// Forks the longest prefix of the prompt that is in the cache, and returns its slot. Tokens before one whose score is wanted are
    /// always evaluated.
    fn fork_prefix(&mut self, job: &mut Running) -> Option<usize> {
        let prompt = job.text.prompt.as_mut()?;
        let may = |slot: usize| job.reuses && job.wanted.is_none_or(|wanted| slot == wanted);
        let TextSpec { seq, maker, .. } = &job.text.spec;
        let asked = prompt.tokens.len() - usize::from(prompt.asks);
        let most = prompt.scored.as_ref().map_or(asked, |scored| asked.min(scored.from - 1));
        let kv = self.context.kv();
        let others =
            self.running.iter().filter(|other| other.text.spec.maker == *maker).filter_map(|other| {
                let seq = other.text.spec.seq;
                Some((seq, other.evaluated(kv.len(seq)).filter(|_| may(other.slot))?))
            });
        let kept = self.prefixes.made_by(maker).filter(|kept| may(kept.slot));
        let kept = kept.map(|kept| (kept.seq, kept.tokens.as_slice()));
        let alike = |(seq, tokens): (SeqId, &[u32])| {
            let same = std::iter::zip(tokens, &prompt.tokens[..most]).take_while(|(a, b)| a == b).count();
            (seq, kv.restorable(seq, same))
        };
        let mut found: Vec<_> = kept.chain(others).map(alike).filter(|&(_, same)| same > 0).collect();
        found.sort_by_key(|&(_, same)| std::cmp::Reverse(same));
        let (from, same) = found.into_iter().next()?;
        self.context.fork(from, *seq);
        if self.context.truncate(*seq, same).is_err() {
            self.context.remove(*seq);
            return None;
        }
        prompt.done = same;
        self.prefixes.used(from)
    }

    /// Removes the prefix that was not used for the longest time.
    fn evict(&mut self) -> bool {
        let oldest = self.prefixes.pop_oldest();
        oldest.inspect(|&seq| self.context.remove(seq)).is_some()
    }

    /// Makes room for the rows and states of the next round: removes prefixes first, then the cells of the youngest text, which
    /// begins again when there is room.
    fn make_cells(&mut self) {
        loop {
            let needed: usize = self.running.iter().map(|job| self.rows_of(job)).sum();
            while !self.has_room(needed, self.running.len()) && self.evict() {}
            if self.has_room(needed, self.running.len()) {
                return;
            }
            let youngest = self.running.iter().rposition(|job| !job.text.shifted);
            match youngest.filter(|_| self.running.len() > 1) {
                Some(youngest) => self.preempt(youngest),
                None => return,
            }
        }
    }

    /// Whether there is room for so many more cells, and for the next states of so many texts.
    fn has_room(&self, cells: usize, texts: usize) -> bool {
        let kv = self.context.kv();
        kv.room() >= cells && kv.has_states_for(texts)
    }

    fn rows_of(&self, job: &Running) -> usize {
        match &job.text.prompt {
            Some(prompt) => (prompt.tokens.len() - prompt.done).min(self.config.chunk),
            None => 1,
        }
    }

    fn preempt(&mut self, which: usize) {
        let mut job = self.running.remove(which);
        self.context.remove(job.text.spec.seq);
        match &mut job.text.prompt {
            Some(prompt) => {
                prompt.done = 0;
                prompt.scored.iter_mut().for_each(|scored| scored.scores.clear());
            }
            None => {
                let text = job.sampler.history();
                let tokens = text[..text.len() - 1].to_vec();
                job.text.prompt = Some(Prompt { tokens, done: 0, asks: false, scored: None });
            }
        }
        self.waiting.insert(0, job);
    }

    fn round(&mut self) -> Result<()> {
        if !self.context.is_packed() {
            self.context.pack_more(Duration::MAX)?;
        }
        let is_alone = self.running.len() == 1;
        for job in self.running.iter_mut().filter(|job| job.text.is_going()) {
            job.text.make_room(&mut self.context, is_alone)?;
        }
        let (mut lanes, mut listeners): (Vec<_>, Vec<_>) =
            self.running.iter_mut().filter(|job| !job.text.has_ended()).map(Running::parts).unzip();
        let mut hear = |who: usize, event: Event| Ok(listeners[who](event));
        self.alone = if lanes.len() > 1 { 0 } else { self.alone.saturating_add(1) };
        let terms =
            Terms { chunk: self.config.chunk, drafts: lanes.len() > 1 || self.alone > COMPANY_MAY_COME };
        let Passes { passes, texts } =
            round::round(&mut self.context, &mut lanes, &terms, &mut self.together, &mut hear)?;
        self.done.passes += passes;
        self.done.texts += texts;
        let cells = self.running.iter().map(|job| self.context.kv().len(job.text.spec.seq));
        self.done.longest = cells.max().unwrap_or(0).max(self.done.longest);
        Ok(())
    }
}
