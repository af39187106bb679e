//! Texts that have ended and stay in the cache while there is room: a prompt that begins alike begins with their cells.

use crate::{RunLayers, batch::SeqId};

struct Kept {
    seq: SeqId,
    mask: Option<RunLayers>,
    tokens: Vec<u32>,
    used: u64,
}

/// Which texts stay.
#[derive(Default)]
pub(super) struct Prefixes {
    kept: Vec<Kept>,
    clock: u64,
}

impl Prefixes {
    /// Keeps a text, `tokens` of which are in the cells of `seq`. Returns sequences that are not needed any more: the oldest
    /// where there are more than `most`, and those that this one begins with.
    pub fn keep(&mut self, seq: SeqId, mask: Option<RunLayers>, tokens: Vec<u32>, most: usize) -> Vec<SeqId> {
        let mut dropped = Vec::new();
        let is_part = |kept: &mut Kept| kept.mask == mask && tokens.starts_with(&kept.tokens);
        dropped.extend(self.kept.extract_if(.., is_part).map(|kept| kept.seq));
        self.clock += 1;
        self.kept.push(Kept { seq, mask, tokens, used: self.clock });
        while self.kept.len() > most {
            dropped.extend(self.pop_oldest());
        }
        dropped
    }

    /// Those whose keys and values a text under `mask` has too.
    pub fn under<'a>(&'a self, mask: &'a Option<RunLayers>) -> impl Iterator<Item = (SeqId, &'a [u32])> {
        let alike = self.kept.iter().filter(move |kept| kept.mask == *mask);
        alike.map(|kept| (kept.seq, kept.tokens.as_slice()))
    }

    /// It has been of use.
    pub fn used(&mut self, seq: SeqId) {
        self.clock += 1;
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.seq == seq) {
            kept.used = self.clock;
        }
    }

    /// Lets go of the one that was not used for longest.
    pub fn pop_oldest(&mut self) -> Option<SeqId> {
        let oldest = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.used)?.0;
        Some(self.kept.swap_remove(oldest).seq)
    }
}
