//! Cuts a text into the words that byte-level BPE joins within. Which cuts a model was trained with is named by
//! `tokenizer.ggml.pre`; the patterns are llama.cpp's readings of the models' own.
//!
//! Most patterns end in `\s+(?!\S)|\s+`: of a run of blanks before a word, the last stays with the word. That
//! lookahead is all that keeps them from being regular, so it is done here by hand, and the linear-time `regex`
//! does the rest: no backtracking limit that a long text could run into.

use regex::Regex;

use crate::{Error, Result};

#[derive(Clone, Copy)]
enum Step {
    /// Every match is a piece, and so is what lies between matches.
    Split(&'static str),
    /// The same, for a pattern whose last alternative is `\s+`, read as `\s+(?!\S)|\s+`.
    Words(&'static str),
}
use Step::{Split, Words};

const GPT2: Step = Words(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+");
const LLAMA3: Step = Words(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
);
const QWEN2: Step = Words(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
);
const QWEN35: Step = Words(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
);
// Upper case, then lower case: letters outside ASCII count as both.
const TEKKEN: Step = Words(
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
);
const GPT4O: Step = Words(
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
);
const BAILING: Step = Words(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+",
);
const SEED: Step = Words(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+",
);
const EXAONE_MOE: Step = Words(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+",
);
const MINICPM5: Step = Words(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
);
const DEEPSEEK3: Step = Words(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##,
);
const SENTENCES: Step = Split(r" ?[^(\s|.,!?…。，、।۔،)]+");
const DIGIT: Step = Split(r"\p{N}");
const DIGITS: Step = Split(r"\p{N}+");
const UP_TO_3_DIGITS: Step = Split(r"\p{N}{1,3}");
const ASCII_3_DIGITS: Step = Split("[0-9][0-9][0-9]");
const LINE_END: Step = Split(r"[\r\n]");
// These ranges hold blanks, which llama.cpp does not see as part of them.
const CJK: Step = Split(r"[[\x{800}-\x{9fa5}\x{ac00}-\x{d7ff}]&&\S]+");
const CJK_AND_KANA: Step = Split(r"[\x{4e00}-\x{9fa5}\x{3040}-\x{30ff}]+");
// The cased letters of some years ago, as the model's own pattern lists them.
const DEEPSEEK_LETTERS: Step = Split(
    r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+",
);
const DEEPSEEK_MARKS: Step =
    Split(r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3001}\x{3002}]+");

/// What a value of `tokenizer.ggml.pre` stands for.
#[derive(Clone, Copy)]
pub(super) struct Scheme {
    steps: &'static [Step],
    /// A word that is a token is taken whole, without looking at the merges.
    pub whole_words: bool,
    /// BOS is added unless the metadata says otherwise.
    pub add_bos: bool,
}

const fn scheme(steps: &'static [Step]) -> Scheme {
    Scheme { steps, whole_words: false, add_bos: false }
}

impl Scheme {
    const fn whole_words(self) -> Self {
        Scheme { whole_words: true, ..self }
    }

    const fn with_bos(self) -> Self {
        Scheme { add_bos: true, ..self }
    }

    /// What llama.cpp falls back to.
    pub const DEFAULT: Scheme = scheme(&[Split(r"[\p{P}\$\+<=>\^~\|]+"), GPT2, DIGITS, ASCII_3_DIGITS]);

    pub fn named(pre: &str) -> Option<Scheme> {
        Some(match pre {
            "default" => Self::DEFAULT,
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0"
            | "lfm2" | "jina-v5-nano" => scheme(&[LLAMA3]).whole_words().with_bos(),
            "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => scheme(&[LLAMA3]),
            "deepseek-llm" => {
                scheme(&[LINE_END, DEEPSEEK_LETTERS, DEEPSEEK_MARKS, Split(r"\s+$"), CJK, DIGITS])
            }
            "deepseek-coder" => scheme(&[LINE_END, Split(r"\s?\p{L}+"), Split(r"\s?\p{P}+"), CJK, DIGIT]),
            "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => {
                scheme(&[UP_TO_3_DIGITS, CJK_AND_KANA, DEEPSEEK3])
            }
            "falcon" => scheme(&[Split(r"[\p{P}\$\+<=>\^~\|`]+"), GPT2, ASCII_3_DIGITS]),
            "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b"
            | "mellum2" => scheme(&[DIGIT, GPT2]),
            "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "jina-v1-en"
            | "jina-v2-code" | "roberta-bpe" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert"
            | "exaone4" | "mpt" | "olmo" | "jais" | "trillion" | "granite-docling" => scheme(&[GPT2]),
            "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "megrez" | "stablelm2" | "hunyuan"
            | "solar-open" | "grok-2" => scheme(&[QWEN2]),
            "qwen35" => scheme(&[QWEN35]),
            "poro-chat" | "bloom" | "gpt3-finnish" => scheme(&[SENTENCES]),
            "viking" => scheme(&[SENTENCES, DIGIT]),
            "tekken" => scheme(&[TEKKEN]).whole_words().with_bos(),
            "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => scheme(&[GPT4O]),
            "bailingmoe" | "bailingmoe2" | "llada-moe" => scheme(&[BAILING]),
            "seed-coder" => scheme(&[SEED]),
            "exaone-moe" => scheme(&[EXAONE_MOE]),
            "minicpm5" => scheme(&[UP_TO_3_DIGITS, MINICPM5]).whole_words(),
            _ => return None,
        })
    }
}

pub(super) struct PreTokenizer {
    cuts: Vec<Cut>,
}

struct Cut {
    pattern: Regex,
    leaves_blank: Option<LeavesBlank>,
}

/// A run of blanks leaves its last one to the word after it ..
#[derive(Clone, Copy, PartialEq)]
enum LeavesBlank {
    Always,
    /// .. unless it ends in a line end, for which the pattern has an alternative of its own.
    UnlessLineEnd,
}

impl PreTokenizer {
    pub fn new(scheme: Scheme) -> Result<Self> {
        let cuts = scheme.steps.iter().map(|step| {
            let (pattern, leaves_blank) = match *step {
                Split(pattern) => (pattern, None),
                Words(pattern) if pattern.contains(r"\s*[\r\n]") => {
                    (pattern, Some(LeavesBlank::UnlessLineEnd))
                }
                Words(pattern) => (pattern, Some(LeavesBlank::Always)),
            };
            let pattern = Regex::new(pattern).map_err(|e| Error::Tokenizer(format!("word pattern: {e}")))?;
            Ok(Cut { pattern, leaves_blank })
        });
        Ok(PreTokenizer { cuts: cuts.collect::<Result<_>>()? })
    }

    /// Calls `word` for each piece of the text, in order; together they are the text.
    pub fn for_each_word<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        split(&self.cuts, text, &mut word);
    }
}

/// Every cut works on the pieces of the one before it, as if each were a text of its own.
fn split<'t>(cuts: &[Cut], text: &'t str, word: &mut dyn FnMut(&'t str)) {
    let Some((cut, rest)) = cuts.split_first() else {
        return word(text);
    };
    let mut at = 0;
    while at < text.len() {
        let (start, end) = cut.next(text, at).unwrap_or((text.len(), text.len()));
        if at < start {
            split(rest, &text[at..start], word);
        }
        if start < end {
            split(rest, &text[start..end], word);
        }
        at = end;
    }
}

impl Cut {
    /// The next match at or after `at`. No pattern matches the empty string.
    fn next(&self, text: &str, at: usize) -> Option<(usize, usize)> {
        let found = self.pattern.find_at(text, at)?;
        let (start, end) = (found.start(), found.end());
        let Some(leaves_blank) = self.leaves_blank else { return Some((start, end)) };
        let blanks = found.as_str();
        let last = blanks.chars().next_back()?;
        let stays = end == text.len()
            || leaves_blank == LeavesBlank::UnlessLineEnd && matches!(last, '\r' | '\n')
            || blanks.len() == last.len_utf8()
            || !blanks.chars().all(char::is_whitespace);
        Some((start, if stays { end } else { end - last.len_utf8() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pre: &str, text: &'static str) -> Vec<&'static str> {
        let mut words = Vec::new();
        PreTokenizer::new(Scheme::named(pre).unwrap()).unwrap().for_each_word(text, |w| words.push(w));
        words
    }

    #[test]
    fn the_last_blank_goes_with_the_word() {
        assert_eq!(words("gpt-2", "a   b  "), ["a", "  ", " b", "  "]);
        assert_eq!(words("gpt-2", "a\n\nb"), ["a", "\n", "\n", "b"]);
        assert_eq!(words("llama-bpe", "a\n\nb"), ["a", "\n\n", "b"]);
        assert_eq!(
            words("llama-bpe", "a \n  b\u{3000}\u{3000}c"),
            ["a", " \n", " ", " b", "\u{3000}", "\u{3000}c"]
        );
        assert_eq!(words("gpt-2", " ! x"), [" !", " x"]);
    }

    #[test]
    fn contractions_and_their_case() {
        assert_eq!(words("gpt-2", "it's IT'S"), ["it", "'s", " IT", "'", "S"]);
        assert_eq!(words("llama-bpe", "it's IT'S"), ["it", "'s", " IT", "'S"]);
        // The long s is no s, although case folding says so.
        assert_eq!(words("llama-bpe", "a'ſ"), ["a", "'ſ"]);
    }

    #[test]
    fn numbers_differ_most_between_models() {
        assert_eq!(words("gpt-2", "x 12345"), ["x", " 12345"]);
        assert_eq!(words("llama-bpe", "x 12345"), ["x", " ", "123", "45"]);
        assert_eq!(words("qwen2", "x 123"), ["x", " ", "1", "2", "3"]);
        assert_eq!(words("starcoder", "x 123"), ["x", " ", "1", "2", "3"]);
        assert_eq!(words("falcon", "x 12345"), ["x", " ", "123", "45"]);
        assert_eq!(words("deepseek-llm", "x 123"), ["x", " ", "123"]);
        assert_eq!(words("deepseek-v3", "x 1234"), ["x", " ", "123", "4"]);
    }

    #[test]
    fn case_splits_words_of_newer_models() {
        assert_eq!(words("tekken", "camelCase HTTPServer"), ["camel", "Case", " HTTPServer"]);
        assert_eq!(words("gpt-4o", "it's ABCdef"), ["it's", " ABCdef"]);
    }

    #[test]
    fn every_pattern_compiles_and_keeps_the_whole_text() {
        let names = "default llama-bpe dbrx deepseek-llm deepseek-coder deepseek-v3 falcon starcoder gpt-2 qwen2 \
                     qwen35 bloom viking tekken gpt-4o bailingmoe seed-coder exaone-moe minicpm5";
        let text = " Ünïcode  1234 ﷽\u{85}\u{a0}x\r\n\r\n\t漢字かな가 \u{3000}e\u{301}!?…  \u{0}'Ll ";
        for name in names.split_whitespace() {
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
    }
}
