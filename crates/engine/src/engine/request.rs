//! A request for a text, and the generated text.

use super::TokenScore;
use crate::{Context, Error, Result};

/// The text that is to be made, alone in a context or among others.
#[derive(Clone, Debug)]
pub struct Request {
    /// The tokens to go on from; at least one.
    pub prompt: Vec<u32>,
    /// The most tokens to make; `None` goes on until the text or its room ends.
    pub max_tokens: Option<usize>,
    /// Go on after an end-of-text token.
    pub ignore_eos: bool,
    /// When there is no more room, keep this many tokens of the start, drop half of the rest and go on.
    pub shift_keep: Option<usize>,
    /// How many of the likeliest tokens to report at each position.
    pub logprobs: usize,
    /// Report probabilities after the samplers, instead of the model's own.
    pub logprobs_after_sampling: bool,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A token that ends a text was chosen.
    EndOfText,
    /// It has as many tokens as were asked for.
    MaxTokens,
    /// The context has no more room.
    ContextFull,
    /// The caller asked for it.
    Interrupted,
}

/// What was generated.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Without the end-of-text token that ended it.
    pub tokens: Vec<u32>,
    /// How likely each token was, if that was asked for.
    pub logprobs: Vec<TokenScore>,
    /// The end-of-text token that ended it, and how likely it was.
    pub end: Option<(u32, TokenScore)>,
    /// How long the prompt took.
    pub prefill_seconds: f64,
    /// How long the tokens took.
    pub decode_seconds: f64,
    /// How long weights were rearranged meanwhile: see [`ContextConfig::pack_later`](crate::ContextConfig::pack_later).
    pub packing_seconds: f64,
    /// Decode steps that `decode_seconds` covers, or would by plain decoding.
    pub steps: usize,
    /// Why it ended.
    pub stop: Stop,
}

impl Request {
    /// A text without a limit.
    pub fn new(prompt: &[u32]) -> Self {
        Request {
            prompt: prompt.to_vec(),
            max_tokens: None,
            ignore_eos: false,
            shift_keep: None,
            logprobs: 0,
            logprobs_after_sampling: false,
        }
    }

    /// Whether the prompt can be evaluated in this context.
    pub fn check(&self, context: &Context) -> Result<()> {
        let (n, n_ctx) = (self.prompt.len(), context.kv().capacity());
        self.check_some()?;
        if n > n_ctx {
            return Err(Error::Input(format!(
                "the prompt has {n} tokens, the context holds {n_ctx}: use `n_ctx` {} or more, or a shorter prompt",
                n + 1
            )));
        }
        Ok(())
    }

    /// An error if there is no token to go on from.
    pub fn check_some(&self) -> Result<()> {
        match self.prompt.is_empty() {
            true => Err(Error::Input("the prompt has no tokens: give some text with `prompt`".into())),
            false => Ok(()),
        }
    }
}
