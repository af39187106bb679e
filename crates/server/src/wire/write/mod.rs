//! Answers in all shapes, whole and piece by piece.

mod chat;
mod completions;
mod embeddings;
mod llama;
mod messages;
mod responses;
#[cfg(test)]
mod tests;

pub use embeddings::{Embeddings, Plain, Rank, Ranks};
pub use llama::settings_json;

use serde_json::Value;

use super::{
    answer::{Frame, Header, More, Progress, Whole},
    ask::{Settings, Shape},
};

/// Says what becomes known of the answers to one request.
pub struct Writer {
    header: Header,
    settings: Settings,
    shape: State,
}

enum State {
    Chat(chat::Stream),
    Completions(completions::Stream),
    Responses(Box<responses::Stream>),
    Messages(messages::Stream),
    Llama,
}

impl Writer {
    /// A writer of this shape.
    pub fn new(shape: Shape, header: Header, settings: Settings) -> Self {
        let shape = match shape {
            Shape::Chat => State::Chat(chat::Stream::default()),
            Shape::Completions => State::Completions(completions::Stream::default()),
            Shape::Responses => State::Responses(Box::new(responses::Stream::new(&header))),
            Shape::Messages => State::Messages(messages::Stream::default()),
            Shape::Llama => State::Llama,
        };
        Writer { header, settings, shape }
    }

    /// The prompt is being evaluated.
    pub fn begins(
        &mut self,
        index: usize,
        progress: &Progress,
        prompt: &str,
        sources: &[String],
    ) -> Vec<Frame> {
        match &mut self.shape {
            State::Chat(stream) => stream.begins(&self.header, index, sources),
            State::Messages(stream) => stream.begins(&self.header, progress.total, progress.cached),
            State::Responses(stream) => stream.begins(&self.header),
            State::Completions(stream) if self.settings.echo => {
                vec![stream.echoes(&self.header, index, prompt)]
            }
            State::Completions(_) | State::Llama => Vec::new(),
        }
    }

    /// More of the prompt has been evaluated.
    pub fn progress(&mut self, index: usize, progress: &Progress) -> Vec<Frame> {
        match &mut self.shape {
            State::Chat(_) => vec![chat::progress(&self.header, index, progress)],
            State::Responses(stream) => vec![stream.progress(progress)],
            State::Completions(_) => vec![completions::progress(&self.header, index, progress)],
            State::Llama => vec![llama::progress(index, progress)],
            State::Messages(_) => Vec::new(),
        }
    }

    /// More of an answer.
    pub fn more(&mut self, index: usize, more: &More) -> Vec<Frame> {
        let post = self.settings.post_sampling;
        match &mut self.shape {
            State::Chat(_) => chat::more(&self.header, index, more, post),
            State::Completions(stream) => vec![stream.more(&self.header, index, more, post)],
            State::Responses(stream) => stream.more(more),
            State::Messages(stream) => stream.more(more),
            State::Llama => vec![llama::more(index, more, post)],
        }
    }

    /// An answer is whole; its last pieces have been said.
    pub fn ended(&mut self, index: usize, whole: &Whole) -> Vec<Frame> {
        match &mut self.shape {
            State::Chat(_) => vec![chat::ended(&self.header, index, whole)],
            State::Completions(_) => vec![completions::ended(&self.header, index, whole)],
            State::Responses(stream) => stream.ended(&self.header, whole),
            State::Messages(stream) => stream.ended(whole),
            State::Llama => {
                let body = llama::whole(&self.header, index, whole, &self.settings, true);
                vec![Frame::plain(body)]
            }
        }
    }

    /// All answers are whole. Some shapes end with a word of their own, which is not JSON.
    pub fn done(&mut self, all: &[Whole]) -> (Vec<Frame>, Option<&'static str>) {
        const DONE: Option<&str> = Some("data: [DONE]\n\n");
        let usage = self.settings.include_usage;
        match &self.shape {
            State::Chat(_) if usage => (vec![chat::usage(&self.header, all)], DONE),
            State::Completions(_) if usage => (vec![completions::usage(&self.header, all)], DONE),
            State::Chat(_) | State::Completions(_) => (Vec::new(), DONE),
            State::Responses(_) | State::Messages(_) | State::Llama => (Vec::new(), None),
        }
    }

    /// All answers at once.
    pub fn whole(&self, all: &[Whole]) -> Value {
        let mut body = match &self.shape {
            State::Chat(_) => chat::whole(&self.header, all, &self.settings),
            State::Completions(_) => completions::whole(&self.header, all, &self.settings),
            State::Responses(_) => responses::whole(&self.header, &all[0]),
            State::Messages(_) => messages::whole(&self.header, &all[0]),
            State::Llama => {
                let one = |(index, whole)| llama::whole(&self.header, index, whole, &self.settings, false);
                let mut bodies: Vec<Value> = all.iter().enumerate().map(one).collect();
                return if bodies.len() == 1 { bodies.remove(0) } else { bodies.into() };
            }
        };
        if let (true, State::Chat(_) | State::Completions(_)) = (self.settings.verbose, &self.shape) {
            body["__verbose"] = llama::whole(&self.header, 0, &all[0], &self.settings, false);
        }
        body
    }
}
