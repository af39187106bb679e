//! SentencePiece's table of characters that are replaced before a text is taken apart: a double array (`XCDA` of Kanda, 2018)
//! that finds the longest text which is replaced, and the texts that come in its place.

use crate::{Error, Result, gguf::Metadata};

const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// Empty where nothing is replaced.
#[derive(Default)]
pub(super) struct CharsMap {
    /// Base, check and whether a text ends here, in a word each.
    nodes: Vec<u32>,
    /// Each ends with a zero.
    replacements: Vec<u8>,
}

impl CharsMap {
    pub fn read(metadata: &Metadata) -> Result<Self> {
        let bytes = metadata.bytes(KEY)?.unwrap_or_default();
        if bytes.is_empty() {
            return Ok(CharsMap::default());
        }
        let damaged = || Error::Tokenizer(format!("`{KEY}` is damaged: convert the model again"));
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
        let size = u32::from_le_bytes(*size) as usize;
        let (nodes, replacements) = rest.split_at_checked(size).ok_or_else(damaged)?;
        let map = CharsMap {
            nodes: nodes.as_chunks::<4>().0.iter().map(|node| u32::from_le_bytes(*node)).collect(),
            replacements: replacements.to_vec(),
        };
        let is_text =
            std::str::from_utf8(&map.replacements).is_ok() && replacements.last().is_none_or(|&b| b == 0);
        if is_text { Ok(map) } else { Err(damaged()) }
    }

    /// Gives the characters of a text after replacement.
    pub fn replace(&self, text: &str, mut give: impl FnMut(char)) {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match self.longest(rest) {
                Some((len, replacement)) => {
                    replacement.chars().for_each(&mut give);
                    rest = &rest[len..];
                }
                None => {
                    give(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
    }

    /// The longest beginning of a text that is replaced: its bytes, and what comes in its place.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let base = |node: u32| (node >> 10) << ((node & (1 << 9)) >> 6);
        let mut found = None;
        let mut at = base(*self.nodes.first()?);
        for (len, byte) in (1..).zip(text.bytes()) {
            at ^= u32::from(byte);
            // What a damaged table leads to is not there.
            let Some(&node) = self.nodes.get(at as usize) else { break };
            if byte == 0 || node & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            at ^= base(node);
            if node >> 8 & 1 == 1 && text.is_char_boundary(len) {
                let place = self.nodes.get(at as usize).map(|leaf| (leaf & !(1 << 31)) as usize);
                let replacement = place.and_then(|place| self.replacement(place));
                found = replacement.map(|replacement| (len, replacement)).or(found);
            }
        }
        found
    }

    fn replacement(&self, at: usize) -> Option<&str> {
        let rest = self.replacements.get(at..)?;
        let len = rest.iter().position(|&b| b == 0)?;
        std::str::from_utf8(&rest[..len]).ok()
    }
}
