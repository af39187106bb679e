//! One text as it grows: its sequences in the cache, what was drafted for it, what ends it.

use std::{ops::ControlFlow, sync::Arc, time::Instant};

use super::{
    Event, Generation, OnEvent, Request, Stop, drafting::Drafting, tapped::Tapped, trial::Choices,
    unseen::Unseen, verify,
};
use crate::{
    Context, Result, RunLayers, Sampler, Tokenizer,
    batch::{Row, SeqId},
    lora::Scales,
    sampler::{Distribution, top_logprobs},
    scores::{Scores, Want, log_sum_exp},
    speculation::{
        Passes, Policy, Proposer, Report, Token, Verdict, accept,
        frequent::Frequent,
        proposer::{Made, confidence},
    },
};

/// Of each token of the text, so many that were likely in its place may be drafted by a head later on.
const SHOWN: usize = 16;

/// What makes a text. Those that are made alike have the same keys and values where they begin alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Maker {
    /// What of the model; `None`: all of it.
    pub mask: Option<RunLayers>,
    /// How much of each adapter; `None`: nothing of any.
    pub scales: Option<Scales>,
}

/// What a text is to be, and where.
pub struct TextSpec {
    pub request: Request,
    pub maker: Maker,
    /// The most tokens in the cache.
    pub most_cells: usize,
    /// The sequence of the text, and that of its drafts.
    pub seq: SeqId,
    pub draft: SeqId,
    /// Tokens that end it, ascending.
    pub ends: Arc<[u32]>,
}

impl TextSpec {
    /// By all of the model, in as many cells as there are.
    pub fn of(request: Request, tokenizer: &Tokenizer, seq: SeqId, draft: SeqId) -> Self {
        let ends = if request.ignore_eos { Arc::default() } else { tokenizer.ends() };
        TextSpec { request, maker: Maker::default(), most_cells: usize::MAX, seq, draft, ends }
    }

    pub fn is_end(&self, token: u32) -> bool {
        self.ends.binary_search(&token).is_ok()
    }
}

/// What is to be evaluated before a text goes on.
pub struct Prompt {
    pub tokens: Vec<u32>,
    /// So many are in the cache.
    pub done: usize,
    /// The next token comes from the scores of the last; else it is known already, and only the cache was lost.
    pub asks: bool,
    /// How likely each token is to be said, given those before it.
    pub scored: Option<Scored>,
}

impl Prompt {
    /// A text begins with these tokens.
    pub fn new(tokens: Vec<u32>) -> Self {
        Prompt { tokens, done: 0, asks: true, scored: None }
    }
}

/// How likely tokens of a prompt are.
pub struct Scored {
    /// The first of them; at least 1, for the first token of a text has nothing before it.
    pub from: usize,
    pub scores: Vec<TokenScore>,
}

/// How likely a token was in its place, and what else was.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest tokens in its place.
    pub likely: Vec<(u32, f32)>,
}

/// Rows of a prompt for one pass.
pub struct PromptRows {
    pub rows: Vec<Row>,
    /// Where in the prompt they begin.
    begin: usize,
    is_last: bool,
}

/// The state of one text.
pub struct TextState {
    pub spec: TextSpec,
    /// What of the prompt is not evaluated yet.
    pub prompt: Option<Prompt>,
    /// Tokens of the last round, and the cells that the text had before it.
    pub gained: usize,
    pub before: usize,
    /// Of the prompt's tokens but the first, if that was asked for.
    pub scored: Vec<TokenScore>,
    pub out: Generation,
    pub report: Report,
    pub made: Made,
    /// The draft in the making.
    pub drafting: Option<Drafting>,
    /// For the head that predicts one token more, where it may draft.
    pub unseen: Option<Unseen>,
    /// For a head that drafts from rows.
    pub tapped: Option<Tapped>,
    /// What drafts choose from, where they need not compute the whole head.
    pub frequent: Option<Frequent>,
    /// Of the last full pass's outputs, the one after the text's last token.
    pub row: usize,
    /// Its first tokens are no longer what the cache holds.
    pub shifted: bool,
    /// Why it ended.
    pub stop: Option<Stop>,
    /// Why it could not go on, where that is how it ended.
    pub fault: Option<String>,
    /// Sources that the policy wants to see tried, and what to compare them with.
    pub untried: Vec<usize>,
    pub choices: Choices,
    /// Of the full model's rows.
    pub want: Want,
    /// When its first token came.
    pub first_token: Option<Instant>,
    /// Spent in the listener, which is the caller's time.
    pub callback_seconds: f64,
}

impl TextState {
    pub fn new(spec: TextSpec, sampler: &Sampler, report: Report) -> Self {
        let want = if spec.request.logprobs > 0 { Want::Logits } else { sampler.want() };
        TextState {
            out: Generation {
                tokens: Vec::new(),
                logprobs: Vec::new(),
                end: None,
                prefill_seconds: 0.0,
                decode_seconds: 0.0,
                packing_seconds: 0.0,
                steps: 0,
                stop: Stop::MaxTokens,
            },
            stop: (spec.request.max_tokens == Some(0)).then_some(Stop::MaxTokens),
            fault: None,
            prompt: Some(Prompt::new(spec.request.prompt.clone())),
            gained: 0,
            before: 0,
            scored: Vec::new(),
            report,
            made: Made::default(),
            drafting: None,
            unseen: None,
            tapped: None,
            frequent: None,
            row: 0,
            shifted: false,
            untried: Vec::new(),
            choices: Choices::default(),
            want,
            first_token: None,
            callback_seconds: 0.0,
            spec,
        }
    }

    /// The same with these, which may draft.
    pub fn drafted_by(mut self, proposers: &mut [Box<dyn Proposer>], context: &Context) -> Self {
        let mtp = proposers.iter().any(|proposer| matches!(proposer.passes(), Some(Passes::Mtp)));
        self.unseen = mtp.then(Unseen::default);
        let n_layer = context.model().n_layer();
        // Rows for both do not leave one pass.
        let mut heads = proposers.iter_mut().enumerate().filter(|_| !mtp);
        if let Some((source, reader)) = heads.find_map(|(source, of)| Some((source, of.reader()?))) {
            self.tapped = Some(Tapped::of(source, reader.layers(n_layer), reader.reads_prompts()));
            if proposers[source].head().is_some() {
                self.want = self.want.and(Want::Top(SHOWN));
            }
        }
        self.frequent = Frequent::new(context, self.report.sources.iter().map(|(source, _)| source));
        self
    }

    /// Says how likely the prompt's tokens are, from this place on.
    pub fn score_prompt(&mut self, from: usize) {
        self.want = Want::Logits;
        if let Some(prompt) = &mut self.prompt {
            prompt.scored = Some(Scored { from: from.max(1), scores: Vec::new() });
        }
    }

    /// The layer behind which full passes keep rows, if they do.
    pub fn keeps(&self, context: &Context) -> Option<usize> {
        self.unseen.as_ref().map(|_| context.model().n_layer())
    }

    /// Keeps what the last pass left of these rows, of which the first was its row `first`.
    pub fn add_unseen(&mut self, rows: &[Row], context: &Context, first: usize) {
        if let Some(unseen) = &mut self.unseen {
            unseen.add(rows, context, first);
        }
    }

    /// The head that predicts one token more sees what was evaluated of the prompt.
    pub fn make_unseen(&mut self, context: &mut Context) -> Result<()> {
        let seq = self.spec.seq;
        self.unseen.as_mut().map_or(Ok(()), |unseen| unseen.make(context, seq))
    }

    /// How many more tokens may come; `None` without a limit.
    pub fn left(&self) -> Option<usize> {
        Some(self.spec.request.max_tokens?.saturating_sub(self.out.tokens.len()))
    }

    /// How many tokens may be drafted, for all that the text itself says.
    pub fn most_drafted(&self, context: &Context) -> usize {
        // Beside the last token of the text that it goes on from and the one that it gives.
        let room = self.spec.most_cells.saturating_sub(context.kv().len(self.spec.seq) + 2);
        self.left().map_or(room, |left| room.min(left - 1))
    }

    /// Whether it goes on from a last token: its prompt is evaluated, and it has not ended.
    pub fn is_going(&self) -> bool {
        self.stop.is_none() && self.prompt.is_none()
    }

    /// Whether nothing more is to be made of it. The prompt of a text that wants no tokens is evaluated all the same, unless nobody
    /// waits for it any more.
    pub fn has_ended(&self) -> bool {
        self.stop.is_some() && (self.prompt.is_none() || self.stop == Some(Stop::Interrupted))
    }

    /// The next rows of the prompt, at most so many; `None` if there are none.
    pub fn next_part(&self, most: usize) -> Option<PromptRows> {
        let prompt = self.prompt.as_ref()?;
        let begin = prompt.done;
        let end = prompt.tokens.len().min(begin + most);
        let is_last = end == prompt.tokens.len();
        let scored = |at: usize| prompt.scored.as_ref().is_some_and(|scored| at + 1 >= scored.from);
        let wanted = |at: usize| scored(at) || (prompt.asks && at + 1 == prompt.tokens.len());
        let row = |at: usize| Row {
            token: prompt.tokens[at],
            pos: at as u32,
            seq: self.spec.seq,
            logits: wanted(at),
        };
        (begin < end).then(|| PromptRows { rows: (begin..end).map(row).collect(), begin, is_last })
    }

    pub fn last(&self) -> u32 {
        *self.out.tokens.last().expect("the first token came from the prompt")
    }
}

/// A text with what it works with, for as long as a round takes.
pub struct Lane<'a> {
    pub text: &'a mut TextState,
    pub sampler: &'a mut Sampler,
    pub proposers: &'a mut [Box<dyn Proposer>],
    pub policy: &'a mut dyn Policy,
}

impl Lane<'_> {
    /// A token that is certain, with what it was chosen from.
    fn add(&mut self, token: Token, scores: Scores, who: usize, hear: OnEvent) -> Result<ControlFlow<Stop>> {
        let TextState { spec, out, first_token, callback_seconds, .. } = &mut *self.text;
        let Request { logprobs, logprobs_after_sampling, .. } = spec.request;
        let scored = match (logprobs, scores) {
            (1.., scores) if logprobs_after_sampling => {
                Some(left(&self.sampler.distribution(scores), token.id, logprobs))
            }
            (1.., Scores::All(logits)) => Some(score(logits, token.id, logprobs)),
            (0, _) | (_, Scores::Top(_)) => None,
        };
        if spec.is_end(token.id) {
            out.end = scored.map(|score| (token.id, score));
            return Ok(ControlFlow::Break(Stop::EndOfText));
        }
        out.logprobs.extend(scored);
        self.sampler.accept(token.id);
        out.tokens.push(token.id);
        let started = Instant::now();
        first_token.get_or_insert(started);
        let score = out.logprobs.last().cloned();
        let flow = hear(who, Event::Token { token, score })?;
        *callback_seconds += started.elapsed().as_secs_f64();
        Ok(match flow {
            ControlFlow::Break(()) => ControlFlow::Break(Stop::Interrupted),
            ControlFlow::Continue(()) if self.text.left() == Some(0) => ControlFlow::Break(Stop::MaxTokens),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        })
    }

    /// Rows of the prompt were evaluated.
    pub fn took_part(
        &mut self,
        context: &Context,
        part: &PromptRows,
        who: usize,
        hear: OnEvent,
    ) -> Result<()> {
        let tokens: Vec<u32> = part.rows.iter().map(|row| row.token).collect();
        self.show_rows(context, &tokens, part.begin as u32, |i| i);
        if !part.is_last {
            self.read_rows();
        }
        let Lane { text, sampler, .. } = self;
        let TextState { prompt, row, spec, stop, .. } = &mut **text;
        let Some(prompt) = prompt else { return Ok(()) };
        prompt.done += part.rows.len();
        if let Some(scored) = &mut prompt.scored {
            let end = part.begin + part.rows.len();
            let next = part.begin.max(scored.from - 1) + 1..prompt.tokens.len().min(end + 1);
            for (place, &token) in prompt.tokens.get(next).unwrap_or_default().iter().enumerate() {
                scored.scores.push(score(context.logits(*row + place), token, spec.request.logprobs));
            }
            let asked = part.rows.iter().filter(|row| row.logits).count();
            *row += asked.saturating_sub(1);
        }
        // What was evaluated before and is evaluated again is no event.
        if prompt.asks && hear(who, Event::Evaluated(prompt.done))?.is_break() {
            *stop = Some(Stop::Interrupted);
        }
        if !part.is_last {
            return Ok(());
        }
        let asks = prompt.asks;
        if asks {
            sampler.begin(&prompt.tokens);
        }
        if let Some(Prompt { scored: Some(scored), .. }) = text.prompt.take() {
            text.scored = scored.scores;
        }
        if asks && text.stop.is_none() {
            self.show_prompt();
            self.judge(context, None, who, hear)?;
        }
        Ok(())
    }

    /// Accepts what it can of what was drafted, by the scores of the last pass, and adds it to the text. Says also which
    /// of these tokens was the last to be looked at.
    pub fn judge(
        &mut self,
        context: &Context,
        source: Option<usize>,
        who: usize,
        hear: OnEvent,
    ) -> Result<(Verdict, usize)> {
        let (outcome, fault) = self.accept(context);
        for place in 0..=outcome.accepted {
            if let Some((at, why)) = &fault
                && *at == place
            {
                self.text.stop = Some(Stop::Interrupted);
                self.text.fault = Some(why.clone());
                return Ok((outcome, place));
            }
            let token = match self.text.made.proposals.get(place) {
                Some(_) if place < outcome.accepted => {
                    Token { id: self.text.made.accepted(place), drafted_by: source }
                }
                _ => Token { id: outcome.next, drafted_by: None },
            };
            let scores = context.scores(self.text.row + self.text.made.row_behind(place));
            if !self.text.untried.is_empty() {
                self.text.choices.add(scores);
            }
            if let Some(source) = self.text.tapped.as_ref().map(|tapped| tapped.source)
                && self.policy.may_draft(source)
                && let Some(head) = self.proposers[source].head()
            {
                head.add_tokens(&confidence::best_of(scores, SHOWN));
            }
            if let ControlFlow::Break(stop) = self.add(token, scores, who, hear)? {
                self.text.stop = Some(stop);
                return Ok((outcome, place));
            }
        }
        Ok((outcome, outcome.accepted))
    }

    /// The same after a round. The text's cells are then as plain decoding leaves them: all of the text but its last token, or
    /// all of it before an end-of-text token.
    pub fn conclude(
        &mut self,
        context: &mut Context,
        source: Option<usize>,
        who: usize,
        hear: OnEvent,
    ) -> Result<Verdict> {
        let last = self.text.last();
        let (outcome, end) = self.judge(context, source, who, hear)?;
        let seq = self.text.spec.seq;
        if let Some(other) = self.text.made.other.filter(|_| end > 0) {
            context.fork(verify::branch(other), seq);
        }
        (0..self.text.made.others.len()).for_each(|other| context.remove(verify::branch(other)));
        context.truncate(seq, self.text.before + 1 + end)?;
        let made = &self.text.made;
        let tokens: Vec<u32> =
            std::iter::once(last).chain((0..end).map(|place| made.accepted(place))).collect();
        let rows: Vec<usize> = (0..=end).map(|place| made.row_behind(place)).collect();
        self.show_rows(context, &tokens, context.kv().next_pos(seq) - tokens.len() as u32, |i| rows[i]);
        if let Some(unseen) = &mut self.text.unseen {
            unseen.cut(context.kv().next_pos(seq));
        }
        self.text.gained = end + 1;
        self.text.out.steps += end + 1;
        Ok(outcome)
    }

    /// Says also at which place it first could not be told what may follow, and why: a draft may go on behind it.
    fn accept(&mut self, context: &Context) -> (Verdict, Option<(usize, String)>) {
        let Lane { text, sampler, .. } = self;
        let TextState { made, row, .. } = &**text;
        let text_len = sampler.history().len();
        let mut fault = None;
        let choice = |place: usize| {
            if place > 0 {
                sampler.accept(made.proposals[place - 1]);
            }
            let token = sampler.choose(context.scores(*row + place));
            if fault.is_none() {
                fault = sampler.fault().map(|why| (place, why.to_owned()));
            }
            token
        };
        let mut outcome = accept(&made.proposals, choice);
        sampler.truncate(text_len);
        let other = made.others.iter().position(|&other| other == outcome.next);
        if let (Some(other), 0, None) = (other, outcome.accepted, &fault) {
            text.made.other = Some(other);
            sampler.accept(outcome.next);
            let next = sampler.choose(context.scores(text.row + text.made.row_behind(1)));
            fault = sampler.fault().map(|why| (1, why.to_owned()));
            outcome = Verdict { accepted: 1, next };
            sampler.truncate(text_len);
        }
        (outcome, fault)
    }
}

/// By what the model says.
fn score(logits: &[f32], token: u32, most: usize) -> TokenScore {
    let likely = top_logprobs(logits, most);
    let among = likely.iter().find(|(id, _)| *id == token).map(|(_, logprob)| *logprob);
    let by_itself = || (f64::from(logits[token as usize]) - log_sum_exp(logits)) as f32;
    TokenScore { logprob: among.unwrap_or_else(by_itself), likely }
}

/// By what the samplers left to choose from, which are all that are possible.
fn left(choices: &Distribution, token: u32, most: usize) -> TokenScore {
    let mut likely: Vec<(u32, f32)> = choices.iter().map(|(id, p)| (id, p.ln() as f32)).collect();
    likely.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    likely.truncate(most);
    TokenScore { logprob: choices.p(token).ln() as f32, likely }
}
