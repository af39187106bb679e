//! A part of a vocabulary.

use std::ops::Range;

/// Tokens whose ids follow each other are taken or left together, so many at a time: a matrix is read in pieces.
pub const SHELF: usize = 32;

/// The tokens that a draft may choose from, where the whole vocabulary is too dear for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortlist {
    n_vocab: usize,
    /// Ascending; the `n`-th has the tokens from `n * SHELF` on.
    shelves: Vec<u32>,
}

impl Shortlist {
    /// The tokens of some shelves.
    ///
    /// # Panics
    /// If the vocabulary has no such shelf, or if there is none.
    pub fn new(n_vocab: usize, shelves: impl IntoIterator<Item = u32>) -> Self {
        let mut shelves: Vec<u32> = shelves.into_iter().collect();
        shelves.sort_unstable();
        shelves.dedup();
        let last = *shelves.last().expect("a draft has to choose something");
        assert!((last as usize) * SHELF < n_vocab, "shelf {last} of a vocabulary of {n_vocab}");
        Shortlist { n_vocab, shelves }
    }

    /// At least the first `tokens` of them, or all.
    ///
    /// # Panics
    /// If that is none.
    pub fn first(n_vocab: usize, tokens: usize) -> Self {
        Self::new(n_vocab, 0..tokens.min(n_vocab).div_ceil(SHELF) as u32)
    }

    /// What is in either of them.
    pub fn union(&self, other: &Self) -> Self {
        Self::new(self.n_vocab, self.shelves.iter().chain(&other.shelves).copied())
    }

    /// The vocabulary that it is a part of.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// Whether a draft may choose this token.
    pub fn contains(&self, token: u32) -> bool {
        self.shelves.binary_search(&(token / SHELF as u32)).is_ok()
    }

    /// Of the vocabulary.
    pub fn share(&self) -> f64 {
        let tokens: usize = self.ranges(0..self.places()).map(|range| range.len()).sum();
        tokens as f64 / self.n_vocab as f64
    }

    /// Places for its tokens, one shelf after the other; the last shelf of a vocabulary may be short.
    pub fn places(&self) -> usize {
        self.shelves.len() * SHELF
    }

    /// The ids of the tokens in these places, which are whole shelves.
    pub fn ranges(&self, places: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let shelves = &self.shelves[places.start / SHELF..places.end.div_ceil(SHELF)];
        shelves.chunk_by(|a, b| a + 1 == *b).map(|run| {
            let end = (run[run.len() - 1] as usize + 1) * SHELF;
            run[0] as usize * SHELF..end.min(self.n_vocab)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_tokens_of_the_shelves_in_order() {
        let list = Shortlist::new(100, [3, 0, 1, 3]);
        assert_eq!(list.places(), 96);
        assert_eq!(list.ranges(0..96).collect::<Vec<_>>(), [0..64, 96..100]);
        assert!(list.ranges(32..64).eq(std::iter::once(32..64)));
        assert!(list.contains(63) && !list.contains(64) && list.contains(99));
        assert_eq!(list.share(), 0.68);
    }

    #[test]
    fn a_union_has_what_either_has() {
        let both = Shortlist::first(1000, 33).union(&Shortlist::new(1000, [31]));
        assert_eq!(both.ranges(0..both.places()).collect::<Vec<_>>(), [0..64, 992..1000]);
        assert_eq!(Shortlist::first(1000, 5000).share(), 1.0);
    }
}
