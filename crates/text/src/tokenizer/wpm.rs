//! WordPiece, the way llama.cpp evaluates it: a text is cleaned and cut at blanks and marks, and each word is taken apart from
//! the left, by the longest token that fits. A word that cannot be taken apart is unknown as a whole.

use regex::Regex;
use tokenizers::NormalizedString;

use super::{spaces::SPACE, vocab::Vocab};
use crate::{Error, Result, gguf::Metadata};

// What goes between the brackets of a class: marks, which are words by themselves, and characters of Han.
macro_rules! alone {
    () => {
        r"\p{P}$+<=>^`|~\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
    };
}

pub(super) struct Wpm {
    lowercase: bool,
    strips_accents: bool,
    /// What is no part of a text.
    dropped: Regex,
    words: Regex,
    unknown: Option<u32>,
    longest: usize,
}

impl Wpm {
    pub fn new(metadata: &Metadata, vocab: &Vocab, unknown: Option<u32>) -> Result<Self> {
        let lowercase = metadata.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
        let strips_accents = metadata.bool("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
        let marks = if strips_accents { r"\p{M}" } else { "" };
        let regex = |pattern: &str| {
            Regex::new(pattern).map_err(|e| Error::Tokenizer(format!("words of WordPiece: {e}")))
        };
        Ok(Wpm {
            lowercase,
            strips_accents,
            dropped: regex(&format!(r"[\x{{FFFD}}\p{{Cc}}\p{{Cf}}\p{{Co}}{marks}&&[^\s]]+"))?,
            words: regex(concat!("[", alone!(), r"]|[^\s", alone!(), "]+"))?,
            unknown,
            longest: vocab.texts().map(str::len).max().unwrap_or(0),
        })
    }

    /// Appends the ids of a text that holds no special tokens.
    pub fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        let text = self.clean(text);
        let mut word = String::new();
        for found in self.words.find_iter(&text) {
            word.clear();
            word.push(SPACE);
            word.push_str(found.as_str());
            let before = ids.len();
            if !self.take_apart(vocab, &word, ids) {
                ids.truncate(before);
                ids.extend(self.unknown);
            }
        }
    }

    fn clean(&self, text: &str) -> String {
        let text = match self.strips_accents {
            true if !text.is_ascii() => {
                let mut parted = NormalizedString::from(text);
                parted.nfd();
                self.dropped.replace_all(parted.get(), "").into_owned()
            }
            _ => self.dropped.replace_all(text, "").into_owned(),
        };
        if !self.lowercase {
            return text;
        }
        // One character for one, as in llama.cpp.
        let lower = |c: char| c.to_lowercase().next().unwrap_or(c);
        text.chars().map(lower).collect()
    }

    fn take_apart(&self, vocab: &Vocab, word: &str, ids: &mut Vec<u32>) -> bool {
        let mut at = 0;
        while at < word.len() {
            let most = word.len().min(at + self.longest);
            let ends = (at + 1..=most).rev().filter(|&end| word.is_char_boundary(end));
            let Some((end, id)) = ends.filter_map(|end| Some((end, vocab.id(&word[at..end])?))).next() else {
                return false;
            };
            ids.push(id);
            at = end;
        }
        true
    }
}
