//! Texts that have ended and stay in the cache while there is room: a prompt that begins alike begins with their cells.

use super::Maker;
use crate::batch::SeqId;

/// A text that stays.
pub(super) struct Kept {
    pub seq: SeqId,
    pub maker: Maker,
    /// What its cells hold.
    pub tokens: Vec<u32>,
    /// Where it was made.
    pub slot: usize,
    made: u64,
    used: u64,
}

/// Which texts stay.
pub(super) struct Prefixes {
    most: usize,
    kept: Vec<Kept>,
    clock: u64,
}

impl Prefixes {
    /// Room for so many.
    pub fn new(most: usize) -> Self {
        Prefixes { most, kept: Vec::new(), clock: 0 }
    }

    /// Keeps a text, `tokens` of which are in the cells of `seq`. Returns sequences that are not needed any more: the oldest
    /// where there are too many, and those of the same slot that this one begins with.
    pub fn keep(&mut self, seq: SeqId, maker: Maker, tokens: Vec<u32>, slot: usize) -> Vec<SeqId> {
        let mut dropped = Vec::new();
        let is_part =
            |kept: &mut Kept| kept.slot == slot && kept.maker == maker && tokens.starts_with(&kept.tokens);
        dropped.extend(self.kept.extract_if(.., is_part).map(|kept| kept.seq));
        self.clock += 1;
        self.kept.push(Kept { seq, maker, tokens, slot, made: self.clock, used: self.clock });
        while self.kept.len() > self.most {
            dropped.extend(self.pop_oldest());
        }
        dropped
    }

    /// Those whose keys and values a text that is made so has too.
    pub fn made_by<'a>(&'a self, maker: &'a Maker) -> impl Iterator<Item = &'a Kept> {
        self.kept.iter().filter(move |kept| kept.maker == *maker)
    }

    /// The text that a slot made last.
    pub fn last_of(&self, slot: usize) -> Option<&Kept> {
        self.kept.iter().filter(|kept| kept.slot == slot).max_by_key(|kept| kept.made)
    }

    /// When something of a slot was of use; 0 where there is nothing of it.
    pub fn last_use(&self, slot: usize) -> u64 {
        let uses = self.kept.iter().filter(|kept| kept.slot == slot).map(|kept| kept.used);
        uses.max().unwrap_or(0)
    }

    /// It has been of use; says whose it is.
    pub fn used(&mut self, seq: SeqId) -> Option<usize> {
        self.clock += 1;
        let kept = self.kept.iter_mut().find(|kept| kept.seq == seq)?;
        kept.used = self.clock;
        Some(kept.slot)
    }

    /// Lets go of the one that was not used for longest.
    pub fn pop_oldest(&mut self) -> Option<SeqId> {
        let oldest = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.used)?.0;
        Some(self.kept.swap_remove(oldest).seq)
    }

    /// Lets go of all that a slot made.
    pub fn drop_of(&mut self, slot: usize) -> Vec<SeqId> {
        self.kept.extract_if(.., |kept| kept.slot == slot).map(|kept| kept.seq).collect()
    }
}
