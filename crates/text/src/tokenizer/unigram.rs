//! Unigram vocabularies of SentencePiece, as XLM-R and T5 have them: of all ways to take a text apart, the one whose scores have
//! the greatest sum. Before that characters are replaced as the file's table says.

use super::{
    charsmap::CharsMap,
    spaces::SPACE,
    vocab::{TokenKind, Vocab},
};
use crate::{Error, Result, gguf::Metadata};

/// A character without a token costs so much more than the rarest token.
const UNKNOWN_PENALTY: f32 = 10.0;

pub(super) struct Unigram {
    space_prefix: bool,
    space_suffix: bool,
    merges_spaces: bool,
    map: CharsMap,
    /// Tokens in the order of their texts.
    sorted: Vec<u32>,
    /// Where those begin whose text has a first byte.
    by_first: Vec<u32>,
    unknown: u32,
    unknown_score: f64,
}

/// The best way to a place in a text: its last token, where that begins, and the sum of the scores.
#[derive(Clone, Copy)]
struct Best {
    token: u32,
    from: usize,
    score: f64,
}

impl Unigram {
    pub fn new(metadata: &Metadata, vocab: &Vocab, unknown: Option<u32>) -> Result<Self> {
        if vocab.scores().is_empty() {
            return Err(Error::Tokenizer(
                "no `tokenizer.ggml.scores`, which a unigram vocabulary (`t5`) needs; convert the model again".into(),
            ));
        }
        let unknown = unknown.ok_or_else(|| metadata.missing("tokenizer.ggml.unknown_token_id"))?;
        let kinds = TokenKind::NORMAL.or(TokenKind::USER_DEFINED).or(TokenKind::UNUSED);
        let mut sorted: Vec<u32> = vocab.of_kind(kinds).collect();
        sorted.sort_unstable_by_key(|&id| vocab.text(id));
        let first = |id: u32| vocab.text(id).bytes().next().map_or(0, usize::from);
        let by_first = (0..=256).map(|byte| sorted.partition_point(|&id| first(id) < byte) as u32).collect();
        let normal = vocab.of_kind(TokenKind::NORMAL).map(|id| vocab.scores()[id as usize]);
        let least = normal.fold(f32::MAX, f32::min);
        let flag = |key: &str| metadata.bool(key).map(|given| given.unwrap_or(false));
        let (adds, suffix) =
            (flag("tokenizer.ggml.add_space_prefix")?, flag("tokenizer.ggml.treat_whitespace_as_suffix")?);
        Ok(Unigram {
            space_prefix: adds && !suffix,
            space_suffix: adds && suffix,
            merges_spaces: flag("tokenizer.ggml.remove_extra_whitespaces")?,
            map: CharsMap::read(metadata)?,
            sorted,
            by_first,
            unknown,
            unknown_score: f64::from(least - UNKNOWN_PENALTY),
        })
    }

    /// Whether a space stands before a text's first word that the text does not have.
    pub fn has_space_prefix(&self) -> bool {
        self.space_prefix || self.merges_spaces
    }

    /// Appends the ids of a text that holds no special tokens.
    pub fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        let text = self.normalize(text);
        let nothing = Best { token: self.unknown, from: 0, score: f64::NEG_INFINITY };
        let mut best = vec![nothing; text.len() + 1];
        best[0].score = 0.0;
        for (from, character) in text.char_indices() {
            let score = best[from].score;
            let mut offer = |token: u32, to: usize, score: f64| {
                if score > best[to].score {
                    best[to] = Best { token, from, score };
                }
            };
            let alone = from + character.len_utf8();
            let mut has_alone = false;
            self.prefixes(vocab, &text[from..], |token, len| {
                let is_given = vocab.kind(token).is(TokenKind::USER_DEFINED);
                let gain = if is_given { 0.0 } else { f64::from(vocab.scores()[token as usize]) };
                offer(token, from + len, score + gain);
                has_alone |= from + len == alone;
            });
            if !has_alone {
                offer(self.unknown, alone, score + self.unknown_score);
            }
        }
        let first = ids.len();
        let mut at = text.len();
        while at > 0 {
            let Best { token, from, .. } = best[at];
            // Unknown characters beside each other are one unknown token.
            if token != self.unknown || ids.len() == first || ids.last() != Some(&token) {
                ids.push(token);
            }
            at = from;
        }
        ids[first..].reverse();
    }

    /// The tokens that a text begins with, and how many bytes each has, the shortest first.
    fn prefixes(&self, vocab: &Vocab, text: &str, mut found: impl FnMut(u32, usize)) {
        let bytes = text.as_bytes();
        let Some(&first) = bytes.first() else { return };
        let of_first = |byte: usize| self.by_first[byte] as usize;
        let mut range = of_first(first.into())..of_first(usize::from(first) + 1);
        for (len, &byte) in (1..).zip(bytes) {
            let among = &self.sorted[range.clone()];
            let at = |id: &u32| vocab.text(*id).as_bytes().get(len - 1).map_or(-1, |&b| i32::from(b));
            let begin = range.start + among.partition_point(|id| at(id) < i32::from(byte));
            let end = range.start + among.partition_point(|id| at(id) <= i32::from(byte));
            range = begin..end;
            match self.sorted[range.clone()].first() {
                None => return,
                Some(&id) if vocab.text(id).len() == len => found(id, len),
                Some(_) => {}
            }
        }
    }

    fn normalize(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() * 5 / 4 + 3);
        let (mut has_prefix, mut in_word) = (false, false);
        self.map.replace(text, |c| {
            if c != ' ' {
                if !in_word && (self.merges_spaces || self.space_prefix && !has_prefix) {
                    out.push(SPACE);
                    has_prefix = true;
                }
                in_word = true;
                out.push(c);
            } else {
                in_word = false;
                if !self.merges_spaces {
                    out.push(SPACE);
                }
            }
        });
        if self.space_suffix {
            out.push(SPACE);
        }
        out
    }
}
