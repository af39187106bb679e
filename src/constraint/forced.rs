//! Drafts what a grammar leaves no choice about.

use super::{Constraint, Vocabulary};
use crate::{
    Context,
    speculation::{Proposer, Ready, SourceInfo, SourceKind, Supply},
};
use toktrie::TokEnv;

/// The tokens of the bytes that have to follow. A model may still cut them in another way, so they are a draft.
pub struct ForcedTokens {
    constraint: Constraint,
    env: TokEnv,
    prompt: usize,
    found: Vec<u32>,
}

impl ForcedTokens {
    /// For texts that keep to the constraint behind so many tokens of a prompt.
    pub fn new(vocabulary: &Vocabulary, constraint: &Constraint, prompt: usize) -> Self {
        let env = vocabulary.factory.tok_env().clone();
        ForcedTokens { constraint: constraint.fresh(), env, prompt, found: Vec::new() }
    }
}

impl Proposer for ForcedTokens {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: "grammar".into(), kind: SourceKind::Other, cost: 0.0, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        let forced = self.constraint.forced(text.get(self.prompt..).unwrap_or_default());
        self.found = self.env.tok_trie().greedy_tokenize(&forced);
        match self.found.len() {
            0 => Supply::Nothing,
            tokens => Supply::Found(Ready { tokens, match_len: SURE }),
        }
    }

    fn tokens(&mut self, _: &[u32]) -> Vec<u32> {
        self.found.clone()
    }
}

/// As sure as the longest match of a lookup.
const SURE: usize = 32;
