//! Remembers how the words of one text were encoded: words repeat, and no token spans two of them.

use std::{collections::HashMap, ops::Range};

/// Words → where their ids stand in the output. Lives as long as the encoding of one text, so it needs no lock
/// and no limit.
#[derive(Default)]
pub(super) struct Memo<'t> {
    seen: HashMap<&'t str, Range<usize>>,
}

impl<'t> Memo<'t> {
    /// Appends the ids of `word`: those of its last occurrence, or else those that `encode` appends.
    pub fn append(&mut self, word: &'t str, ids: &mut Vec<u32>, encode: impl FnOnce(&mut Vec<u32>)) {
        if let Some(before) = self.seen.get(word) {
            return ids.extend_from_within(before.clone());
        }
        let start = ids.len();
        encode(ids);
        self.seen.insert(word, start..ids.len());
    }
}
