//! The tokens that mean something: which id begins, ends or pads a text, and which ids end a generation.
//! Most come from the metadata; the rest are found by their well-known texts, as llama.cpp does, because many
//! files do not name them.

use super::{
    schemes::AddsBos,
    vocab::{TokenKind, Vocab},
};
use crate::{Error, Result, gguf::Metadata};

/// Texts that end a turn, in the order in which one is preferred where a vocabulary has several.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// Texts that end a generation although no key says so.
const END_OF_GENERATION: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// A token around a gap that is to be filled in: its keys in the metadata, the newer one first, and its texts.
type GapToken = (&'static [&'static str], &'static [&'static str]);

const GAP_PREFIX: GapToken = (
    &["tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"],
    &[
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ],
);
const GAP_SUFFIX: GapToken = (
    &["tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"],
    &[
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ],
);
const GAP_MIDDLE: GapToken = (
    &["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"],
    &[
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ],
);
const GAP_PAD: GapToken =
    (&["tokenizer.ggml.fim_pad_token_id"], &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]);
const GAP_REPOSITORY: GapToken = (
    &["tokenizer.ggml.fim_rep_token_id"],
    &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
);
const GAP_FILE: GapToken = (&["tokenizer.ggml.fim_sep_token_id"], &["<|file_sep|>"]);

/// The tokens that stand around a gap which a model is to fill in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapTokens {
    /// Before the text in front of the gap.
    pub prefix: u32,
    /// Before the text behind it.
    pub suffix: u32,
    /// Before what the model writes.
    pub middle: u32,
    /// Before the name of a project.
    pub repository: Option<u32>,
    /// Before the name of a file.
    pub file: Option<u32>,
}

/// Texts of the harmony format that are control tokens in the file and yet part of the visible answer.
const ALWAYS_VISIBLE: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// What holds where the metadata is silent; it depends on the kind of tokenizer.
pub(super) struct Defaults {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    pub sep: Option<u32>,
    pub adds_bos: AddsBos,
    pub adds_eos: bool,
    pub adds_sep: bool,
}

pub(super) struct SpecialIds {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub unk: Option<u32>,
    /// Between two texts that are read as one.
    pub sep: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_sep: bool,
    /// Ascending.
    pub eog: Vec<u32>,
    pub gap: Option<GapTokens>,
}

impl SpecialIds {
    /// Reads and completes the ids; tokens found to end a generation become control tokens in `vocab`.
    pub fn read(metadata: &Metadata, vocab: &mut Vocab, defaults: &Defaults) -> Result<Self> {
        let given = |key: &str| id_from_key(metadata, vocab, key);
        let or_default =
            |key: &str, id: Option<u32>| given(key).map(|given| given.or(id.filter(|&id| vocab.has(id))));
        let bos = or_default("tokenizer.ggml.bos_token_id", defaults.bos)?;
        let eos = or_default("tokenizer.ggml.eos_token_id", defaults.eos)?;
        let unk = or_default("tokenizer.ggml.unknown_token_id", defaults.unk)?;
        let sep = or_default("tokenizer.ggml.seperator_token_id", defaults.sep)?;
        let add_sep = metadata.bool("tokenizer.ggml.add_sep_token")?.unwrap_or(defaults.adds_sep);
        let mut eot = given("tokenizer.ggml.eot_token_id")?;
        let mut eom = given("tokenizer.ggml.eom_token_id")?;
        let add_bos = match (metadata.bool("tokenizer.ggml.add_bos_token")?, defaults.adds_bos) {
            (_, AddsBos::Always) => true,
            (given, adds_bos) => given.unwrap_or(adds_bos == AddsBos::UnlessRefused),
        };
        let add_eos = metadata.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(defaults.adds_eos);
        for (wanted, id, name) in [(add_bos, bos, "bos"), (add_eos, eos, "eos")] {
            if wanted && id.is_none() {
                return Err(Error::Tokenizer(format!(
                    "the vocabulary wants `{name}` added to every text, but `tokenizer.ggml.{name}_token_id` is missing"
                )));
            }
        }

        let first_of = |vocab: &Vocab, texts: &[&str]| texts.iter().find_map(|text| vocab.id(text));
        eot = eot.or_else(|| first_of(vocab, END_OF_TURN));
        eom = eom.or_else(|| vocab.id("<|eom_id|>"));
        let mut eog: Vec<u32> = END_OF_GENERATION.iter().filter_map(|text| vocab.id(text)).collect();
        let of_gap = |vocab: &Vocab, (keys, texts): GapToken| -> Result<Option<u32>> {
            for key in keys {
                // A bad id here is not worth refusing a model for.
                if let Some(id) = metadata.u32(key)?.filter(|&id| vocab.has(id)) {
                    return Ok(Some(id));
                }
            }
            Ok(first_of(vocab, texts))
        };
        let (repository, file) = (of_gap(vocab, GAP_REPOSITORY)?, of_gap(vocab, GAP_FILE)?);
        // After these a model has nothing more to say.
        eog.extend([of_gap(vocab, GAP_PAD)?, repository, file].into_iter().flatten());
        let marks = [of_gap(vocab, GAP_PREFIX)?, of_gap(vocab, GAP_SUFFIX)?, of_gap(vocab, GAP_MIDDLE)?];
        let gap = match marks {
            [Some(prefix), Some(suffix), Some(middle)] => {
                Some(GapTokens { prefix, suffix, middle, repository, file })
            }
            _ => None,
        };
        for &id in eog.iter().chain(&eot).chain(&eom).chain(marks.iter().flatten()) {
            vocab.set_kind(id, vocab.kind(id).or(TokenKind::CONTROL));
        }
        eog.extend([eos, eot, eom].into_iter().flatten());
        eog.sort_unstable();
        eog.dedup();
        for id in ALWAYS_VISIBLE.iter().filter_map(|text| vocab.id(text)).collect::<Vec<_>>() {
            vocab.set_kind(id, TokenKind::USER_DEFINED);
        }
        let mut ids = SpecialIds { bos, eos, eot, unk, sep, add_bos, add_eos, add_sep, eog, gap };
        ids.apply_exceptions(vocab);
        Ok(ids)
    }

    pub fn is_eog(&self, id: u32) -> bool {
        self.eog.binary_search(&id).is_ok()
    }

    /// Some families reuse a well-known text for something else.
    fn apply_exceptions(&mut self, vocab: &mut Vocab) {
        let ends = |text: &str| vocab.id(text).filter(|&id| self.is_eog(id));
        let any_call = ends("<|call|>").or(ends("<|calls|>"));
        let harmony = ends("<|return|>").and(ends("<|call|>")).or(any_call.and(ends("<|flush|>")));
        let not_an_end = [
            (harmony.and(ends("<|end|>")), TokenKind::USER_DEFINED),
            (ends("<|tool_response>").or(ends("<|plamo:eos|>")).and(ends("</s>")), TokenKind::NORMAL),
        ];
        for (id, kind) in not_an_end {
            if let Some(id) = id {
                self.eog.retain(|&other| other != id);
                vocab.set_kind(id, kind);
            }
        }
    }
}

fn id_from_key(metadata: &Metadata, vocab: &Vocab, key: &str) -> Result<Option<u32>> {
    match metadata.u32(key)? {
        Some(id) if !vocab.has(id) => Err(Error::Tokenizer(format!(
            "`{key}` is {id}, but the vocabulary has {} tokens; convert the model again",
            vocab.len()
        ))),
        id => Ok(id),
    }
}
