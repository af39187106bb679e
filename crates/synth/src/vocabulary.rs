//! A vocabulary of the shape's size: that of another file first, then numbered fillers.

use crate::{
    Error, Gguf, Result,
    gguf::{Array, Value, Writer},
};

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
/// A plain token, among the values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;

/// The number of tokens in the file.
pub(super) fn size_of(source: &Gguf) -> Result<usize> {
    let metadata = source.metadata();
    Ok(metadata.strings(TOKENS)?.ok_or_else(|| metadata.missing(TOKENS))?.len())
}

/// Copies every `tokenizer.` key of `source`, with lists of `size` entries. Fillers are plain tokens that no
/// merge makes and whose scores are below all others, so texts are tokenized as with `source`.
pub(super) fn write_to(writer: &mut Writer, source: &Gguf, size: usize) -> Result<()> {
    let metadata = source.metadata();
    let found = size_of(source)?;
    let types = metadata.i32s(TYPES)?.unwrap_or_else(|| vec![NORMAL; found]);
    let scores = metadata.f32s(SCORES)?;
    if size < found {
        let smallest = match metadata.get(MERGES) {
            Some(_) => found,
            None => types.iter().rposition(|&ty| ty != NORMAL).map_or(1, |last| last + 1),
        };
        if size < smallest {
            return Err(Error::Usage(format!(
                "`vocab` {size}: the vocabulary of {} needs at least {smallest} of its {found} tokens",
                source.name()
            )));
        }
    }
    let own = metadata.strings(TOKENS)?.into_iter().flat_map(|tokens| tokens.iter()).map(str::to_owned);
    let fillers = (0..).map(|n| format!("<filler_{n}>"));
    let tokens = own.chain(fillers).take(size).collect();
    let types = types.into_iter().chain(std::iter::repeat(NORMAL)).take(size).collect();

    for (key, value) in metadata.iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        writer.set(key, value.clone());
    }
    writer.set(TOKENS, Value::Array(Array::String(tokens)));
    writer.set(TYPES, Value::Array(Array::I32(types)));
    if let Some(scores) = scores {
        let lowest = scores.iter().fold(0.0, |low: f32, &s| if s < low { s } else { low });
        let scores = scores.iter().copied().chain((1..).map(|n| lowest - n as f32)).take(size).collect();
        writer.set(SCORES, Value::Array(Array::F32(scores)));
    }
    Ok(())
}
