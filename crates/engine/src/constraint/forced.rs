//! Drafts what a grammar leaves no choice about.

use super::{Constraint, Vocabulary};
use crate::{
    Context,
    engine::TextRule,
    speculation::{Proposer, Ready, SourceInfo, SourceKind, Supply},
};
use toktrie::TokEnv;

/// The tokens of the bytes that have to follow. A model may still cut them in another way, so they are a draft.
pub struct ForcedTokens {
    constraint: Constraint,
    env: TokEnv,
    prompt: usize,
    foreseen: Foreseen,
    is_lost: bool,
    found: Vec<u32>,
}

/// What had to follow a text when it was asked for. That may be a million bytes, so it is asked for again only where
/// they are used up.
#[derive(Default)]
struct Foreseen {
    text: Vec<u32>,
    bytes: Vec<u8>,
}

impl Foreseen {
    /// What is left of it behind a text that went on as it had to.
    fn behind(&self, text: &[u32], env: &TokEnv) -> Option<&[u8]> {
        let since = text.strip_prefix(self.text.as_slice())?;
        let rest = self.bytes.strip_prefix(env.tok_trie().decode_raw(since).as_slice())?;
        (!rest.is_empty()).then_some(rest)
    }
}

impl ForcedTokens {
    /// For texts that keep to the constraint behind so many tokens of a prompt.
    pub fn new(vocabulary: &Vocabulary, constraint: &Constraint, prompt: usize) -> Self {
        let env = vocabulary.factory.tok_env().clone();
        let (constraint, foreseen, found) = (constraint.fresh(), Foreseen::default(), Vec::new());
        ForcedTokens { constraint, env, prompt, foreseen, is_lost: false, found }
    }
}

impl Constraint {
    /// What an engine's text keeps to and is drafted by, behind so many tokens of a prompt.
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
