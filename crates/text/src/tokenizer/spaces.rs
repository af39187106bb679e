//! Texts as vocabularies write them that have `▁` for a space, and where such a text can be cut without a difference.

use std::collections::HashSet;

use super::vocab::Vocab;

pub(super) const SPACE: char = '▁';

/// Appends `text` as the vocabulary writes it.
pub(super) fn escape(text: &str, escaped: &mut String) {
    escaped.reserve(text.len() * 3 / 2);
    escaped.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
}

/// Tokens are made by joining neighbours. Where no token has a character with a space after it, nothing joins there,
/// and what stands before and after can be done by itself.
pub(super) struct Words {
    /// The characters that some token has before a space; in the usual case none or one.
    before_space: HashSet<char>,
}

impl Words {
    pub fn new(vocab: &Vocab) -> Self {
        let places = vocab.texts().flat_map(|text| text.match_indices(SPACE).map(move |(at, _)| &text[..at]));
        let before = places.filter_map(|text| text.chars().next_back()).filter(|&c| c != SPACE);
        Words { before_space: before.collect() }
    }

    /// Cuts before runs of spaces.
    pub fn cut<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let mut end = 0;
            loop {
                end += rest[end..].find(|c| c != SPACE).unwrap_or(rest.len() - end);
                end += rest[end..].find(SPACE).unwrap_or(rest.len() - end);
                let last = rest[..end].chars().next_back()?;
                if end == rest.len() || !self.before_space.contains(&last) {
                    break;
                }
            }
            let (word, after) = rest.split_at(end);
            rest = after;
            Some(word)
        })
    }
}
