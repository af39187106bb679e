//! Drafts by lookups: where the text's last tokens occurred before, the tokens that followed may follow again.
//!
//! As in LZ77 compressors, a table gives the last occurrence of the last few tokens, and a chain the occurrences before that. Adding
//! a token costs O(1), a lookup at most [`TRIES`] comparisons.

use std::collections::HashMap;

use super::{Proposer, Supply};
use crate::{
    Context,
    speculation::policy::{Ready, SourceInfo, SourceKind},
};

/// Occurrences that are compared, from the latest on.
const TRIES: usize = 16;
/// The longest match that is counted; longer ones count as this.
const LONGEST_MATCH: usize = 32;
const NONE: u32 = u32::MAX;

/// Drafts what followed the last tokens where they occurred before.
pub struct NgramProposer {
    min_match: usize,
    max_tokens: usize,
    /// Ends of the last occurrence of each gram of `min_match` tokens, by hash.
    latest: HashMap<u64, u32>,
    /// For the gram that ends at each token: where the one before ended.
    before: Vec<u32>,
    found: Vec<u32>,
}

/// The program's default: shorter matches are wrong more often than they help, and longer drafts are not cheaper per token to
/// verify.
impl Default for NgramProposer {
    fn default() -> Self {
        NgramProposer::new(3, 16)
    }
}

impl NgramProposer {
    /// Matches of at least `min_match` tokens, continued by at most `max_tokens`.
    pub fn new(min_match: usize, max_tokens: usize) -> Self {
        NgramProposer {
            min_match: min_match.max(1),
            max_tokens,
            latest: HashMap::new(),
            before: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Adds the new tokens of the text. The last gram never matches itself: it is looked up before it is added.
    fn extend(&mut self, text: &[u32]) {
        if text.len() < self.before.len() {
            self.latest.clear();
            self.before.clear();
        }
        for end in self.before.len()..text.len() {
            let before = match (end + 1).checked_sub(self.min_match) {
                Some(start) => self.latest.insert(hash(&text[start..=end]), end as u32),
                None => None,
            };
            self.before.push(before.unwrap_or(NONE));
        }
    }

    /// Where the longest match of the text's end ended, among equals the latest; and its length.
    fn longest_match(&self, text: &[u32]) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize)> = None;
        let mut end = *self.before.last()?;
        for _ in 0..TRIES {
            if end == NONE {
                break;
            }
            let pairs = text.iter().rev().zip(text[..=end as usize].iter().rev());
            let len = pairs.take(LONGEST_MATCH).take_while(|(a, b)| a == b).count();
            // Hashes may collide.
            if len >= self.min_match && best.is_none_or(|(_, longest)| len > longest) {
                best = Some((end as usize, len));
            }
            end = self.before[end as usize];
        }
        best
    }
}

impl Proposer for NgramProposer {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: "ngram".into(), kind: SourceKind::Ngram, cost: 0.0, chance: 0.3, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        self.extend(text);
        self.found.clear();
        let Some((end, match_len)) = self.longest_match(text) else { return Supply::Nothing };
        // A match that reaches into its own continuation repeats, as in "ab ab ab".
        let period = text.len() - 1 - end;
        for i in 0..self.max_tokens {
            self.found.push(text[end + 1 + i % period]);
        }
        match self.found.len() {
            0 => Supply::Nothing,
            tokens => Supply::Found(Ready { tokens, match_len }),
        }
    }

    fn tokens(&mut self, _: &[u32]) -> Vec<u32> {
        self.found.clone()
    }
}

/// FNV-1a over whole tokens.
fn hash(gram: &[u32]) -> u64 {
    gram.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &token| {
        (hash ^ u64::from(token)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(proposer: &mut NgramProposer, text: &[u32]) -> Option<(Vec<u32>, usize)> {
        match proposer.supply(text) {
            Supply::Found(ready) => Some((proposer.found.clone(), ready.match_len)),
            _ => None,
        }
    }

    #[test]
    fn what_came_after_comes_again() {
        let mut ngram = NgramProposer::new(2, 3);
        assert_eq!(found(&mut ngram, &[1, 2, 3, 4, 5]), None);
        assert_eq!(found(&mut ngram, &[1, 2, 3, 4, 5, 1]), None);
        assert_eq!(found(&mut ngram, &[1, 2, 3, 4, 5, 1, 2]), Some((vec![3, 4, 5], 2)));
    }

    #[test]
    fn the_longest_match_wins_and_among_equals_the_latest() {
        let longest = [7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2];
        assert_eq!(found(&mut NgramProposer::new(2, 1), &longest), Some((vec![3], 3)));
        let equals = [1, 2, 3, 9, 1, 2, 4, 8, 1, 2];
        assert_eq!(found(&mut NgramProposer::new(2, 1), &equals), Some((vec![4], 2)));
    }

    #[test]
    fn a_repetition_goes_round() {
        assert_eq!(found(&mut NgramProposer::new(2, 5), &[1, 2, 1, 2]), Some((vec![1, 2, 1, 2, 1], 2)));
        assert_eq!(found(&mut NgramProposer::new(1, 2), &[6, 6]), Some((vec![6, 6], 1)));
    }

    #[test]
    fn growing_text_is_the_same_as_the_whole_at_once_and_a_new_text_starts_over() {
        let text: Vec<u32> = (0..400u32).map(|i| i * i % 7).collect();
        let mut growing = NgramProposer::new(3, 4);
        for len in 1..=text.len() {
            let whole = found(&mut NgramProposer::new(3, 4), &text[..len]);
            assert_eq!(found(&mut growing, &text[..len]), whole, "{len} tokens");
        }
        assert_eq!(found(&mut growing, &[9, 9, 8]), None);
    }
}
