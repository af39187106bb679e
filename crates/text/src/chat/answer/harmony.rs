//! gpt-oss's answers: a row of messages, each with a header that says its channel and who is to read it.
//!
//! ```text
//! <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{…}<|call|>
//! ```

use super::{Delta, Sink};
use crate::chat::{
    Tool,
    markers::{Found, find},
};

pub(in crate::chat) const MARKERS: [&str; 7] =
    ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"];
/// These end a message.
const ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>"];
/// Recipients that are functions begin with this.
const FUNCTIONS: &str = "functions.";

pub(super) struct Harmony {
    calls: bool,
    reasoning: bool,
    /// Where the message goes; nothing in a header.
    to: Option<To>,
    pending: String,
    sink: Sink,
}

#[derive(Clone, Copy, PartialEq)]
enum To {
    Reasoning,
    Content,
    Arguments,
    Nobody,
}

impl Harmony {
    pub fn new(tools: &[Tool], reasoning: bool) -> Self {
        Harmony {
            calls: !tools.is_empty(),
            reasoning,
            to: None,
            pending: String::new(),
            sink: Sink::default(),
        }
    }

    pub fn push(&mut self, piece: &str, last: bool) -> Vec<Delta> {
        self.pending.push_str(piece);
        while self.step(last) {}
        self.sink.take()
    }

    fn step(&mut self, last: bool) -> bool {
        match self.to {
            None => match find(&self.pending, &["<|message|>"], last) {
                Found::Not(_) if last && !self.pending.contains("<|") => {
                    // No header at all: what there is was meant to be read.
                    self.sink.content(&self.pending);
                    self.pending.clear();
                    false
                }
                Found::Not(_) => false,
                Found::Marker { at, end, .. } => {
                    let header = self.pending[..at].to_owned();
                    self.pending.drain(..end);
                    self.to = Some(self.read(&header));
                    true
                }
            },
            Some(to) => match find(&self.pending, &ENDS, last) {
                Found::Not(safe) => {
                    self.gives(to, safe);
                    false
                }
                Found::Marker { at, end, .. } => {
                    self.gives(to, at);
                    self.pending.drain(..end - at);
                    self.to = None;
                    true
                }
            },
        }
    }

    fn gives(&mut self, to: To, len: usize) {
        let text = &self.pending[..len];
        match to {
            To::Reasoning => self.sink.reasoning(text),
            To::Content => self.sink.content(text),
            To::Arguments => self.sink.arguments(text),
            To::Nobody => (),
        }
        self.pending.drain(..len);
    }

    fn read(&mut self, header: &str) -> To {
        // A channel may be named twice; the last one counts.
        let channel = header.rsplit("<|channel|>").next().unwrap_or_default();
        let word = |text: &str| {
            let end = text.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(text.len());
            text[..end].to_owned()
        };
        let recipient = header.split(" to=").skip(1).map(word).find(|to| to != "assistant");
        match recipient {
            Some(to) => match to.strip_prefix(FUNCTIONS).filter(|_| self.calls) {
                Some(name) => {
                    self.sink.call(name.to_owned(), None);
                    To::Arguments
                }
                // A tool of its makers, which nobody here can call.
                None => To::Nobody,
            },
            None if word(channel) == "analysis" && self.reasoning => To::Reasoning,
            None => To::Content,
        }
    }
}
