//! Which tokens a draft chooses from. The head reads a row of weights for each token of the vocabulary, and most tokens hardly
//! ever come: a draft by the frequent ones costs less, and verification, which has all of them, gives the same text.
//!
//! What is frequent is counted in the text itself, prompt and all; before there is text, tokens are as frequent as their ids are
//! low, which is how vocabularies made by merging come about. How long the list is, follows from what lists of each length
//! would have missed in this text.

use std::sync::Arc;

use super::policy::SourceInfo;
use crate::{
    Context,
    shortlist::{SHELF, Shortlist},
};

/// Lists have one of so many tokens.
pub const ONE_OF: [usize; 5] = [32, 16, 8, 4, 2];
/// What costs of drafts are guessed with, before there is text.
const AT_FIRST: usize = 8;
/// The order by ids counts as much as a text of so many tokens.
const PRIOR: f64 = 512.0;
/// What lists would miss by that order counts as much as so many tokens that were seen to be missed or not.
const PRIOR_MISSES: f64 = 16.0;
/// The order is made anew after so many tokens, and more as the text grows.
const EVERY: usize = 32;
/// A drafted token takes a row of the verification too, in plain steps.
const ROW: f64 = 0.15;
/// Below this share of a plain step the head is not worth the trouble.
const LEAST_HEAD: f64 = 0.02;

/// The share of a plain step that a draft takes which would take `whole` with the whole vocabulary.
pub fn draft_cost(context: &Context, whole: f64) -> f64 {
    let head = context.head_share();
    if head < LEAST_HEAD { whole } else { whole - head * saved(AT_FIRST) }
}

/// What drafts choose from where there is no text yet, as [`draft_cost`] has it.
pub fn at_first(context: &Context) -> Option<Arc<Shortlist>> {
    let n_vocab = context.model().n_vocab();
    let list = || Arc::new(Shortlist::first(n_vocab, n_vocab.div_ceil(AT_FIRST)));
    (context.head_share() >= LEAST_HEAD).then(list)
}

/// What of the head a list of one of so many tokens saves.
fn saved(one_of: usize) -> f64 {
    1.0 - 1.0 / one_of as f64
}

/// How often the tokens of a vocabulary come in a text.
pub struct Frequent {
    n_vocab: usize,
    /// The head's share of a plain step.
    head: f64,
    /// By source, what a draft takes beside the head.
    layers: Vec<f64>,
    /// By shelf, tokens of it: those seen, and those expected by its place.
    tokens: Vec<f64>,
    /// By shelf, how many others come more often.
    rank: Vec<u32>,
    /// The same the other way round.
    order: Vec<u32>,
    /// So many tokens of the text are counted.
    read: usize,
    /// The order is by so many of them.
    ordered: usize,
    /// Tokens that were looked at, and how many of them each list had.
    looked: f64,
    had: [f64; ONE_OF.len()],
    /// The lists by the present order that were asked for.
    lists: [Option<Arc<Shortlist>>; ONE_OF.len()],
}

impl Frequent {
    /// For a text that these sources draft for; `None` where a shorter head saves nothing.
    pub fn new<'s>(context: &Context, sources: impl Iterator<Item = &'s SourceInfo>) -> Option<Self> {
        let head = context.head_share();
        let costs = sources.map(|source| source.cost);
        let layers = costs.map(|cost| (cost - head / AT_FIRST as f64).max(0.0)).collect();
        (head >= LEAST_HEAD).then(|| Self::of(context.model().n_vocab(), head, layers))
    }

    /// The same by numbers: the head's share of a plain step, and by source that of its layers.
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

    /// Counts what is new of a text that only grows.
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

    /// What a source's drafts choose from; `None` is the whole vocabulary.
    pub fn list_for(&mut self, source: usize) -> Option<Arc<Shortlist>> {
        let layers = self.layers.get(source)?;
        // A token that is missing ends the draft: it is lost, and those that would have followed.
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
