//! The texts that a small context has evaluated. Texts that have ended stay while there is room, for texts with the same beginning:
//! a conversation comes back with every turn.

use std::collections::{HashMap, VecDeque};

use crate::{Context, batch::SeqId};

/// Texts that have ended, at most.
const MOST_ENDED: usize = 16;

#[derive(Default)]
pub(super) struct ReadTexts {
    /// The tokens of each sequence.
    known: HashMap<SeqId, Vec<u32>>,
    /// Those of texts that have ended, the oldest first.
    ended: VecDeque<SeqId>,
    last: SeqId,
}

impl ReadTexts {
    /// A sequence for a new text.
    pub fn add(&mut self) -> SeqId {
        self.last += 1;
        self.last
    }

    /// The evaluated tokens of a sequence.
    pub fn tokens(&mut self, seq: SeqId) -> &mut Vec<u32> {
        self.known.entry(seq).or_default()
    }

    /// Lets a sequence begin with these tokens: it keeps those that it has, or takes over those of another one, whichever are more.
    /// Returns how many these are; `None` if it cannot be cut to them.
    pub fn begin(&mut self, context: &mut Context, seq: SeqId, tokens: &[u32]) -> Option<usize> {
        let same = |known: &[u32]| std::iter::zip(known, tokens).take_while(|(a, b)| a == b).count();
        let own = context.kv().restorable(seq, same(self.tokens(seq)));
        let others = self.known.iter().filter(|(other, _)| **other != seq);
        let others = others.map(|(&other, known)| (context.kv().restorable(other, same(known)), other));
        // Among equals the sequence with the lowest id, so that runs are alike.
        let best = others.max_by_key(|&(same, other)| (same, std::cmp::Reverse(other)));
        let kept = match best.filter(|(same, _)| *same > own) {
            Some((same, other)) => {
                context.remove(seq);
                context.fork(other, seq);
                same
            }
            None => own,
        };
        context.truncate(seq, kept).ok()?;
        *self.tokens(seq) = tokens[..kept].to_vec();
        Some(kept)
    }

    /// Removes all tokens of a sequence.
    pub fn forget(&mut self, context: &mut Context, seq: SeqId) {
        context.remove(seq);
        self.known.remove(&seq);
    }

    /// Marks a text as ended.
    pub fn end(&mut self, context: &mut Context, seq: SeqId) {
        self.ended.push_back(seq);
        while self.ended.len() > MOST_ENDED {
            self.let_go(context);
        }
    }

    /// Frees so many cells, if that is possible without those of this sequence. Texts that have ended are removed first, then the
    /// others, which are evaluated again when they go on.
    pub fn make_room(&mut self, context: &mut Context, seq: SeqId, cells: usize) {
        while context.kv().free_cells() < cells && self.let_go(context) {}
        if context.kv().free_cells() < cells {
            self.known.keys().filter(|other| **other != seq).for_each(|other| context.remove(*other));
            self.known.retain(|other, _| *other == seq);
        }
    }

    /// Removes the text that has ended first.
    fn let_go(&mut self, context: &mut Context) -> bool {
        let Some(oldest) = self.ended.pop_front() else { return false };
        context.remove(oldest);
        self.known.remove(&oldest);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, ContextConfig, Model};

    struct Reader {
        context: Context,
        read: ReadTexts,
    }

    impl Reader {
        /// Reads a text as a new one; gives its sequence and how much of it was there.
        fn reads(&mut self, text: &[u32]) -> (SeqId, usize) {
            let seq = self.read.add();
            let kept = self.read.begin(&mut self.context, seq, text).unwrap();
            self.read.make_room(&mut self.context, seq, text.len() - kept);
            if kept < text.len() {
                self.context.decode(&Batch::prompt(&text[kept..], kept as u32, seq)).unwrap();
                self.read.tokens(seq).extend(&text[kept..]);
            }
            (seq, kept)
        }
    }

    fn reader(n_ctx: u32) -> Reader {
        let config = ContextConfig { n_ctx, threads: 1, ..ContextConfig::default() };
        Reader {
            context: Context::new(Model::embedded().unwrap(), &config).unwrap(),
            read: ReadTexts::default(),
        }
    }

    fn text(begin: u32, len: u32) -> Vec<u32> {
        (begin..begin + len).collect()
    }

    #[test]
    fn a_new_text_takes_over_what_another_has_of_it() {
        let mut reader = reader(128);
        let (first, kept) = reader.reads(&text(10, 20));
        assert_eq!(kept, 0);
        // Of one that is still being made, and of one that has ended.
        assert_eq!(reader.reads(&[text(10, 12), text(90, 3)].concat()).1, 12);
        let Reader { context, read } = &mut reader;
        read.end(context, first);
        assert_eq!(reader.reads(&text(10, 25)).1, 20);
        assert_eq!(reader.reads(&text(11, 5)).1, 0);
    }

    #[test]
    fn texts_that_have_ended_go_first_where_room_is_short() {
        let mut reader = reader(64);
        let (ended, _) = reader.reads(&text(10, 20));
        let Reader { context, read } = &mut reader;
        read.end(context, ended);
        let (running, _) = reader.reads(&text(100, 20));
        reader.reads(&text(200, 40));
        assert!(reader.context.kv().is_empty(ended) && !reader.context.kv().is_empty(running));
        // Then those that go on.
        reader.reads(&text(300, 40));
        assert!(reader.context.kv().is_empty(running));
    }

    #[test]
    fn only_so_many_ended_texts_stay() {
        let mut reader = reader(256);
        for i in 0..=MOST_ENDED as u32 {
            let (seq, _) = reader.reads(&text(10 * i + 10, 3));
            let Reader { context, read } = &mut reader;
            read.end(context, seq);
        }
        assert_eq!(reader.context.kv().capacity() - reader.context.kv().free_cells(), 3 * MOST_ENDED);
    }
}
