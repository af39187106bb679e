//! Cuts a text at the special tokens written in it.
//!
//! Where two special texts overlap, the longer one wins wherever it stands, and of two equally long ones the
//! lower id; occurrences of one token are taken from the left. So a shorter token further left can lose to a longer
//! one further right, which is why this is not a leftmost-longest search.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    ops::Range,
};

use aho_corasick::{
    Anchored,
    automaton::{Automaton, StateID},
    nfa::contiguous::NFA,
};

use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

pub(super) struct Cutter {
    /// Built over the texts of `tokens` written backwards, in the same order; absent where there are none. Reading
    /// backwards, it is at each byte in a state whose patterns are the tokens that begin there, the longest first.
    matcher: Option<NFA>,
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
        let matcher =
            match tokens.is_empty() {
                true => None,
                false => {
                    let backwards = tokens.iter().map(|t| t.text.bytes().rev().collect::<Vec<_>>());
                    let matcher = NFA::builder().prefilter(false).build(backwards);
                    Some(matcher.map_err(|e| {
                        Error::Tokenizer(format!("the special tokens of the vocabulary: {e}"))
                    })?)
                }
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
    ///
    /// At each place only the longest token that still fits is a candidate, so nested tokens cost no more than others.
    fn taken(&self, text: &str) -> BTreeMap<usize, (usize, u32)> {
        let mut taken = BTreeMap::<usize, (usize, u32)>::new();
        let Some(matcher) = &self.matcher else { return taken };
        let states = states(matcher, text);
        // The best candidate first: the token that wins, then the place on the left.
        let first = states.iter().map(|&(start, state)| Reverse((longest(matcher, state), start)));
        let mut candidates: BinaryHeap<Reverse<(usize, usize)>> = first.collect();
        while let Some(Reverse((token, start))) = candidates.pop() {
            let token = &self.tokens[token];
            let mut end = start + token.text.len();
            if let Some((&before, &(before_end, _))) = taken.range(..end).next_back()
                && before_end > start
            {
                // A shorter token may fit before what is taken. Inside it nothing does.
                if before > start {
                    let at = states.binary_search_by(|&(at, _)| start.cmp(&at)).expect("a candidate's place");
                    let shorter = self.longest_within(matcher, states[at].1, before - start);
                    candidates.extend(shorter.map(|token| Reverse((token, start))));
                }
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

    /// The longest of a state's tokens that is no longer than `room`.
    fn longest_within(&self, matcher: &NFA, state: StateID, room: usize) -> Option<usize> {
        let token = |i| matcher.match_pattern(state, i).as_usize();
        let count = matcher.match_len(state);
        let (mut from, mut to) = (0, count);
        while from < to {
            let middle = from.midpoint(to);
            match self.tokens[token(middle)].text.len() > room {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        (from < count).then(|| token(from))
    }
}

/// The places where tokens begin, from the right, with the matcher's state there.
fn states(matcher: &NFA, text: &str) -> Vec<(usize, StateID)> {
    let Ok(mut state) = matcher.start_state(Anchored::No) else { return Vec::new() };
    let mut states = Vec::new();
    for (at, &byte) in text.as_bytes().iter().enumerate().rev() {
        state = matcher.next_state(Anchored::No, state, byte);
        if matcher.is_match(state) {
            states.push((at, state));
        }
    }
    states
}

fn longest(matcher: &NFA, state: StateID) -> usize {
    matcher.match_pattern(state, 0).as_usize()
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

    /// All tokens in their order, each from the left, wherever nothing was taken before: slow and plain.
    fn plainly(cutter: &Cutter, text: &str) -> BTreeMap<usize, (usize, u32)> {
        let mut taken = BTreeMap::<usize, (usize, u32)>::new();
        for token in &cutter.tokens {
            for start in 0..text.len() {
                let mut end = start + token.text.len();
                let free = |range: Range<usize>| {
                    taken.iter().all(|(&from, &(to, _))| to <= range.start || from >= range.end)
                };
                if !text.as_bytes()[start..].starts_with(token.text.as_bytes()) || !free(start..end) {
                    continue;
                }
                if token.takes_blanks {
                    while end < text.len() && is_blank(text.as_bytes()[end]) && free(end..end + 1) {
                        end += 1;
                    }
                }
                taken.insert(start, (end, token.id));
            }
        }
        taken
    }

    #[test]
    fn any_tokens_in_any_text_are_cut_as_one_after_the_other_would() {
        let mut state = 1u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for case in 0..3000 {
            let letters = 1 + case % 3;
            let mut word = |longest| -> String {
                let letter = |i: u64| ["a", "b", " "][i as usize];
                (0..1 + random(longest)).map(|_| letter(random(letters))).collect()
            };
            let mut texts: Vec<String> = (0..6).map(|_| word(6)).collect();
            texts.sort();
            texts.dedup();
            let cutter = cutter(&texts.iter().map(String::as_str).collect::<Vec<_>>(), case % 2 == 0);
            let text = word(40);
            assert_eq!(cutter.taken(&text), plainly(&cutter, &text), "{texts:?} in {text:?}");
        }
    }

    #[test]
    fn nested_tokens_take_linear_time() {
        let ladder: Vec<String> = (1..=512).map(|n| "a".repeat(n)).collect();
        let cutter = cutter(&ladder.iter().map(String::as_str).collect::<Vec<_>>(), false);
        let started = std::time::Instant::now();
        let text = "a".repeat(1_000_100);
        let fragments = cutter.cut(&text);
        assert_eq!(fragments.len(), 1_000_100 / 512 + 1);
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }
}
