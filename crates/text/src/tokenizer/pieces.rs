//! The bytes that each token stands for, all in one allocation.

use super::{
    bpe::char_byte,
    vocab::{TokenKind, Vocab, byte_of},
};

pub(super) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pieces {
    /// Where spaces are written `▁`.
    pub fn spaced(vocab: &Vocab) -> Self {
        Self::new(vocab, |text, bytes| {
            let mut words = text.split('▁');
            bytes.extend(words.next().unwrap_or_default().bytes());
            for word in words {
                bytes.push(b' ');
                bytes.extend(word.bytes());
            }
        })
    }

    pub fn byte_level(vocab: &Vocab) -> Self {
        Self::new(vocab, |text, bytes| {
            for c in text.chars() {
                match char_byte(c) {
                    Some(byte) => bytes.push(byte),
                    // Not the spelling of a byte: a text that was added as it is.
                    None => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
                }
            }
        })
    }

    fn new(vocab: &Vocab, normal: impl Fn(&str, &mut Vec<u8>)) -> Self {
        let mut pieces = Pieces { bytes: Vec::new(), ends: Vec::with_capacity(vocab.len()) };
        for (id, text) in (0..).zip(vocab.texts()) {
            let kind = vocab.kind(id);
            let bytes = &mut pieces.bytes;
            if kind.is(TokenKind::CONTROL.or(TokenKind::UNKNOWN).or(TokenKind::USER_DEFINED)) {
                bytes.extend_from_slice(text.as_bytes());
            } else if kind.is(TokenKind::BYTE)
                && let Some(byte) = byte_of(text)
            {
                bytes.push(byte);
            } else if kind.is(TokenKind::NORMAL.or(TokenKind::BYTE)) {
                normal(text, bytes);
            }
            pieces.ends.push(pieces.bytes.len());
        }
        pieces
    }

    pub fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..end]
    }
}
