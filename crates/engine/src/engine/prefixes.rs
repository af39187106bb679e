//! Texts that have ended and stay in the cache while there is room. A prompt with the same beginning reuses their cells.

use super::Maker;
use crate::batch::SeqId;

/// A text that stays in the cache.
pub(super) struct Kept {
    pub seq: SeqId,
    pub maker: Maker,
    /// The tokens in its cells.
    pub tokens: Vec<u32>,
    /// The slot where it was made.
    pub slot: usize,
    made: u64,
    used: u64,
}

/// The texts that stay in the cache.
pub(super) struct Prefixes {
    most: usize,
    kept: Vec<Kept>,
    clock: u64,
}

impl Prefixes {
    /// With room for so many texts.
    pub fn new(most: usize) -> Self {
        Prefixes { most, kept: Vec::new(), clock: 0 }
    }

    /// Keeps a text, `tokens` of which are in the cells of `seq`. Returns the sequences that are not needed any more: the oldest if
    /// there are too many, and those of the same slot that are a beginning of this one.
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

    /// The texts whose keys and values a text with this maker can share.
    pub fn made_by<'a>(&'a self, maker: &'a Maker) -> impl Iterator<Item = &'a Kept> {
        self.kept.iter().filter(move |kept| kept.maker == *maker)
    }

    /// The text that a slot made last.
    pub fn last_of(&self, slot: usize) -> Option<&Kept> {
        self.kept.iter().filter(|kept| kept.slot == slot).max_by_key(|kept| kept.made)
    }

    /// When a text of a slot was last used; 0 if there is none.
    pub fn last_use(&self, slot: usize) -> u64 {
        let uses = self.kept.iter().filter(|kept| kept.slot == slot).map(|kept| kept.used);
        uses.max().unwrap_or(0)
    }

    /// Marks a text as used, and returns its slot.
    pub fn used(&mut self, seq: SeqId) -> Option<usize> {
        self.clock += 1;
        let kept = self.kept.iter_mut().find(|kept| kept.seq == seq)?;
        kept.used = self.clock;
        Some(kept.slot)
    }

    /// Removes the text that was not used for the longest time.
    pub fn pop_oldest(&mut self) -> Option<SeqId> {
        let oldest = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.used)?.0;
        Some(self.kept.swap_remove(oldest).seq)
    }

    /// Removes all texts of a slot.
    pub fn drop_of(&mut self, slot: usize) -> Vec<SeqId> {
        self.kept.extract_if(.., |kept| kept.slot == slot).map(|kept| kept.seq).collect()
    }
}
