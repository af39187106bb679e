//! A text and its endings, in words.

use super::{Ending, Task, Ties, common_prefix};
use crate::{Result, Tokenizer, tokenizer::EncodeOptions};

/// What HellaSwag and multiple choice ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Where it stands in its file, from 1.
    pub number: usize,
    /// What the endings go on from; a blank is put between.
    pub context: String,
    /// The endings.
    pub endings: Vec<String>,
    /// Which of them are right.
    pub right: Vec<bool>,
}

impl Question {
    /// In tokens. All tokens are scored that not all endings begin with.
    pub fn task(&self, tokenizer: &Tokenizer) -> Result<Task> {
        let texts = self.endings.iter().map(|ending| format!("{} {ending}", self.context));
        let tokens: Vec<Vec<u32>> = texts.map(|text| encode(tokenizer, &text)).collect();
        let shared = common_prefix(tokens.iter().map(|tokens| &tokens[..]));
        let ending =
            |tokens: Vec<u32>| Ending { scored: shared..tokens.len(), tokens, first_after_other: false };
        Task::new(self.number, tokens.into_iter().map(ending).collect(), self.right.clone(), Ties::First)
    }
}

/// As llama-perplexity does: what looks like a special token in the text is text.
pub(super) fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: false })
}
