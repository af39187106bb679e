//! Tasks with a known answer: of several endings of one text, the one that the model finds likeliest is its choice.
//!
//! HellaSwag, Winogrande and multiple choice are such tasks. They are read, drawn and scored as llama.cpp's
//! `llama-perplexity` does, so that figures of both programs may stand side by side. What the endings of a task have in
//! common is evaluated once; each ending goes on from a fork of it.
//!
//! ```
//! # mod spec_run {
//! #     pub use {spec_run_gguf::Error, spec_run_model::Model, spec_run_text::Tokenizer, spec_run_tools::eval};
//! #     pub use spec_run_runtime::{Context, ContextConfig};
//! # }
//! use spec_run::{Context, ContextConfig, Model, Tokenizer, eval::tasks::{Question, Room, score}};
//!
//! let model = Model::embedded()?;
//! let tokenizer = Tokenizer::from_gguf(&model.gguf)?;
//! let question = Question {
//!     number: 1,
//!     context: "Lily was sad because".into(),
//!     endings: vec!["she lost her toy.".into(), "green the of run.".into()],
//!     right: vec![true, false],
//! };
//! let tasks = [question.task(&tokenizer)?];
//! let room = Room::of(&tasks);
//! let config = ContextConfig { n_ctx: room.cells, sequences: room.sequences, swa_full: true, ..Default::default() };
//! let answers = score(&mut Context::new(model, &config)?, &tasks, None, |_, _| Ok(std::ops::ControlFlow::Continue(())))?;
//! assert_eq!(answers[0].full.ending, 0);
//! # Ok::<(), spec_run::Error>(())
//! ```

mod draw;
mod errors;
pub mod hellaswag;
pub mod multiple_choice;
mod question;
mod scoring;
pub mod winogrande;

use std::ops::Range;

use crate::{Error, Result};

pub use errors::{Interval, standard_error, wilson};
pub use question::Question;
pub use scoring::{Answer, Choice, Room, score};

/// A text with several endings.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Where it stands in its file, from 1.
    pub number: usize,
    /// Each with the text before it.
    pub endings: Vec<Ending>,
    /// Which endings are right.
    pub right: Vec<bool>,
    /// Which ending is chosen where two are as likely.
    pub ties: Ties,
    /// Tokens with which all endings begin.
    shared: usize,
}

/// One of a task's endings.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// From the beginning of the text.
    pub tokens: Vec<u32>,
    /// Positions of the tokens whose mean log-probability is the ending's score.
    pub scored: Range<usize>,
    /// The first of them is held against what comes after the first ending's last token, not after the token before it: so
    /// llama-perplexity scores Winogrande's second sentence where the choice itself is scored.
    pub first_after_other: bool,
}

/// What is chosen where two endings are as likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The first.
    First,
    /// The last; it is also chosen where nothing of an ending is scored.
    Last,
}

impl Task {
    /// Refuses what cannot be scored: a single ending, an ending without a token before it, or one of which nothing is scored
    /// where [`Ties`] does not say what that means.
    pub fn new(number: usize, endings: Vec<Ending>, right: Vec<bool>, ties: Ties) -> Result<Self> {
        let wrong = |what: &str| Err(Error::Input(format!("task {number}: {what}")));
        if endings.len() < 2 || right.len() != endings.len() {
            return wrong("fewer than two endings: there is nothing to choose");
        }
        if endings.iter().any(|ending| ending.scored.start == 0) {
            return wrong(
                "nothing stands before the first token that is scored; put a text before the endings",
            );
        }
        let shared = common_prefix(endings.iter().map(|ending| &ending.tokens[..]));
        if ties == Ties::First && endings.iter().any(|ending| ending.scored.is_empty()) {
            return wrong("an ending is the beginning of all others, so nothing of it can be scored");
        }
        Ok(Task { number, endings, right, ties, shared })
    }

    /// Tokens with which all endings begin.
    pub fn shared(&self) -> usize {
        self.shared
    }
}

/// How many tokens all begin with.
fn common_prefix<'a>(mut all: impl Iterator<Item = &'a [u32]>) -> usize {
    let first = all.next().unwrap_or_default();
    all.fold(first.len(), |shared, other| {
        first[..shared].iter().zip(other).take_while(|(a, b)| a == b).count()
    })
}
