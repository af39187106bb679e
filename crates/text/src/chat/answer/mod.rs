//! Reads what a model answers, piece by piece: what it thinks, what it says, which tools it calls.

mod arguments;
mod gemma;
mod harmony;
mod json;
mod marked;
mod object_text;
mod python;
mod tagged;

pub(super) use gemma::QUOTE as GEMMA_QUOTE;
pub(super) use harmony::MARKERS as HARMONY;

use self::{harmony::Harmony, marked::MarkedReader};
use super::{
    Message, Tool, ToolCall,
    syntax::{Calls, Syntax},
};

/// What has become known of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More of what the model thinks.
    Reasoning(String),
    /// More of what it says.
    Content(String),
    /// A call begins: the next one, counted from 0.
    Call {
        /// Which.
        index: usize,
        /// As the model gave it, where it gave one.
        id: Option<String>,
        /// The tool.
        name: String,
    },
    /// More of a call's arguments, which are JSON when the call is whole.
    Arguments {
        /// Of which call.
        index: usize,
        /// The piece.
        text: String,
    },
}

/// Reads an answer while it arrives. Nothing that may still turn out to be a marker is given out, and what is given out in
/// all does not depend on the pieces.
pub struct AnswerReader(Reader);

enum Reader {
    Plain(Sink),
    Marked(Box<MarkedReader>),
    Harmony(Harmony),
}

/// What to look for in an answer.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// How the model marks things.
    pub syntax: Syntax,
    /// The tools that it may call. Without any, calls stay in the text.
    pub tools: &'a [Tool],
    /// Takes what the model thinks out of the text.
    pub reasoning: bool,
    /// The answer begins with what it thinks: [`Prompt::thinking`](super::Prompt::thinking).
    pub thinking: bool,
}

impl AnswerReader {
    /// A reader at the beginning of an answer.
    pub fn new(reading: Reading) -> Self {
        let Reading { syntax, tools, reasoning, thinking } = reading;
        let marks = syntax.reasoning.filter(|_| reasoning);
        AnswerReader(match (syntax.calls, marks) {
            (Calls::Harmony, _) => Reader::Harmony(Harmony::new(tools, reasoning)),
            (Calls::Marked(marked), marks) if !tools.is_empty() => {
                Reader::Marked(Box::new(MarkedReader::new(Some(marked), tools, marks, thinking)))
            }
            (Calls::Marked(_) | Calls::None, Some(marks)) => {
                Reader::Marked(Box::new(MarkedReader::new(None, tools, Some(marks), thinking)))
            }
            (Calls::Marked(_) | Calls::None, None) => Reader::Plain(Sink::default()),
        })
    }

    /// What another piece of the answer tells.
    pub fn push(&mut self, piece: &str) -> Vec<Delta> {
        match &mut self.0 {
            Reader::Plain(sink) => {
                sink.content(piece);
                sink.take()
            }
            Reader::Marked(reader) => reader.push(piece, false),
            Reader::Harmony(reader) => reader.push(piece, false),
        }
    }

    /// What is left at the end. A call whose name is not known by then is left out.
    pub fn finish(&mut self) -> Vec<Delta> {
        match &mut self.0 {
            Reader::Plain(sink) => sink.take(),
            Reader::Marked(reader) => reader.push("", true),
            Reader::Harmony(reader) => reader.push("", true),
        }
    }
}

/// Where readers put what they find.
#[derive(Default)]
struct Sink {
    deltas: Vec<Delta>,
    calls: usize,
}

impl Sink {
    fn take(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    fn content(&mut self, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => (),
            Some(Delta::Content(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Content(text.into())),
        }
    }

    fn reasoning(&mut self, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => (),
            Some(Delta::Reasoning(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Reasoning(text.into())),
        }
    }

    fn call(&mut self, name: String, id: Option<String>) {
        self.deltas.push(Delta::Call { index: self.calls, id: id.filter(|id| !id.is_empty()), name });
        self.calls += 1;
    }

    /// Of the last call.
    fn arguments(&mut self, text: &str) {
        let index = self.calls.saturating_sub(1);
        match self.deltas.last_mut() {
            _ if text.is_empty() => (),
            Some(Delta::Arguments { text: last, .. }) => last.push_str(text),
            _ => self.deltas.push(Delta::Arguments { index, text: text.into() }),
        }
    }
}

/// An answer put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What the model thought.
    pub reasoning: String,
    /// What it said.
    pub content: String,
    /// The tools that it called.
    pub calls: Vec<ToolCall>,
}

impl Answer {
    /// Adds what has become known.
    pub fn add(&mut self, delta: &Delta) {
        match delta {
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Content(text) => self.content.push_str(text),
            Delta::Call { id, name, .. } => self.calls.push(ToolCall {
                id: id.clone().unwrap_or_default(),
                name: name.clone(),
                arguments: String::new(),
            }),
            Delta::Arguments { index, text } => {
                if let Some(call) = self.calls.get_mut(*index) {
                    call.arguments.push_str(text);
                }
            }
        }
    }

    /// As a turn of the conversation.
    pub fn message(self) -> Message {
        Message {
            reasoning_content: Some(self.reasoning).filter(|text| !text.is_empty()),
            tool_calls: self.calls,
            ..Message::new("assistant", self.content)
        }
    }
}

#[cfg(test)]
mod tests;
