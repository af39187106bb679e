//! `spec-run tokenize`: text to token ids, or ids to text.

use std::{io, path::PathBuf};

use clap::Args;
use serde_json::json;

use super::{
    common::{MOST_TEXT, ModelArgs, print, print_json, read_text, utf8},
    output::warning,
};
use crate::{
    Error, Result, Tokenizer, files::read_stream_limited, quoted::one_line, tokenizer::EncodeOptions,
};

#[derive(Args, Debug)]
pub struct TokenizeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The text, taken as it is: no escapes are processed [default: standard input]
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// Read the text from a file, byte for byte; it must be UTF-8
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print only the ids, as a list that Python reads
    #[arg(long)]
    ids: bool,
    /// Leave out BOS and EOS, even where the vocabulary adds them
    #[arg(long)]
    no_bos: bool,
    /// Print the number of tokens at the end
    #[arg(long, conflicts_with_all = ["detokenize", "json"])]
    show_count: bool,
    /// Read the text from standard input, which is done without this too
    #[arg(long, conflicts_with_all = ["prompt", "file"])]
    stdin: bool,
    /// Take the texts of control tokens, such as <|im_end|>, as plain text
    #[arg(long)]
    no_parse_special: bool,
    /// The input is ids, as in [1, 2, 3] or separated by blanks; print their text
    #[arg(long, conflicts_with_all = ["ids", "no_bos", "no_parse_special"])]
    detokenize: bool,
    /// Print one JSON object: `ids`, `pieces`, and with --detokenize `text`
    #[arg(long)]
    json: bool,
}

pub fn run(args: TokenizeArgs) -> Result<()> {
    let tokenizer = Tokenizer::from_gguf(&*args.model.open()?)?;
    for warning in tokenizer.warnings() {
        warning!("{warning}");
    }
    let input = args.input()?;
    if args.detokenize {
        let ids = parse_ids(&input, &tokenizer)?;
        let text = tokenizer.decode(&ids);
        return match args.json {
            true => print_json(&json!({
                "ids": ids,
                "pieces": pieces(&tokenizer, &ids),
                "text": String::from_utf8_lossy(&text),
            })),
            false => print(text),
        };
    }
    let options = EncodeOptions { add_special: !args.no_bos, parse_special: !args.no_parse_special };
    let ids = tokenizer.encode(&input, options);
    if args.json {
        print_json(&json!({ "ids": ids, "pieces": pieces(&tokenizer, &ids) }))
    } else if args.ids {
        print(format!("{ids:?}\n"))?;
        args.print_count(&ids)
    } else {
        print(listing(&tokenizer, &ids))?;
        args.print_count(&ids)
    }
}

impl TokenizeArgs {
    fn print_count(&self, ids: &[u32]) -> Result<()> {
        if self.show_count { print(format!("Total number of tokens: {}\n", ids.len())) } else { Ok(()) }
    }

    /// The text to work on, nothing added and nothing taken away.
    fn input(&self) -> Result<String> {
        if let Some(text) = &self.prompt {
            return Ok(text.clone());
        }
        match &self.file {
            Some(path) => read_text(path, MOST_TEXT),
            None => {
                let name = "standard input";
                utf8(name, read_stream_limited(name, io::stdin().lock(), MOST_TEXT)?)
            }
        }
    }
}

fn parse_ids(input: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let list = input.trim();
    let list = list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(list);
    let words = list.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let size = tokenizer.vocab_size();
    words
        .map(|word| match word.parse::<u32>() {
            Ok(id) if (id as usize) < size => Ok(id),
            Ok(id) => Err(Error::Input(format!(
                "token id {id} is outside the vocabulary, which has the ids 0 to {}",
                size - 1
            ))),
            Err(_) => Err(Error::Input(format!(
                "'{}' is not a token id; --detokenize reads ids, as in [1, 2, 3] or separated by blanks",
                one_line(word, 60)
            ))),
        })
        .collect()
}

/// Each token's text; half characters are shown as U+FFFD.
fn pieces(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|&id| String::from_utf8_lossy(tokenizer.piece(id)).into_owned()).collect()
}

/// `    id -> 'piece'` on a line each, the bytes of a piece as they are.
fn listing(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    let mut lines = Vec::new();
    for &id in ids {
        lines.extend_from_slice(format!("{id:6} -> '").as_bytes());
        lines.extend_from_slice(tokenizer.piece(id));
        lines.extend_from_slice(b"'\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_lists_and_from_words() {
        let gguf = crate::embedded::open();
        let Ok(gguf) = gguf else { return };
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        for input in ["[1, 22, 333]", "1 22 333\n", "1,22,\n333", " [1,22,333]\n"] {
            assert_eq!(parse_ids(input, &tokenizer).unwrap(), [1, 22, 333], "{input:?}");
        }
        assert!(parse_ids("[]", &tokenizer).unwrap().is_empty());
        for input in ["[1, 2", "-1", "1.5", "x", "2048", "99999999999"] {
            assert!(parse_ids(input, &tokenizer).is_err(), "{input:?}");
        }
    }
}
