//! The answer to the last message of a conversation: what the model is given, and what is said of how it ended.

use std::sync::atomic::Ordering;

use super::{
    Talk,
    lines::stop_flag,
    showing::{Showing, dimmed},
    turns::{self, Room},
};
use crate::{
    Job, Request, Result,
    chat::{Answer, AnswerReader, Conversation, Reading, prompt_tokens},
    cli::{
        chat_template, colors, common,
        drafting::summary,
        output::{detail, note},
    },
    engine::{Ended, Stop},
    speculation::SourceInfo,
    tokenizer::StreamDecoder,
    words::count,
};

/// A conversation as the model is given it.
struct Given {
    /// How many turns are left out, and how many messages that are.
    turns: usize,
    messages: usize,
    text: String,
    tokens: Vec<u32>,
    /// The answer begins with thoughts.
    thinking: bool,
}

/// Why an answer is not whole.
enum Cut {
    ByContext,
    ByLength,
}

impl Talk {
    /// Has the last message answered, shows the answer, and adds it to the conversation.
    pub(super) fn answer(&mut self) -> Result<()> {
        let mut given = self.given(self.left_out, &[])?;
        let tokenizer = self.opened.engine.tokenizer().clone();
        let reading = Reading { syntax: self.syntax, tools: &[], reasoning: true, thinking: given.thinking };
        let mut shown = Showing::new(AnswerReader::new(reading), self.stops.clone());
        let mut decoder = StreamDecoder::new(&tokenizer);
        let stopped = stop_flag()?;
        stopped.store(false, Ordering::Relaxed);
        // The tokens of the answer so far, and how each part of it ended: a full context begins a new part.
        let mut answered: Vec<u32> = Vec::new();
        let mut parts: Vec<Ended> = Vec::new();
        let left_out = given.messages;
        let cut = loop {
            let request = Request {
                max_tokens: self.max_tokens.map(|most| most - answered.len()),
                ..Request::new(&[&given.tokens[..], &answered].concat())
            };
            let job = Job { sampler: self.sampler.clone(), ..Job::new(request) };
            let bound = self.rule.bound(given.tokens.len(), &answered);
            let mut session = self.opened.engine.session_with_rule(job, bound)?;
            if given.turns > self.left_out && parts.is_empty() {
                note!("{}", turns::told(self.room, given.messages, &self.messages, ""));
            }
            if self.shows_prompt && parts.is_empty() {
                common::print(&given.text)?;
            }
            self.left_out = given.turns;
            loop {
                let next = session.next_token();
                let failed_midway = next.is_err() && shown.answer != Answer::default();
                if failed_midway {
                    // What is said of it gets a line of its own.
                    shown.end()?;
                }
                let Some(token) = next? else { break };
                let text = decoder.push(token.id);
                let source = token.drafted_by.filter(|_| self.shows_drafts);
                // Behind the sources that all texts have is what a rule leaves no choice about.
                let looks_up =
                    |source: usize| self.opened.sources.get(source).is_none_or(SourceInfo::looks_up);
                shown.add(&text, source.map(looks_up).map(colors::of_drafted))?;
                if shown.is_stopped || stopped.load(Ordering::Relaxed) {
                    session.stop();
                }
            }
            let ended = session.finish()?;
            let stop = ended.generation.stop;
            answered.extend_from_slice(&ended.generation.tokens);
            parts.push(ended);
            match stop {
                _ if shown.is_stopped || stopped.load(Ordering::Relaxed) => break None,
                Stop::MaxTokens => break Some(Cut::ByLength),
                Stop::EndOfText | Stop::Interrupted => break None,
                Stop::ContextFull => {}
            }
            match self.shortened(&given, &answered) {
                Some(shorter) => given = shorter,
                None => break Some(Cut::ByContext),
            }
        };
        shown.add(&decoder.finish(), None)?;
        shown.end()?;
        if given.messages > left_out {
            let when = " in the middle of the answer";
            note!("{}", turns::told(self.room, given.messages, &self.messages, when));
        }
        match (cut, self.max_tokens) {
            (Some(Cut::ByContext), _) => {
                note!("the answer was cut: the context is full (-c {})", self.room);
            }
            (Some(Cut::ByLength), Some(most)) => note!("the answer was cut by -n {most}"),
            _ => {}
        }
        note!("{}", dimmed(&told(&parts)));
        let drafted = parts.iter().map(|ended| &ended.report).filter(|report| report.drafting.rounds > 0);
        for report in drafted {
            detail!("{}", dimmed(&summary(report, self.opened.engine.context().threads())));
            detail!("{}", dimmed(&report.to_string()));
        }
        self.messages.push(shown.answer.message());
        Ok(())
    }

    /// The conversation without at least so many turns, and without more where there would be no room for the rest of an answer
    /// of which `answered` is there already.
    fn given(&self, least: usize, answered: &[u32]) -> Result<Given> {
        let room = Room::new(self.room, self.max_tokens.map(|most| most - answered.len()));
        let most = if self.may_leave_out { turns::most_left_out(&self.messages) } else { 0 };
        turns::choose(least, most, room, |turns| {
            let (left, messages) = turns::without(&self.messages, turns);
            let conversation = Conversation { thinking: self.thinking, ..Conversation::new(left) };
            let prompt = chat_template::render(self.template.clone(), conversation)?;
            let tokens = prompt_tokens(&prompt.text, self.opened.engine.tokenizer());
            let all = tokens.len() + answered.len();
            Ok((all, Given { turns, messages, text: prompt.text, tokens, thinking: prompt.thinking }))
        })
    }

    /// The same where an answer has filled the context: `None` if nothing more can be left out, or that is not enough.
    fn shortened(&self, given: &Given, answered: &[u32]) -> Option<Given> {
        // A template that fails on what is left is no reason to lose what is there of an answer.
        let shorter = self.given(given.turns + 1, answered).ok()?;
        let is_shorter = shorter.turns > given.turns && shorter.tokens.len() + answered.len() < self.room;
        is_shorter.then_some(shorter)
    }
}

/// How fast it was; where an answer was made in parts, all of them together.
fn told(parts: &[Ended]) -> String {
    let sum = |of: fn(&Ended) -> usize| parts.iter().map(of).sum::<usize>();
    let seconds: f64 = parts.iter().map(|ended| ended.generation.decode_seconds).sum();
    let speed = if seconds > 0.0 { sum(|ended| ended.generation.steps) as f64 / seconds } else { 0.0 };
    format!(
        "{}, {speed:.1} per second; {} of {} new",
        count(sum(|ended| ended.generation.tokens.len()), "token"),
        sum(|ended| ended.prompt_tokens - ended.cached),
        count(sum(|ended| ended.prompt_tokens), "prompt token")
    )
}
