//! DRY: a token that would continue a repetition of earlier text becomes less likely, the more so the longer the repetition
//! already is. Repetitions do not extend across breakers.

use std::{collections::HashMap, fmt};

use crate::{Tokenizer, tokenizer::EncodeOptions};

/// Longer breakers are cut, as in llama.cpp: bytes of a text, and tokens of it behind its first.
const LONGEST_TEXT: usize = 40;
const LONGEST_TAIL: usize = 20;
/// ln of the highest f32, where exponents end.
const LN_MAX: f32 = 88.722_84;

/// Settings, with llama.cpp's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// 0: off.
    pub multiplier: f32,
    /// The factor for each further token of a repetition: 1 and above.
    pub base: f32,
    /// Repetitions shorter than this have no penalty.
    pub allowed_length: usize,
    /// How many of the last tokens are looked at; `usize::MAX`: all, 0: off.
    pub last_n: usize,
    /// Texts across which no repetition extends.
    pub breakers: Breakers,
}

impl Default for Dry {
    fn default() -> Self {
        Dry { multiplier: 0.0, base: 1.75, allowed_length: 2, last_n: 64, breakers: Breakers::default() }
    }
}

impl Dry {
    /// llama.cpp's breakers.
    pub const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

    /// Whether it changes anything.
    pub fn is_on(&self) -> bool {
        self.multiplier != 0.0 && self.last_n > 0
    }

    /// The penalty of a token that would continue a repetition of so many tokens.
    fn penalty(&self, length: usize) -> f32 {
        let most = if self.base > 1.000_001 { (LN_MAX / self.base.ln()) as usize } else { usize::MAX };
        let exponent = (length - self.allowed_length).min(most);
        (f64::from(self.multiplier) * f64::from(self.base).powf(exponent as f64)) as f32
    }
}

/// Texts, and all ways in which tokens spell them: by the token in which a text begins, the tokens that have to follow.
#[derive(Clone, Default, PartialEq)]
pub struct Breakers {
    texts: Vec<String>,
    tails: HashMap<u32, Vec<Vec<u32>>>,
}

impl fmt::Debug for Breakers {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.texts.fmt(f)
    }
}

impl Breakers {
    /// Looks for each text in every token of the vocabulary.
    pub fn new(tokenizer: &Tokenizer, texts: &[impl AsRef<str>]) -> Self {
        let texts: Vec<String> =
            texts.iter().map(|text| text.as_ref().to_owned()).filter(|t| !t.is_empty()).collect();
        let mut tails: HashMap<u32, Vec<Vec<u32>>> = HashMap::new();
        for id in 0..tokenizer.vocab_size() as u32 {
            let piece = match tokenizer.is_control(id) {
                true => tokenizer.piece(id).to_vec(),
                false => tokenizer.decode(&[id]),
            };
            for text in &texts {
                let text = &text.as_bytes()[..text.len().min(LONGEST_TEXT)];
                if piece.windows(text.len()).any(|part| part == text) {
                    tails.entry(id).or_default().push(Vec::new());
                    continue;
                }
                // The token ends with the text's beginning.
                for start in (0..piece.len()).filter(|&start| text.starts_with(&piece[start..])) {
                    // A part of a character cannot be tokenized.
                    let Ok(rest) = std::str::from_utf8(&text[piece.len() - start..]) else { continue };
                    let mut tail = tokenizer.encode(rest, EncodeOptions::PLAIN);
                    tail.truncate(LONGEST_TAIL);
                    tails.entry(id).or_default().push(tail);
                }
            }
        }
        Breakers { texts, tails }
    }

    /// How many tokens at the text's end come after the last breaker.
    fn free(&self, text: &[u32]) -> usize {
        for (start, token) in text.iter().enumerate().rev() {
            let Some(tails) = self.tails.get(token) else { continue };
            let behind = &text[start + 1..];
            let longest = tails.iter().filter(|tail| behind.starts_with(tail)).map(Vec::len).max();
            if let Some(longest) = longest {
                return behind.len() - longest;
            }
        }
        text.len()
    }

    fn is_breaker(&self, token: u32) -> bool {
        self.tails.get(&token).is_some_and(|tails| tails.iter().any(Vec::is_empty))
    }
}

/// Buffers.
#[derive(Default)]
pub(super) struct Repetitions {
    common: Vec<usize>,
    /// Tokens, and the longest repetition that each would continue.
    next: Vec<(u32, usize)>,
}

impl Repetitions {
    /// Tokens that would continue a repetition, and their penalties.
    pub fn penalties(&mut self, dry: &Dry, history: &[u32]) -> impl Iterator<Item = (u32, f32)> {
        let text = &history[history.len().saturating_sub(dry.last_n)..];
        self.next.clear();
        let free = dry.breakers.free(text);
        if text.len() > dry.allowed_length && free >= dry.allowed_length {
            self.common_endings(text);
            let pairs = text.windows(2).zip(&self.common).map(|(pair, &length)| (pair[1], length.min(free)));
            self.next.extend(pairs.filter(|&(_, length)| length >= dry.allowed_length));
            self.next.sort_unstable_by_key(|&(token, length)| (token, std::cmp::Reverse(length)));
            self.next.dedup_by_key(|next| next.0);
        }
        let next = self.next.iter().filter(|(token, _)| !dry.breakers.is_breaker(*token));
        next.map(|&(token, length)| (token, dry.penalty(length)))
    }

    /// For each position of the text, how many tokens up to there are the same as the text's last ones: Gusfield's Z algorithm on the
    /// text read backwards, which takes linear time.
    fn common_endings(&mut self, text: &[u32]) {
        let (n, common) = (text.len(), &mut self.common);
        let back = |i: usize| text[n - 1 - i];
        common.clear();
        common.resize(n, 0);
        // The tokens in `from..to`, read backwards, are known to be the same as the text's end.
        let (mut from, mut to) = (0, 0);
        for start in 1..n {
            let known = if start < to { common[n - 1 - (start - from)].min(to - start) } else { 0 };
            let mut length = known;
            while start + length < n && back(length) == back(start + length) {
                length += 1;
            }
            common[n - 1 - start] = length;
            if start + length > to {
                (from, to) = (start, start + length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_endings_are_those_found_one_by_one() {
        let mut repetitions = Repetitions::default();
        for seed in 0..200u32 {
            let text: Vec<u32> = (0..seed % 40 + 1).map(|i| (i * i * (seed + 3) / 7) % 3).collect();
            repetitions.common_endings(&text);
            for end in 0..text.len() - 1 {
                let pairs = text[..=end].iter().rev().zip(text.iter().rev());
                assert_eq!(
                    repetitions.common[end],
                    pairs.take_while(|(a, b)| a == b).count(),
                    "{text:?} {end}"
                );
            }
        }
    }

    #[test]
    fn the_longest_repetition_counts_and_breakers_end_it() {
        let mut repetitions = Repetitions::default();
        let mut found = |dry: &Dry, text: &[u32]| repetitions.penalties(dry, text).collect::<Vec<_>>();
        let mut dry = Dry { multiplier: 0.5, base: 2.0, ..Dry::default() };
        // 1 2 3 stood before a 4, and 2 3 before a 5: lengths 3 and 2.
        let text = [1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3];
        assert_eq!(found(&dry, &text), [(4, 1.0), (5, 0.5)]);
        assert_eq!(found(&Dry { last_n: 8, ..dry.clone() }, &text), [(5, 0.5)]);
        assert_eq!(found(&Dry { allowed_length: 3, ..dry.clone() }, &text), [(4, 0.5)]);
        dry.breakers.tails.insert(1, vec![vec![]]);
        assert_eq!(found(&dry, &text), [(4, 0.5), (5, 0.5)]);
        dry.breakers.tails.insert(1, vec![vec![2]]);
        assert_eq!(found(&dry, &text), []);
        dry.breakers.tails = HashMap::from([(4, vec![vec![]])]);
        assert_eq!(found(&dry, &text), [(5, 0.5)]);
    }
}
