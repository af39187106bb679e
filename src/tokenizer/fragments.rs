//! Cuts a text at the special tokens written in it.
//!
//! Where two special texts overlap, the longer one wins wherever it stands, and of two equally long ones the
//! lower id; occurrences of one token are taken from the left. So a shorter token further left can lose to a longer
//! one further right, which is why this is not a leftmost-longest search.

use std::{collections::BTreeMap, ops::Range};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

pub(super) struct Cutter {
    /// Built over `tokens`, in the same order; absent where there are none.
    matcher: Option<AhoCorasick>,
    /// The winner of an overlap stands first.
    tokens: Vec<Special>,
}

pub(super) struct Special {
    pub id: u32,
    pub text: String,
    /// Blanks to the right of the token belong to it (phi-3).
    pub takes_blanks: bool,
}

impl Cutter {
    pub fn new(mut tokens: Vec<Special>) -> Result<Self> {
        tokens.sort_by_key(|token| (std::cmp::Reverse(token.text.len()), token.id));
        let matcher = match tokens.is_empty() {
            true => None,
            false => Some(
                AhoCorasick::builder()
                    .kind(Some(AhoCorasickKind::NoncontiguousNFA))
                    .build(tokens.iter().map(|token| &token.text))
                    .map_err(|e| Error::Tokenizer(format!("the special tokens of the vocabulary: {e}")))?,
            ),
        };
        Ok(Cutter { matcher, tokens })
    }

    pub fn cut<'t>(&self, text: &'t str) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        let mut at = 0;
        for (start, (end, id)) in self.taken(text) {
            fragments.extend(text_at(text, at..start));
            fragments.push(Fragment::Token(id));
            at = end;
        }
        fragments.extend(text_at(text, at..text.len()));
        fragments
    }

    /// Which stretches of the text belong to special tokens: start → (end, id).
    fn taken(&self, text: &str) -> BTreeMap<usize, (usize, u32)> {
        let mut taken = BTreeMap::new();
        let Some(matcher) = &self.matcher else { return taken };
        let mut found: Vec<(usize, usize)> =
            matcher.find_overlapping_iter(text).map(|m| (m.pattern().as_usize(), m.start())).collect();
        found.sort_unstable();
        for (token, start) in found {
            let token = &self.tokens[token];
            let mut end = start + token.text.len();
            let before = taken.range(..end).next_back();
            if before.is_some_and(|(_, &(before_end, _))| before_end > start) {
                continue;
            }
            if token.takes_blanks {
                let limit = taken.range(end..).next().map_or(text.len(), |(&next, _)| next);
                end += text.as_bytes()[end..limit].iter().take_while(|b| is_blank(**b)).count();
            }
            taken.insert(start, (end, token.id));
        }
        taken
    }
}

fn text_at(text: &str, range: Range<usize>) -> Option<Fragment<'_>> {
    (!range.is_empty()).then(|| Fragment::Text(&text[range]))
}

/// The C locale's idea of a blank.
fn is_blank(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::{Fragment::*, *};

    fn cutter(texts: &[&str], takes_blanks: bool) -> Cutter {
        let special = |(id, text): (u32, &&str)| Special { id, text: text.to_string(), takes_blanks };
        Cutter::new((0..).zip(texts).map(special).collect()).unwrap()
    }

    #[test]
    fn a_text_without_special_tokens_is_one_fragment() {
        assert_eq!(cutter(&[], false).cut("a b"), [Text("a b")]);
        assert_eq!(cutter(&["<s>"], false).cut("a b"), [Text("a b")]);
        assert_eq!(cutter(&["<s>"], false).cut(""), []);
    }

    #[test]
    fn tokens_at_both_ends_and_side_by_side() {
        let cutter = cutter(&["<s>", "</s>"], false);
        assert_eq!(cutter.cut("<s>a</s><s>"), [Token(0), Text("a"), Token(1), Token(0)]);
    }

    #[test]
    fn the_longer_token_wins_even_further_right() {
        assert_eq!(cutter(&["abcd", "bcdef"], false).cut("abcdef"), [Text("a"), Token(1)]);
    }

    #[test]
    fn repeats_are_taken_from_the_left() {
        assert_eq!(cutter(&["aa"], false).cut("aaaaa"), [Token(0), Token(0), Text("a")]);
    }

    #[test]
    fn blanks_to_the_right_can_belong_to_the_token() {
        assert_eq!(cutter(&["<e>"], true).cut("x <e> \n y"), [Text("x "), Token(0), Text("y")]);
        assert_eq!(cutter(&["<e>"], true).cut("<e>  "), [Token(0)]);
        assert_eq!(cutter(&["<e>", " <longer>"], true).cut("<e>  <longer>"), [Token(0), Token(1)]);
    }
}
