//! Text to token ids and back, with the vocabulary that is in the model's file. The ids are llama.cpp's, for SentencePiece
//! (`llama`, and `t5` with unigrams), BPE (`gpt2`, `gemma4`) and WordPiece (`bert`) vocabularies.
//!
//! ```text
//! text ─ fragments (special tokens cut out) ─┬ spm (score-driven joins, byte fallback) ─┬ ids
//!                                            ├ pre (words, as schemes say) ─ bpe (merges) ┤
//!                                            ├ charsmap (characters) ─ unigram (best sum) ──┤
//!                                            └ wpm (words, longest token first) ────────────┘
//! ids ─ pieces (bytes) ─ decode | stream
//! ```

mod alike;
mod bpe;
mod charsmap;
mod fragments;
mod memo;
mod pieces;
mod pre;
mod schemes;
mod spaces;
mod special;
mod spm;
mod stream;
mod unigram;
mod vocab;
mod wpm;

pub use special::GapTokens;
pub use stream::{StreamDecoder, Utf8};

use self::{
    bpe::Bpe,
    fragments::{Cutter, Fragment, Special},
    pieces::Pieces,
    schemes::{AddsBos, Scheme, Spelling},
    special::{Defaults, SpecialIds},
    spm::Spm,
    unigram::Unigram,
    vocab::{TokenKind, Vocab},
    wpm::Wpm,
};
use crate::{Error, Gguf, Result, gguf::Metadata, quoted::Quoted};

/// The vocabulary of a file: texts to tokens and back.
pub struct Tokenizer {
    vocab: Vocab,
    pieces: Pieces,
    special: SpecialIds,
    /// Cuts at user-defined tokens only, and at all special tokens.
    plain_cutter: Cutter,
    special_cutter: Cutter,
    model: Model,
    warnings: Vec<String>,
}

enum Model {
    Spm(Spm),
    Bpe(Box<Bpe>),
    Unigram(Unigram),
    Wpm(Box<Wpm>),
}

/// How a vocabulary takes words apart, by `tokenizer.ggml.model`.
#[derive(Clone, Copy)]
enum Kind {
    Spm,
    Bpe(&'static Scheme),
    Unigram,
    Wpm,
}

impl Kind {
    fn defaults(self) -> Defaults {
        let none = Defaults {
            bos: None,
            eos: None,
            unk: None,
            sep: None,
            adds_bos: AddsBos::IfAsked,
            adds_eos: false,
            adds_sep: false,
        };
        match self {
            Kind::Spm => Defaults {
                bos: Some(1),
                eos: Some(2),
                unk: Some(0),
                adds_bos: AddsBos::UnlessRefused,
                ..none
            },
            Kind::Bpe(scheme) => Defaults {
                bos: scheme.bos,
                eos: scheme.eos,
                adds_bos: scheme.adds_bos,
                adds_sep: scheme.adds_sep,
                ..none
            },
            Kind::Unigram => Defaults { eos: Some(1), unk: Some(2), adds_eos: true, ..none },
            Kind::Wpm => Defaults {
                bos: Some(101),
                unk: Some(100),
                sep: Some(102),
                adds_bos: AddsBos::Always,
                adds_sep: true,
                ..none
            },
        }
    }
}

/// How a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds BOS and EOS where the vocabulary's rules say so.
    pub add_special: bool,
    /// Reads the texts of control tokens, such as `<|im_end|>`, as these tokens. Switch it off for text that
    /// must not be able to speak for the system.
    pub parse_special: bool,
}

impl EncodeOptions {
    /// A prompt as llama.cpp takes it: BOS added, control tokens read.
    pub const PROMPT: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };
    /// The text and nothing but the text.
    pub const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
}

impl Tokenizer {
    /// Needs only the metadata; the file may have no tensors.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        Self::from_metadata(gguf.metadata())
    }

    /// The vocabulary that these keys describe.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let mut warnings = Vec::new();
        let model = metadata.str("tokenizer.ggml.model")?;
        let kind = match model.ok_or_else(|| metadata.missing("tokenizer.ggml.model"))? {
            "llama" => Kind::Spm,
            "gpt2" => Kind::Bpe(scheme(metadata, &mut warnings)?),
            "gemma4" => Kind::Bpe(Scheme::named("gemma4").unwrap_or(Scheme::default())),
            "t5" => Kind::Unigram,
            "bert" => Kind::Wpm,
            "none" | "no_vocab" => {
                return Err(Error::Tokenizer("the file says that it has no vocabulary".into()));
            }
            other => {
                return Err(Error::Tokenizer(format!(
                    "vocabularies of type {} are not supported; `llama` (SentencePiece), `t5` (unigrams), `gpt2` and `gemma4` (BPE) and `bert` (WordPiece) are",
                    Quoted(other)
                )));
            }
        };
        let mut vocab = Vocab::read(metadata, &mut warnings)?;
        let special = SpecialIds::read(metadata, &mut vocab, &kind.defaults())?;
        let model = match kind {
            Kind::Bpe(scheme) => Model::Bpe(Box::new(Bpe::read(metadata, &vocab, scheme, &mut warnings)?)),
            Kind::Unigram => Model::Unigram(Unigram::new(metadata, &vocab, special.unk)?),
            Kind::Wpm => Model::Wpm(Box::new(Wpm::new(metadata, &vocab, special.unk)?)),
            Kind::Spm => {
                let space_prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
                Model::Spm(Spm::new(&vocab, special.unk, space_prefix, &mut warnings)?)
            }
        };
        let takes_blanks = strips_right(metadata)?;
        let cutter = |kinds: TokenKind, but: TokenKind| {
            let ids = vocab.of_kind(kinds).filter(|&id| !vocab.kind(id).is(but));
            let special = ids.map(|id| {
                let text = vocab.text(id).to_owned();
                Special { id, takes_blanks: takes_blanks(&text), text }
            });
            Cutter::new(special.collect())
        };
        // A token may be both, as Gemma's `</s>`, which ends a generation: then it is cut out with the control tokens alone.
        let steers = TokenKind::CONTROL.or(TokenKind::UNKNOWN);
        let plain_cutter = cutter(TokenKind::USER_DEFINED, steers)?;
        let special_cutter = cutter(TokenKind::USER_DEFINED.or(steers), TokenKind::UNDEFINED)?;
        let pieces = match kind {
            Kind::Bpe(Scheme { spelling: Spelling::Bytes, .. }) => Pieces::byte_level(&vocab),
            Kind::Bpe(_) | Kind::Spm | Kind::Unigram | Kind::Wpm => Pieces::spaced(&vocab),
        };
        Ok(Tokenizer { vocab, pieces, special, plain_cutter, special_cutter, model, warnings })
    }

    /// What was odd about the vocabulary and how it was taken; one line each, for stderr.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        ids.extend(self.special.bos.filter(|_| options.add_special && self.special.add_bos));
        let cutter = if options.parse_special { &self.special_cutter } else { &self.plain_cutter };
        let mut at_start = true;
        for fragment in cutter.cut(text) {
            match (fragment, &self.model) {
                (Fragment::Token(id), _) => ids.push(id),
                (Fragment::Text(text), Model::Spm(spm)) => spm.encode(&self.vocab, text, at_start, &mut ids),
                (Fragment::Text(text), Model::Bpe(bpe)) => bpe.encode(text, &mut ids),
                (Fragment::Text(text), Model::Unigram(unigram)) => {
                    unigram.encode(&self.vocab, text, &mut ids)
                }
                (Fragment::Text(text), Model::Wpm(wpm)) => wpm.encode(&self.vocab, text, &mut ids),
            }
            at_start = matches!(fragment, Fragment::Token(_));
        }
        ids.extend(self.added_end().filter(|_| options.add_special));
        ids
    }

    /// A question and an answer as one text, for models that say how well they fit.
    pub fn encode_pair(&self, question: &str, answer: &str) -> Vec<u32> {
        let SpecialIds { sep, eos, add_bos, add_eos, add_sep, .. } = self.special;
        let end = eos.or(sep).filter(|_| add_eos);
        let mut ids: Vec<u32> = self.special.bos.filter(|_| add_bos).into_iter().collect();
        ids.extend(self.encode(question, EncodeOptions::PLAIN));
        ids.extend(end.into_iter().chain(sep.filter(|_| add_sep)));
        ids.extend(self.encode(answer, EncodeOptions::PLAIN));
        ids.extend(end);
        ids
    }

    /// The token that texts end with, if they end with one.
    fn added_end(&self) -> Option<u32> {
        match self.model {
            Model::Wpm(_) => self.special.sep,
            _ => self.special.eos.filter(|_| self.special.add_eos),
        }
    }

    /// The inverse of [`encode`](Self::encode), to the byte: BOS and EOS go where the vocabulary's rules add
    /// them, and so do the spaces that SentencePiece puts before a text; control tokens become their texts.
    /// An id outside the vocabulary has no bytes.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut ids = ids;
        if let (true, Some((first, rest))) = (self.special.add_bos, ids.split_first())
            && Some(*first) == self.special.bos
        {
            ids = rest;
        }
        if let (Some(end), Some((last, rest))) = (self.added_end(), ids.split_last())
            && *last == end
        {
            ids = rest;
        }
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        let mut at_start = true;
        for &id in ids {
            let is_special =
                self.vocab.kind(id).is(TokenKind::CONTROL.or(TokenKind::UNKNOWN).or(TokenKind::USER_DEFINED));
            let piece = self.piece(id);
            let prefixed = at_start && !is_special && self.has_space_prefix();
            bytes.extend_from_slice(if prefixed { piece.strip_prefix(b" ").unwrap_or(piece) } else { piece });
            at_start = is_special;
        }
        bytes
    }

    /// The bytes that a token stands for, perhaps half a character; for a control token its text, for an id
    /// outside the vocabulary nothing.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id)
    }

    /// The token as the vocabulary spells it, e.g. `▁the` or `Ġthe`.
    pub fn token_text(&self, id: u32) -> &str {
        self.vocab.text(id)
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// The end of a turn in a conversation.
    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    /// Whether texts begin with BOS, as perplexity needs to know.
    pub fn adds_bos(&self) -> bool {
        self.special.add_bos
    }

    /// The token that texts begin with, if they begin with one.
    pub fn added_bos(&self) -> Option<u32> {
        self.bos().filter(|_| self.adds_bos())
    }

    /// Whether texts end with EOS.
    pub fn adds_eos(&self) -> bool {
        self.special.add_eos
    }

    /// Whether a generation ends with this token.
    pub fn is_eog(&self, id: u32) -> bool {
        self.special.is_eog(id)
    }

    /// The tokens around a gap that the model is to fill in, if it was made for that.
    pub fn gap_tokens(&self) -> Option<GapTokens> {
        self.special.gap
    }

    /// The tokens that end a generation, ascending.
    pub fn ends(&self) -> std::sync::Arc<[u32]> {
        self.special.eog.as_slice().into()
    }

    /// A token that steers and is not shown: control tokens and the unknown token.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.kind(id).is(TokenKind::CONTROL.or(TokenKind::UNKNOWN))
    }

    fn has_space_prefix(&self) -> bool {
        match &self.model {
            Model::Spm(spm) => spm.space_prefix,
            Model::Unigram(unigram) => unigram.has_space_prefix(),
            Model::Wpm(_) => true,
            Model::Bpe(_) => false,
        }
    }
}

/// How words are cut; an unknown name is no reason to refuse the model.
fn scheme(metadata: &Metadata, warnings: &mut Vec<String>) -> Result<&'static Scheme> {
    let Some(pre) = metadata.str("tokenizer.ggml.pre")? else {
        warnings.push("no `tokenizer.ggml.pre`: words are cut in the default way, quality may suffer".into());
        return Ok(Scheme::default());
    };
    Ok(Scheme::named(pre).unwrap_or_else(|| {
        warnings.push(format!(
            "unknown `tokenizer.ggml.pre` {}: words are cut in the default way, quality may suffer",
            Quoted(pre)
        ));
        Scheme::default()
    }))
}

/// Phi-3's special tokens take the blanks to their right; no key says so, only the model's name.
fn strips_right(metadata: &Metadata) -> Result<impl Fn(&str) -> bool> {
    let name = metadata.str("general.name")?.unwrap_or_default().to_lowercase();
    let is_phi3 = name.contains("phi-3") || name.contains("phi3");
    Ok(move |token: &str| is_phi3 && !matches!(token, "<unk>" | "<s>" | "<|endoftext|>"))
}

/// Expected values by other programs, from `tests/golden`; packages on crates.io have none.
#[cfg(test)]
pub fn golden(test: &str, file: &str) -> Option<serde_json::Value> {
    let path = format!("{}/../../tests/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let Ok(text) = std::fs::read(&path) else {
        eprintln!("NOT RUN: {test}: no {path}");
        return None;
    };
    Some(serde_json::from_slice(&text).expect("JSON"))
}
