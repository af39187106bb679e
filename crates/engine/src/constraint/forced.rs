//! Drafts tokens that are the only ones that a grammar allows.

use super::{Constraint, Vocabulary};
use crate::{
    Context,
    engine::TextRule,
    speculation::{Proposer, Ready, SourceInfo, SourceKind, Supply},
};
use toktrie::TokEnv;

/// Drafts the tokens of the bytes that have to follow. A model may divide these bytes into other tokens, so they are only a draft.
pub struct ForcedTokens {
    constraint: Constraint,
    env: TokEnv,
    prompt: usize,
    foreseen: Foreseen,
    is_lost: bool,
    found: Vec<u32>,
}

/// The bytes that had to follow a text. They may be a million, so they are computed again only when they are used up.
#[derive(Default)]
struct Foreseen {
    text: Vec<u32>,
    bytes: Vec<u8>,
}

impl Foreseen {
    /// The bytes that are left after a text that continued with the first of them.
    fn behind(&self, text: &[u32], env: &TokEnv) -> Option<&[u8]> {
        let since = text.strip_prefix(self.text.as_slice())?;
        let rest = self.bytes.strip_prefix(env.tok_trie().decode_raw(since).as_slice())?;
        (!rest.is_empty()).then_some(rest)
    }
}

impl ForcedTokens {
    /// For texts with this constraint after so many tokens of a prompt.
    pub fn new(vocabulary: &Vocabulary, constraint: &Constraint, prompt: usize) -> Self {
        let env = vocabulary.factory.tok_env().clone();
        let (constraint, foreseen, found) = (constraint.fresh(), Foreseen::default(), Vec::new());
        ForcedTokens { constraint, env, prompt, foreseen, is_lost: false, found }
    }
}

impl Constraint {
    /// The rule for a text of an engine, with its drafts, after so many tokens of a prompt.
    pub fn bound(&self, vocabulary: &Vocabulary, prompt: usize) -> TextRule {
        let forced = ForcedTokens::new(vocabulary, self, prompt);
        TextRule { rule: Some(Box::new(self.fresh())), forced: Some(Box::new(forced)) }
    }
}

impl Proposer for ForcedTokens {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: "grammar".into(), kind: SourceKind::Other, cost: 0.0, chance: 0.99, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        let text = text.get(self.prompt..).unwrap_or_default();
        if !self.is_lost && self.foreseen.behind(text, &self.env).is_none() {
            let bytes = self.constraint.forced(text);
            self.is_lost = bytes.is_none();
            self.foreseen = Foreseen { text: text.to_vec(), bytes: bytes.unwrap_or_default() };
        }
        let forced = self.foreseen.behind(text, &self.env).unwrap_or_default();
        self.found = self.env.tok_trie().greedy_tokenize(&forced[..forced.len().min(MOST_BYTES)]);
        match self.found.len() {
            0 => Supply::Nothing,
            tokens => Supply::Found(Ready { tokens, match_len: SURE }),
        }
    }

    fn tokens(&mut self, _: &[u32]) -> Vec<u32> {
        self.found.clone()
    }
}

/// More than the longest draft has.
const MOST_BYTES: usize = 1024;
/// As sure as the longest match of a lookup.
const SURE: usize = 32;
