//! Whether two vocabularies give the same ids to the same texts, as llama.cpp judges it for a draft model.

use super::{Model, Tokenizer};
use crate::quoted::Quoted;

/// A vocabulary may have so many more tokens than the other: padding, and tokens that nobody says.
const MORE_TOKENS: usize = 128;
/// Ids below are special tokens, which models name as they like.
const FIRST_COMPARED: u32 = 5;

impl Tokenizer {
    /// Why a text's ids in the one vocabulary are not its ids in the other, if they are not.
    pub fn differs_from(&self, other: &Tokenizer) -> Option<String> {
        let kind = |tokenizer: &Tokenizer| match tokenizer.model {
            Model::Spm(_) => "SentencePiece",
            Model::Bpe(_) => "BPE",
            Model::Unigram(_) => "unigrams",
            Model::Wpm(_) => "WordPiece",
        };
        if kind(self) != kind(other) {
            return Some(format!("one is {}, the other {}", kind(self), kind(other)));
        }
        for (what, own, others) in [("BOS", self.bos(), other.bos()), ("EOS", self.eos(), other.eos())] {
            // A token that is never added may have any number.
            let counts = what == "EOS" || self.adds_bos() || other.adds_bos();
            if counts && own != others {
                let id = |id: Option<u32>| id.map_or("none".into(), |id| id.to_string());
                return Some(format!("{what} is {} in one and {} in the other", id(own), id(others)));
            }
        }
        let (own, others) = (self.vocab_size(), other.vocab_size());
        if own.abs_diff(others) > MORE_TOKENS {
            return Some(format!(
                "one has {own} tokens and the other {others}, which may differ by {MORE_TOKENS}"
            ));
        }
        let differs = |&id: &u32| self.token_text(id) != other.token_text(id);
        let first = (FIRST_COMPARED..own.min(others) as u32).find(differs)?;
        let text = |tokenizer: &Tokenizer| Quoted(tokenizer.token_text(first)).to_string();
        Some(format!("token {first} is {} in one and {} in the other", text(self), text(other)))
    }
}
