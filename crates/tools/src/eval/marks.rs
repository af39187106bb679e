//! Where drafts may begin in a text that was evaluated in full: at many positions, in any order, as often as wanted.
//!
//! Keys and values can be cut anywhere, but a recurrent layer has one state. So its model goes through a text in short
//! batches, and a sequence stays behind each: a cut goes from there through the rows of the batch once more. That takes a
//! state for many positions, where a state for each of them would not fit for large models.

use std::ops::Range;

use crate::{Context, Result, batch::SeqId, kv::MOST_REPLAYED};

/// Rows of a batch that a cut goes through again. More take fewer states and longer cuts.
const ROWS: usize = 32;
const _: () = assert!(ROWS <= MOST_REPLAYED);
/// Forks at a time, as each has a state before and one after its rows.
const FORKS: usize = 16;
const STATES_OF_FORK: usize = 2;

/// Sequences to which drafts go back.
#[derive(Debug)]
pub struct Marks {
    of: Vec<Mark>,
    first: SeqId,
}

#[derive(Debug)]
struct Mark {
    text: SeqId,
    /// Lengths that `seq` can be cut to.
    positions: Range<usize>,
    seq: SeqId,
}

impl Marks {
    /// None yet. From `first` on, sequences are theirs and their forks'.
    pub fn new(first: SeqId) -> Self {
        Marks { of: Vec::new(), first }
    }

    /// The sequence `text` has just evaluated a batch of these positions: forks may begin at them.
    pub fn set(&mut self, context: &mut Context, text: SeqId, positions: Range<usize>) {
        let seq = self.forks();
        context.fork(text, seq);
        self.of.push(Mark { text, positions, seq });
    }

    /// The first of the sequences that forks may have.
    pub fn forks(&self) -> SeqId {
        self.first + self.of.len() as SeqId
    }

    /// Makes `fork` the first `len` tokens of a text.
    ///
    /// # Panics
    /// If no mark was set there.
    pub fn fork(&self, context: &mut Context, text: SeqId, len: usize, fork: SeqId) -> Result<()> {
        let mark = self.of.iter().find(|mark| mark.text == text && mark.positions.contains(&len));
        context.fork(mark.expect("a mark for each judged position").seq, fork);
        context.truncate(fork, len)
    }

    /// Forgets them.
    pub fn remove(&mut self, context: &mut Context) {
        self.of.drain(..).for_each(|mark| context.remove(mark.seq));
    }
}

/// Rows of a batch behind which a mark may be set.
pub fn most_rows(context: &Context) -> usize {
    if context.model().plan.mixers.is_empty() { usize::MAX } else { ROWS }
}

/// Forks that there may be at a time.
pub fn most_forks(context: &Context) -> usize {
    if context.model().plan.mixers.is_empty() { usize::MAX } else { FORKS }
}

/// States of recurrent layers that forks take.
pub const STATES_OF_FORKS: usize = FORKS * STATES_OF_FORK;

/// And marks at these positions, where batches begin at `from` or each [`most_rows`] of a text: what the first batch
/// goes on from, and what each of them leaves.
pub fn states_at(positions: Range<usize>, from: usize) -> usize {
    let batch = |pos: usize| (pos - from) / ROWS;
    let batches = batch(positions.end - 1) - batch(positions.start) + 1;
    batches + usize::from(batch(positions.start) > 0 || from > 0)
}
