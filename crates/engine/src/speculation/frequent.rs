//! The tokens that a draft chooses from. The head reads a row of weights for each token of the vocabulary, and most tokens almost
//! never occur. A draft that chooses from the frequent ones costs less, and verification, which has all of them, gives the same
//! text.
//!
//! Frequencies are counted in the text itself with its prompt. Before there is text, tokens with low ids count as frequent, which
//! holds for vocabularies made by merging. The length of the list follows from what lists of each length would have missed in
//! this text.

use std::sync::Arc;

use super::policy::SourceInfo;
use crate::{
    Context,
    shortlist::{SHELF, Shortlist},
};

/// The lengths of lists: one token in so many of the vocabulary.
pub const ONE_OF: [usize; 5] = [32, 16, 8, 4, 2];
/// The list by which costs of drafts are guessed before there is text.
const AT_FIRST: usize = 8;
/// The order by ids has the weight of a text with this many tokens.
const PRIOR: f64 = 512.0;
/// The misses that are expected by that order have the weight of this many observed tokens.
const PRIOR_MISSES: f64 = 16.0;
/// The order is updated after this many tokens, and less often as the text grows.
const EVERY: usize = 32;
/// The cost of a drafted token's row in the verification, in plain steps.
const ROW: f64 = 0.15;
/// If the head takes less than this share of a plain step, it is always computed whole.
const LEAST_HEAD: f64 = 0.02;

/// The cost of a draft step, in plain steps, if it costs `whole` with the whole vocabulary.
pub fn draft_cost(context: &Context, whole: f64) -> f64 {
    let head = context.head_share();
    if head < LEAST_HEAD { whole } else { whole - head * saved(AT_FIRST) }
}

/// The tokens that drafts choose from before there is text, as [`draft_cost`] assumes.
pub fn at_first(context: &Context) -> Option<Arc<Shortlist>> {
    let n_vocab = context.model().n_vocab();
    let list = || Arc::new(Shortlist::first(n_vocab, n_vocab.div_ceil(AT_FIRST)));
    (context.head_share() >= LEAST_HEAD).then(list)
}

/// The share of the head that a list of one token in so many saves.
fn saved(one_of: usize) -> f64 {
    1.0 - 1.0 / one_of as f64
}

/// How often the tokens of a vocabulary occur in a text.
pub struct Frequent {
    n_vocab: usize,
    /// The head's share of a plain step.
    head: f64,
    /// By source, the cost of a draft step without the head.
    layers: Vec<f64>,
    /// By shelf, the number of its tokens in the text: those seen, and those expected by its position.
    tokens: Vec<f64>,
    /// By shelf, how many others are more frequent.
    rank: Vec<u32>,
    /// The shelves in the order of their ranks.
    order: Vec<u32>,
    /// How many tokens of the text are counted.
    read: usize,
    /// How many of them the order is based on.
    ordered: usize,
    /// Tokens that were looked at, and how many of them each list had.
    looked: f64,
    had: [f64; ONE_OF.len()],
    /// The lists by the present order that were asked for.
    lists: [Option<Arc<Shortlist>>; ONE_OF.len()],
}

impl Frequent {
    /// For a text with these draft sources. `None` where shortlists save nothing.
    pub fn new<'s>(context: &Context, sources: impl Iterator<Item = &'s SourceInfo>) -> Option<Self> {
        let head = context.head_share();
        let costs = sources.map(|source| source.cost);
        let layers = costs.map(|cost| (cost - head / AT_FIRST as f64).max(0.0)).collect();
        (head >= LEAST_HEAD).then(|| Self::of(context.model().n_vocab(), head, layers))
    }

    /// The same from numbers: the head's share of a plain step, and by source that of its layers.
    pub fn of(n_vocab: usize, head: f64, layers: Vec<f64>) -> Self {
        let shelves = n_vocab.div_ceil(SHELF);
        let all = ((n_vocab + 1) as f64).ln();
        let up_to = |id: usize| ((id.min(n_vocab) + 1) as f64).ln() / all;
        let expected = |shelf: usize| PRIOR * (up_to((shelf + 1) * SHELF) - up_to(shelf * SHELF));
        Frequent {
            n_vocab,
            head,
            layers,
            tokens: (0..shelves).map(expected).collect(),
            rank: (0..shelves as u32).collect(),
            order: (0..shelves as u32).collect(),
            read: 0,
            ordered: 0,
            looked: PRIOR_MISSES,
            had: ONE_OF.map(|one_of| PRIOR_MISSES * up_to(n_vocab / one_of)),
            lists: Default::default(),
        }
    }

    /// Counts the new tokens of a text that only grows.
    pub fn read(&mut self, text: &[u32]) {
        for &token in text.get(self.read..).unwrap_or_default() {
            let shelf = token as usize / SHELF;
            let rank = self.rank[shelf] as usize;
            self.looked += 1.0;
            for (had, one_of) in self.had.iter_mut().zip(ONE_OF) {
                *had += f64::from(u8::from(rank < self.order.len() / one_of));
            }
            self.tokens[shelf] += 1.0;
            self.read += 1;
            if self.read - self.ordered >= EVERY.max(self.ordered / 8) {
                self.order();
            }
        }
    }

    fn order(&mut self) {
        let tokens = &self.tokens;
        self.order.sort_by(|&a, &b| tokens[b as usize].total_cmp(&tokens[a as usize]).then(a.cmp(&b)));
        for (rank, &shelf) in (0..).zip(&self.order) {
            self.rank[shelf as usize] = rank;
        }
        self.lists = Default::default();
        self.ordered = self.read;
    }

    /// The tokens that a source's drafts choose from; `None`: the whole vocabulary.
    pub fn list_for(&mut self, source: usize) -> Option<Arc<Shortlist>> {
        let layers = self.layers.get(source)?;
        // A token that is not on the list ends the draft: it is lost, and so are those that would have followed.
        let worth = |has: f64, one_of: f64| has * has / (layers + self.head / one_of + ROW);
        let by_length = std::iter::zip(self.had, ONE_OF).map(|(had, n)| worth(had / self.looked, n as f64));
        let (best, value) = by_length.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        if value > worth(1.0, 1.0) { self.list(best) } else { None }
    }

    /// The list of one of [`ONE_OF`] tokens; `None` where the vocabulary is too small for it.
    pub fn list(&mut self, which: usize) -> Option<Arc<Shortlist>> {
        let (n_vocab, best) = (self.n_vocab, &self.order[..self.order.len() / ONE_OF[which]]);
        let made = || Arc::new(Shortlist::new(n_vocab, best.iter().copied()));
        (!best.is_empty()).then(|| self.lists[which].get_or_insert_with(made).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOCABULARY: usize = 32_000;

    #[test]
    fn a_text_of_few_tokens_has_a_short_list_that_has_them() {
        let mut frequent = Frequent::of(VOCABULARY, 0.4, vec![0.2]);
        let text: Vec<u32> = (0..600).map(|i| 20_000 + 97 * (i % 40)).collect();
        frequent.read(&text);
        let list = frequent.list_for(0).expect("it pays");
        assert!(list.share() < 0.2, "{}", list.share());
        assert!(text.iter().all(|&token| list.contains(token)));
    }

    #[test]
    fn a_text_that_says_nothing_twice_has_all_tokens() {
        let mut frequent = Frequent::of(VOCABULARY, 0.4, vec![0.5]);
        let text: Vec<u32> =
            (0..2000u32).map(|i| i.wrapping_mul(2_654_435_761) % VOCABULARY as u32).collect();
        (0..=text.len()).step_by(10).for_each(|end| frequent.read(&text[..end]));
        assert_eq!(frequent.list_for(0), None);
    }

    #[test]
    fn a_head_that_costs_little_beside_its_layers_is_whole() {
        let mut dear = Frequent::of(VOCABULARY, 0.5, vec![0.1]);
        let mut cheap = Frequent::of(VOCABULARY, 0.03, vec![0.9]);
        assert!(dear.list_for(0).is_some());
        assert_eq!(cheap.list_for(0), None);
        // No such source drafts with layers.
        assert_eq!(dear.list_for(1), None);
    }
}
