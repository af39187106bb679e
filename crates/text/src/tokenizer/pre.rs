//! Cuts a text into the words that BPE joins within, by the steps that a scheme names.
//!
//! Most patterns end in `\s+(?!\S)|\s+`: of a run of blanks before a word, the last stays with the word. That
//! lookahead is all that keeps them from being regular, so it is done here by hand, and the linear-time `regex`
//! does the rest: no backtracking limit that a long text could run into.

use regex::Regex;

use super::schemes::Scheme;
use crate::{Error, Result};

#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Every match is a piece, and so is what lies between matches.
    Split(&'static str),
    /// The same for any of these patterns, the first that matches, and after them for `\s+(?!\S)|\s+`.
    Words(&'static [&'static str]),
    /// What no pattern says, done by hand.
    By(Cutter),
}
/// Calls its argument for each piece of a text, in order.
type Cutter = for<'t> fn(&'t str, &mut dyn FnMut(&'t str));

use Step::{By, Split, Words};

pub(super) struct PreTokenizer {
    cuts: Vec<Cut>,
}

enum Cut {
    Pattern { pattern: Regex, leaves_blank: Option<LeavesBlank> },
    By(Cutter),
}

/// A run of blanks leaves its last one to the word after it ..
#[derive(Clone, Copy, PartialEq)]
enum LeavesBlank {
    Always,
    /// .. unless it ends in a line end, for which the pattern has an alternative of its own.
    UnlessLineEnd,
}

impl PreTokenizer {
    pub fn new(scheme: &Scheme) -> Result<Self> {
        let cut = |step: &Step| {
            let (pattern, leaves_blank) = match *step {
                By(cutter) => return Ok(Cut::By(cutter)),
                Split(pattern) => (pattern.to_owned(), None),
                Words(patterns) => (format!(r"{}|\s+", patterns.join("|")), Some(LeavesBlank::of(patterns))),
            };
            let pattern = Regex::new(&pattern).map_err(|e| Error::Tokenizer(format!("word pattern: {e}")))?;
            Ok(Cut::Pattern { pattern, leaves_blank })
        };
        Ok(PreTokenizer { cuts: scheme.steps.iter().map(cut).collect::<Result<_>>()? })
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
    let mut piece = |piece: &'t str| {
        if !piece.is_empty() {
            split(rest, piece, word);
        }
    };
    let (pattern, leaves_blank) = match cut {
        Cut::By(cutter) => return cutter(text, &mut piece),
        Cut::Pattern { pattern, leaves_blank } => (pattern, *leaves_blank),
    };
    let mut at = 0;
    while at < text.len() {
        let (start, end) = next(pattern, leaves_blank, text, at).unwrap_or((text.len(), text.len()));
        piece(&text[at..start]);
        piece(&text[start..end]);
        at = end;
    }
}

/// The next match at or after `at`. No pattern matches the empty string.
fn next(pattern: &Regex, leaves_blank: Option<LeavesBlank>, text: &str, at: usize) -> Option<(usize, usize)> {
    let found = pattern.find_at(text, at)?;
    let (start, end) = (found.start(), found.end());
    let Some(leaves_blank) = leaves_blank else { return Some((start, end)) };
    let blanks = found.as_str();
    let last = blanks.chars().next_back()?;
    let stays = end == text.len()
        || leaves_blank == LeavesBlank::UnlessLineEnd && matches!(last, '\r' | '\n')
        || blanks.len() == last.len_utf8()
        || !blanks.chars().all(char::is_whitespace);
    Some((start, if stays { end } else { end - last.len_utf8() }))
}

impl LeavesBlank {
    fn of(patterns: &[&str]) -> Self {
        match patterns.iter().any(|pattern| pattern.starts_with(r"\s*[\r\n]")) {
            true => LeavesBlank::UnlessLineEnd,
            false => LeavesBlank::Always,
        }
    }
}

/// Cuts a run of digits into threes from its end. What stands before a run stays with its first digits.
pub(super) fn digits_by_threes<'t>(text: &'t str, piece: &mut dyn FnMut(&'t str)) {
    cut_digits(text, char::is_numeric, |left, count| left < count, piece);
}

/// The same for ASCII digits, where what stands after a run stays with its last ones.
pub(super) fn ascii_digits_by_threes<'t>(text: &'t str, piece: &mut dyn FnMut(&'t str)) {
    cut_digits(text, |c| c.is_ascii_digit(), |left, _| left > 0, piece);
}

/// Cuts in runs of digits where a multiple of three is left, if `wanted` says so of what is left and the run's length.
fn cut_digits<'t>(
    text: &'t str,
    is_digit: fn(char) -> bool,
    wanted: fn(usize, usize) -> bool,
    piece: &mut dyn FnMut(&'t str),
) {
    let (mut from, mut at) = (0, 0);
    while let Some(start) = text[at..].find(is_digit).map(|found| at + found) {
        let end = text[start..].find(|c| !is_digit(c)).map_or(text.len(), |len| start + len);
        let digits = text[start..end].char_indices().map(|(offset, _)| start + offset);
        let count = text[start..end].chars().count();
        for (place, position) in digits.chain([end]).enumerate() {
            let left = count - place;
            if left.is_multiple_of(3) && wanted(left, count) {
                piece(&text[from..position]);
                from = position;
            }
        }
        at = end;
    }
    piece(&text[from..]);
}

/// Cuts a piece that is nothing but blanks into 512, 256 .. 2, 1 of them, always as many as there are.
pub(super) fn blanks_by_halves<'t>(text: &'t str, piece: &mut dyn FnMut(&'t str)) {
    if text.ends_with(['\r', '\n']) || !text.chars().all(char::is_whitespace) {
        return piece(text);
    }
    let mut rest = text;
    let mut left = text.chars().count();
    while left > 0 {
        let taken = 1 << left.ilog2().min(9);
        let end = rest.char_indices().nth(taken).map_or(rest.len(), |(end, _)| end);
        piece(&rest[..end]);
        rest = &rest[end..];
        left -= taken;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            golden,
            schemes::{AddsBos, Spelling, WholeWords},
        },
        *,
    };

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

    /// `tests/golden/words.py` has run llama.cpp's own splitter.
    #[test]
    fn words_are_llama_cpps() {
        let Some(golden) = golden("words_are_llama_cpps", "words.json") else { return };
        let texts: Vec<&str> =
            golden["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let mut wrong = Vec::new();
        for entry in golden["schemes"].as_array().unwrap() {
            for name in entry["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
                // Only vocabularies of the type `whitespace` have it, and these are refused.
                if name == "whitespace" {
                    continue;
                }
                let scheme = Scheme::named(name).unwrap_or_else(|| panic!("{name} is not known"));
                assert_eq!(scheme.whole_words == WholeWords::All, entry["whole_words"], "{name}");
                assert_eq!(scheme.adds_bos == AddsBos::UnlessRefused, entry["adds_bos"], "{name}");
                assert_eq!(scheme.spelling == Spelling::Spaced, entry["spaced"], "{name}");
                let pre = PreTokenizer::new(scheme).unwrap();
                for (text, ends) in texts.iter().zip(entry["ends"].as_array().unwrap()) {
                    let mut found = Vec::new();
                    pre.for_each_word(text, |word| found.push(found.last().unwrap_or(&0) + word.len()));
                    let expected: Vec<usize> = serde_json::from_value(ends.clone()).unwrap();
                    if found != expected {
                        let words = |ends: &[usize]| {
                            let starts = [0].into_iter().chain(ends.iter().copied());
                            starts
                                .zip(ends)
                                .map(|(start, &end)| text[start..end].to_owned())
                                .collect::<Vec<_>>()
                        };
                        wrong.push(format!(
                            "{name}\n  ours   {:?}\n  theirs {:?}",
                            words(&found),
                            words(&expected)
                        ));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    }
}
