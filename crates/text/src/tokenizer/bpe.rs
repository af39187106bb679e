//! BPE: words from [`PreTokenizer`], joined by the `tokenizers` crate's BPE along the file's merges.

use std::collections::HashSet;

use tokenizers::{Model, models::bpe::BPE};

use super::{
    memo::Memo,
    pre::PreTokenizer,
    schemes::{Scheme, Spelling, WholeWords},
    spaces::{self, escape},
    vocab::Vocab,
};
use crate::{
    Error, Result,
    gguf::{Metadata, Strings},
    quoted::{Quoted, one_line},
};

const MERGES: &str = "tokenizer.ggml.merges";

pub(super) struct Bpe {
    model: BPE,
    words: PreTokenizer,
    /// Where spaces are written `▁`. Bytes are spelled where there is none.
    spaced: Option<spaces::Words>,
    /// A run of line ends that is a token is taken whole.
    whole_line_ends: bool,
}

impl Bpe {
    pub fn read(
        metadata: &Metadata,
        vocab: &Vocab,
        scheme: &Scheme,
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let merges = metadata.strings(MERGES)?.ok_or_else(|| metadata.missing(MERGES))?;
        let spaced = scheme.spelling == Spelling::Spaced;
        let token_of = |byte: u8| match spaced {
            true => vocab.id(&format!("<0x{byte:02X}>")),
            false => vocab.id(&byte_char(byte).to_string()),
        };
        let lost = (0..=255).filter(|&byte| is_written(byte) && token_of(byte).is_none()).count();
        if lost > 0 {
            warnings.push(format!(
                "{lost} byte values have no token: characters with these bytes will be damaged"
            ));
        }
        let (pairs, ids) = rayon::join(|| pairs(merges), || ids_by_text(vocab));
        let model = BPE::builder()
            .vocab_and_merges(ids, pairs?)
            .ignore_merges(scheme.whole_words == WholeWords::All)
            .byte_fallback(spaced)
            // `Memo` does that, without a lock and without copies.
            .cache_capacity(0)
            .build()
            .map_err(|e| {
                let what = one_line(&e.to_string(), 200);
                Error::Tokenizer(format!("`{MERGES}`: {what}; convert the model again"))
            })?;
        Ok(Bpe {
            model,
            words: PreTokenizer::new(scheme)?,
            spaced: spaced.then(|| spaces::Words::new(vocab)),
            whole_line_ends: scheme.whole_words == WholeWords::LineEnds,
        })
    }

    /// Appends the ids of a text that holds no special tokens.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let mut memo = Memo::default();
        let mut spelled = String::new();
        let Some(spaced) = &self.spaced else {
            return self.words.for_each_word(text, |word| {
                memo.append(word, ids, |ids| {
                    spelled.clear();
                    spelled.extend(word.bytes().map(byte_char));
                    self.join(&spelled, ids);
                });
            });
        };
        escape(text, &mut spelled);
        self.words.for_each_word(&spelled, |line| {
            for word in spaced.cut(line) {
                memo.append(word, ids, |ids| self.join(word, ids));
            }
        });
    }

    fn join(&self, word: &str, ids: &mut Vec<u32>) {
        if self.whole_line_ends
            && word.starts_with('\n')
            && let Some(id) = self.model.token_to_id(word)
        {
            return ids.push(id);
        }
        // Fails only with dropout or an unknown token set, and neither is.
        let tokens = self.model.tokenize(word).unwrap_or_default();
        ids.extend(tokens.iter().map(|token| token.id));
    }
}

/// Whether people's texts have such a byte: not control characters, nor the first bytes of planes that hold no
/// writing. Falcon and starcoder have no tokens for some of those, and nobody misses them.
fn is_written(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7E | 0x80..=0xBF | 0xC2..=0xF0)
}

fn ids_by_text(vocab: &Vocab) -> tokenizers::models::bpe::Vocab {
    (0..).zip(vocab.texts()).map(|(id, text)| (text.to_owned(), id)).collect()
}

/// The two halves of each merge; of a merge that is listed twice the first counts.
fn pairs(merges: &Strings) -> Result<Vec<(String, String)>> {
    let mut seen = HashSet::with_capacity(merges.len());
    let mut pairs = Vec::with_capacity(merges.len());
    for (rank, merge) in merges.iter().enumerate() {
        // The first half may itself begin with a space.
        let space = merge.char_indices().skip(1).find(|&(_, c)| c == ' ').map(|(at, _)| at);
        let (left, right) = match space {
            Some(at) if at + 1 < merge.len() => (&merge[..at], &merge[at + 1..]),
            _ => {
                return Err(Error::Tokenizer(format!(
                    "merge {rank} of `{MERGES}`, {}, is not two pieces with a space between",
                    Quoted(merge)
                )));
            }
        };
        if seen.insert(merge) {
            pairs.push((left.to_owned(), right.to_owned()));
        }
    }
    Ok(pairs)
}

/// GPT-2's printable stand-in for a byte: itself where it is printable, else the next free one from U+0100.
pub(super) const fn byte_char(byte: u8) -> char {
    let code = match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => byte as u32,
        0..=0x20 => 0x100 + byte as u32,
        0x7F..=0xA0 => 0x121 + (byte - 0x7F) as u32,
        0xAD => 0x143,
    };
    match char::from_u32(code) {
        Some(c) => c,
        None => unreachable!(),
    }
}

/// The inverse of [`byte_char`].
pub(super) fn char_byte(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => code,
    };
    u8::try_from(byte).ok().filter(|&byte| byte_char(byte) == c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_printable_character() {
        let chars: HashSet<char> = (0..=255).map(byte_char).collect();
        assert_eq!(chars.len(), 256);
        assert!((0..=255).all(|b| char_byte(byte_char(b)) == Some(b)));
        // As in GPT-2's vocabulary: space, line feed, DEL, soft hyphen.
        assert_eq!([0x20, 0x0A, 0x7F, 0xAD].map(byte_char), ['Ġ', 'Ċ', 'ġ', 'Ń']);
        assert_eq!([' ', '\u{AD}', '\u{144}', '漢'].map(char_byte), [None; 4]);
    }

    #[test]
    fn a_merge_is_two_pieces() {
        let pairs_of = |merge: &str| pairs(&Strings::from_iter([merge]));
        assert_eq!(pairs_of("a b").unwrap(), [("a".into(), "b".into())]);
        assert_eq!(pairs_of("  b").unwrap(), [(" ".into(), "b".into())]);
        for bad in ["", " ", "ab", "ab ", " b"] {
            assert!(pairs_of(bad).is_err(), "{bad:?}");
        }
        assert_eq!(pairs(&Strings::from_iter(["a b", "b c", "a b"])).unwrap().len(), 2);
    }
}
