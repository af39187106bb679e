//! Ids to text while they arrive: complete characters only.

use super::Tokenizer;

/// Holds back the bytes of an unfinished character. Control tokens are left out unless asked for.
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    utf8: Utf8,
    show_control: bool,
}

/// Text out of bytes that may end in the middle of a character.
#[derive(Clone, Debug, Default)]
pub struct Utf8 {
    pending: Vec<u8>,
}

impl Utf8 {
    /// The text that is complete now; what can still become a character waits. Bytes that no longer can are
    /// given as U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let complete = self.pending.len() - unfinished(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..complete]).into_owned();
        self.pending.drain(..complete);
        text
    }

    /// What is left: U+FFFD for a character that was never finished.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

impl<'t> StreamDecoder<'t> {
    /// A decoder at the start of a text.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        StreamDecoder { tokenizer, utf8: Utf8::default(), show_control: false }
    }

    /// Writes control tokens such as `</s>` as their texts.
    pub fn show_control(mut self, show: bool) -> Self {
        self.show_control = show;
        self
    }

    /// The text that is complete now: see [`Utf8::push`].
    pub fn push(&mut self, id: u32) -> String {
        let shown = self.show_control || !self.tokenizer.is_control(id);
        self.utf8.push(if shown { self.tokenizer.piece(id) } else { &[] })
    }

    /// What is left: U+FFFD for a character that was never finished. The decoder can be used again.
    pub fn finish(&mut self) -> String {
        self.utf8.finish()
    }
}

/// How many bytes at the end begin a character without finishing it.
fn unfinished(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(_) => return 0,
            Err(e) => match e.error_len() {
                None => return rest.len() - e.valid_up_to(),
                Some(bad) => rest = &rest[e.valid_up_to() + bad..],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_beginning_counts_as_unfinished() {
        let cases: [(&[u8], usize); 8] = [
            (b"", 0),
            (b"a", 0),
            ("é".as_bytes(), 0),
            (b"a\xC3", 1),
            (b"\xF0\x9F\x92", 3),
            (b"\x80", 0),
            (b"\xFF\xE2\x82", 2),
            // An overlong form can never become a character.
            (b"\xC0", 0),
        ];
        for (bytes, count) in cases {
            assert_eq!(unfinished(bytes), count, "{bytes:x?}");
        }
    }
}
