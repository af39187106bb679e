//! The vocabulary as the file states it: texts, kinds and scores, every length and id checked.

use crate::{
    Error, Result,
    gguf::{Metadata, NameIndex, Strings},
    quoted::Quoted,
};

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";

/// What a token is; a token can be several things at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenKind(u8);

impl TokenKind {
    pub const UNDEFINED: TokenKind = TokenKind(0);
    pub const NORMAL: TokenKind = TokenKind(1);
    pub const UNKNOWN: TokenKind = TokenKind(1 << 1);
    pub const CONTROL: TokenKind = TokenKind(1 << 2);
    pub const USER_DEFINED: TokenKind = TokenKind(1 << 3);
    pub const BYTE: TokenKind = TokenKind(1 << 4);
    pub const UNUSED: TokenKind = TokenKind(1 << 5);

    /// The numbers of `tokenizer.ggml.token_type`.
    fn from_file(number: i32) -> Self {
        match number {
            1 => TokenKind::NORMAL,
            2 => TokenKind::UNKNOWN,
            3 => TokenKind::CONTROL,
            4 => TokenKind::USER_DEFINED,
            5 => TokenKind::UNUSED,
            6 => TokenKind::BYTE,
            _ => TokenKind::UNDEFINED,
        }
    }

    pub const fn or(self, other: TokenKind) -> TokenKind {
        TokenKind(self.0 | other.0)
    }

    pub fn is(self, any_of: TokenKind) -> bool {
        self.0 & any_of.0 != 0
    }
}

pub(super) struct Vocab {
    tokens: Strings,
    kinds: Vec<TokenKind>,
    /// Empty where the file has none.
    scores: Vec<f32>,
    by_text: NameIndex,
}

impl Vocab {
    pub fn read(metadata: &Metadata, warnings: &mut Vec<String>) -> Result<Self> {
        let tokens = metadata.strings(TOKENS)?.ok_or_else(|| metadata.missing(TOKENS))?;
        if tokens.is_empty() {
            return Err(Error::Tokenizer(format!("`{TOKENS}` is empty; the file has no vocabulary")));
        }
        let tokens = name_empty_texts(tokens);
        let same_length = |key: &str, len: usize| match len == tokens.len() {
            true => Ok(()),
            false => Err(Error::Tokenizer(format!(
                "`{key}` has {len} entries for {} tokens; the vocabulary is damaged, convert the model again",
                tokens.len()
            ))),
        };
        let scores = metadata.f32s(SCORES)?.unwrap_or_default().to_vec();
        if metadata.get(SCORES).is_some() {
            same_length(SCORES, scores.len())?;
        }
        if let Some(id) = scores.iter().position(|s| s.is_nan()) {
            return Err(Error::Tokenizer(format!("the score of token {id} in `{SCORES}` is not a number")));
        }
        let kinds = match metadata.i32s(TYPES)? {
            Some(types) => {
                same_length(TYPES, types.len())?;
                types.into_iter().map(TokenKind::from_file).collect()
            }
            None => {
                warnings.push(format!("no `{TYPES}`: control tokens will be taken for plain text"));
                vec![TokenKind::NORMAL; tokens.len()]
            }
        };
        let text = |id: usize| tokens.get(id).unwrap_or_default();
        let by_text = NameIndex::new(tokens.len(), text).map_err(|id| {
            Error::Tokenizer(format!(
                "token {id} of `{TOKENS}`, {}, is in the vocabulary twice",
                Quoted(text(id))
            ))
        })?;
        Ok(Vocab { tokens, kinds, scores, by_text })
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The text as the file spells it: `▁` for a space, `Ġ` and its kin for bytes. Empty for no such id.
    pub fn text(&self, id: u32) -> &str {
        self.tokens.get(id as usize).unwrap_or_default()
    }

    pub fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tokens.iter()
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        self.by_text.find(text, |id| self.text(id as u32)).map(|id| id as u32)
    }

    pub fn has(&self, id: u32) -> bool {
        (id as usize) < self.len()
    }

    pub fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::UNDEFINED)
    }

    pub fn set_kind(&mut self, id: u32, kind: TokenKind) {
        self.kinds[id as usize] = kind;
    }

    /// In the order of ids; empty where the file has none.
    pub fn scores(&self) -> &[f32] {
        &self.scores
    }

    /// All ids of a kind, ascending.
    pub fn of_kind(&self, any_of: TokenKind) -> impl Iterator<Item = u32> {
        (0..).zip(&self.kinds).filter(move |(_, kind)| kind.is(any_of)).map(|(id, _)| id)
    }
}

/// Padding rows without a text get one, so that every text stays unique.
fn name_empty_texts(tokens: &Strings) -> Strings {
    if tokens.iter().all(|text| !text.is_empty()) {
        return tokens.clone();
    }
    let named = tokens.iter().enumerate().map(|(id, text)| match text {
        "" => format!("[EMPTY_{id}]"),
        text => text.to_owned(),
    });
    named.collect()
}

/// The byte that a token such as `<0x0A>` stands for.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_pair = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    is_pair.then(|| u8::from_str_radix(hex, 16).ok())?
}
