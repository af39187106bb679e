//! A saved text: its tokens, and their keys, values and states. Also its file format.

use crate::{Error, Result, hash::fnv1a};

/// The first bytes of such a file, with the version of the format.
const MAGIC: &[u8; 8] = b"specrun1";

/// A text that can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedText {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its keys, values and states. `None` where the device cannot give them: then they are computed again.
    pub cells: Option<SavedCells>,
}

/// Keys, values and states of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCells {
    /// The model, and how they are stored.
    pub form: String,
    /// As [`crate::Context::save`] gives them.
    pub bytes: Vec<u8>,
}

impl SavedText {
    /// The bytes of a file: the magic, three parts with their lengths before them, and a checksum over all that.
    pub fn to_bytes(&self) -> Vec<u8> {
        let tokens: Vec<u8> = self.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let (form, cells): (&[u8], &[u8]) = match &self.cells {
            Some(cells) => (cells.form.as_bytes(), &cells.bytes),
            None => (&[], &[]),
        };
        let mut bytes = MAGIC.to_vec();
        for part in [&tokens, form, cells] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        let sum = fnv1a(bytes.iter().copied());
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads what [`SavedText::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::Input("the saved text is damaged".into());
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| {
            Error::Input("not a text that this program saved, or of another version of it".into())
        })?;
        let (_, sum) = bytes.split_last_chunk::<8>().ok_or_else(damaged)?;
        let told = &bytes[..bytes.len() - sum.len()];
        if u64::from_le_bytes(*sum) != fnv1a(told.iter().copied()) {
            return Err(damaged());
        }
        let (tokens, rest) = part(rest).ok_or_else(damaged)?;
        let (form, rest) = part(rest).ok_or_else(damaged)?;
        let (cells, rest) = part(rest).ok_or_else(damaged)?;
        let (tokens, odd) = tokens.as_chunks::<4>();
        if !odd.is_empty() || rest.len() != sum.len() {
            return Err(damaged());
        }
        let form = String::from_utf8(form.to_vec()).map_err(|_| damaged())?;
        let cells = (!form.is_empty()).then(|| SavedCells { form, bytes: cells.to_vec() });
        Ok(SavedText { tokens: tokens.iter().map(|token| u32::from_le_bytes(*token)).collect(), cells })
    }
}

/// Splits off a part with its length before it.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_and_a_damaged_one_is_told() {
        let cells = SavedCells { form: "f16 f16".into(), bytes: vec![1, 2, 3] };
        let all = [
            SavedText { tokens: vec![1, 70_000], cells: Some(cells) },
            SavedText { tokens: vec![5], cells: None },
            SavedText { tokens: vec![], cells: None },
        ];
        for text in all {
            let bytes = text.to_bytes();
            assert_eq!(SavedText::from_bytes(&bytes).unwrap(), text);
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 16;
                assert!(SavedText::from_bytes(&changed).is_err(), "byte {at}");
                assert!(SavedText::from_bytes(&bytes[..at]).is_err(), "{at} bytes");
            }
        }
        let told = SavedText::from_bytes(b"ggsq").unwrap_err().to_string();
        assert!(told.contains("not a text that this program saved"), "{told}");
    }
}
