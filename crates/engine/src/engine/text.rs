//! The state of one text: its sequences in the cache, its draft, and why it ends.

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

/// For each token of the text, so many of the likeliest alternatives are shown to heads, which may draft them later on.
const SHOWN: usize = 16;

/// What a text is made with. Texts with the same maker have the same keys and values as far as their tokens are the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Maker {
    /// Which layers; `None`: all of them.
    pub mask: Option<RunLayers>,
    /// The scales of adapters; `None`: no adapter.
    pub scales: Option<Scales>,
}

/// The request of a text, and its sequences.
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
    /// With all of the model, and as many cells as there are.
    pub fn of(request: Request, tokenizer: &Tokenizer, seq: SeqId, draft: SeqId) -> Self {
        let ends = if request.ignore_eos { Arc::default() } else { tokenizer.ends() };
        TextSpec { request, maker: Maker::default(), most_cells: usize::MAX, seq, draft, ends }
    }

    pub fn is_end(&self, token: u32) -> bool {
        self.ends.binary_search(&token).is_ok()
    }
}

/// Tokens that have to be evaluated before a text goes on.
pub struct Prompt {
    pub tokens: Vec<u32>,
    /// So many are in the cache.
    pub done: usize,
    /// Whether the scores of the last one give the next token. Otherwise that is known already, and only the cache was lost.
    pub asks: bool,
    /// Reports how likely each token is after those before it.
    pub scored: Option<Scored>,
}

impl Prompt {
    /// For a text that begins with these tokens.
    pub fn new(tokens: Vec<u32>) -> Self {
        Prompt { tokens, done: 0, asks: true, scored: None }
    }
}

/// How likely tokens of a prompt are.
pub struct Scored {
    /// The index of the first of them; at least 1, because the first token of a text has nothing before it.
    pub from: usize,
    pub scores: Vec<TokenScore>,
}

/// How likely a token was at its position, and which others were likely.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest tokens at its position.
    pub likely: Vec<(u32, f32)>,
}

/// Rows of a prompt for one pass.
pub struct PromptRows {
    pub rows: Vec<Row>,
    /// The index in the prompt of the first.
    begin: usize,
    is_last: bool,
}

/// The state of one text.
pub struct TextState {
    pub spec: TextSpec,
    /// The prompt, if it is not evaluated yet.
    pub prompt: Option<Prompt>,
    /// Tokens of the last round, and the cells that the text had before it.
    pub gained: usize,
    pub before: usize,
    /// How likely the prompt's tokens are, without the first, if that was asked for.
    pub scored: Vec<TokenScore>,
    pub out: Generation,
    pub report: Report,
    pub made: Made,
    /// The draft that is being made.
    pub drafting: Option<Drafting>,
    /// For the head that predicts one token more, where it may draft.
    pub unseen: Option<Unseen>,
    /// For a head that drafts from rows.
    pub tapped: Option<Tapped>,
    /// The tokens that drafts choose from, where they need not compute all logits.
    pub frequent: Option<Frequent>,
    /// The index among the last full pass's outputs of the scores after the text's last token.
    pub row: usize,
    /// The cache no longer holds its first tokens.
    pub shifted: bool,
    /// Why it ended.
    pub stop: Option<Stop>,
    /// Why it could not go on, if it ended by that.
    pub fault: Option<String>,
    /// Sources that are still to be tried, and the choices to compare them with.
    pub untried: Vec<usize>,
    pub choices: Choices,
    /// The scores that are needed of the full model's rows.
    pub want: Want,
    /// When its first token came.
    pub first_token: Option<Instant>,
    /// Time spent in the listener, which does not count.
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

    /// The same text with proposers that may draft for it.
    pub fn drafted_by(mut self, proposers: &mut [Box<dyn Proposer>], context: &Context) -> Self {
        let mtp = proposers.iter().any(|proposer| matches!(proposer.passes(), Some(Passes::Mtp)));
        self.unseen = mtp.then(Unseen::default);
        let n_layer = context.model().n_layer();
        // One pass cannot leave rows for both kinds of heads.
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

    /// Reports how likely the prompt's tokens are, from this index on.
    pub fn score_prompt(&mut self, from: usize) {
        self.want = Want::Logits;
        if let Some(prompt) = &mut self.prompt {
            prompt.scored = Some(Scored { from: from.max(1), scores: Vec::new() });
        }
    }

    /// The layer after which full passes keep hidden rows, if they do.
    pub fn keeps(&self, context: &Context) -> Option<usize> {
        self.unseen.as_ref().map(|_| context.model().n_layer())
    }

    /// Keeps the hidden rows that the last pass left of these rows, of which the first was its row `first`.
    pub fn add_unseen(&mut self, rows: &[Row], context: &Context, first: usize) {
        if let Some(unseen) = &mut self.unseen {
            unseen.add(rows, context, first);
        }
    }

    /// Runs the head that predicts one token more on the rows that were evaluated of the prompt.
    pub fn make_unseen(&mut self, context: &mut Context) -> Result<()> {
        let seq = self.spec.seq;
        self.unseen.as_mut().map_or(Ok(()), |unseen| unseen.make(context, seq))
    }

    /// How many more tokens may come; `None` without a limit.
    pub fn left(&self) -> Option<usize> {
        Some(self.spec.request.max_tokens?.saturating_sub(self.out.tokens.len()))
    }

    /// How many tokens may be drafted within the text's own limits.
    pub fn most_drafted(&self, context: &Context) -> usize {
        // One cell is for the last token of the text, and one for the token that follows the draft.
        let room = self.spec.most_cells.saturating_sub(context.kv().len(self.spec.seq) + 2);
        self.left().map_or(room, |left| room.min(left - 1))
    }

    /// Whether its prompt is evaluated and it has not ended.
    pub fn is_going(&self) -> bool {
        self.stop.is_none() && self.prompt.is_none()
    }

    /// Whether it is complete. If no tokens are wanted, the prompt is still evaluated, unless the job was cancelled.
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

/// A text with its sampler, proposers and policy, borrowed for a round.
pub struct Lane<'a> {
    pub text: &'a mut TextState,
    pub sampler: &'a mut Sampler,
    pub proposers: &'a mut [Box<dyn Proposer>],
    pub policy: &'a mut dyn Policy,
}

impl Lane<'_> {
    /// Adds a token that is certain. It was chosen from these scores.
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

    /// Takes the results of rows of the prompt.
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
        // Tokens that are evaluated for a second time are no event.
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

    /// Accepts what it can of the draft by the scores of the last pass, and adds it to the text. Also returns which of these tokens
    /// was the last that was looked at.
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

    /// The same, and then makes the text's cells what plain decoding leaves: all of the text but its last token, or all of it
    /// before an end-of-text token.
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

    /// Compares the draft with the sampler's choices. Also returns the first position at which the rule failed, and why: a draft may
    /// be longer.
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

/// How likely a token is by the model's logits.
fn score(logits: &[f32], token: u32, most: usize) -> TokenScore {
    let likely = top_logprobs(logits, most);
    let among = likely.iter().find(|(id, _)| *id == token).map(|(_, logprob)| *logprob);
    let by_itself = || (f64::from(logits[token as usize]) - log_sum_exp(logits)) as f32;
    TokenScore { logprob: among.unwrap_or_else(by_itself), likely }
}

/// How likely a token is among those that the samplers left.
fn left(choices: &Distribution, token: u32, most: usize) -> TokenScore {
    let mut likely: Vec<(u32, f32)> = choices.iter().map(|(id, p)| (id, p.ln() as f32)).collect();
    likely.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    likely.truncate(most);
    TokenScore { logprob: choices.p(token).ln() as f32, likely }
}
