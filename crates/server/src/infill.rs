//! What is missing between two texts, asked for as models were trained on it: marked by tokens that the vocabulary has for
//! that. The order is llama.cpp's, and so is what the
//! texts next to the gap have at most; other files get the rest.
//!
//! ```text
//! [REP] myproject [SEP] name of a file, its text .. [SEP] filename [BOS] [PRE] prefix, prompt [SUF] suffix [MID]
//! ```

use crate::{
    Tokenizer,
    tokenizer::{EncodeOptions, GapTokens},
};

/// The prefix and the suffix have at most so many tokens together, as in llama-server by its default.
const NEAR: usize = 2048;
/// Beside the texts: BOS and the three marks.
const MARKS: usize = 4;

/// Where something is missing.
#[derive(Clone, Copy)]
pub struct Gap<'a> {
    pub prefix: &'a str,
    pub suffix: &'a str,
    /// What of the gap is known.
    pub prompt: &'a str,
    /// Other files, by name.
    pub extra: &'a [(String, String)],
}

/// The prompt, at most `room` tokens long but for what is known of the gap: what is nearest to the gap stays.
pub fn tokens(tokenizer: &Tokenizer, marks: &GapTokens, gap: Gap, room: usize) -> Vec<u32> {
    let plain = |text: &str| tokenizer.encode(text, EncodeOptions::PLAIN);
    let known = tokenizer.encode(gap.prompt, EncodeOptions { add_special: false, parse_special: true });
    let mut others = Vec::new();
    if let Some(repository) = marks.repository {
        others.push(repository);
        others.extend(plain("myproject\n"));
    }
    for (name, text) in gap.extra {
        match marks.file {
            Some(file) => {
                others.push(file);
                others.extend(plain(&format!("{name}\n")));
            }
            None => others.extend(plain("\n\n--- snippet ---\n\n")),
        }
        others.extend(plain(text));
    }
    if let Some(file) = marks.file {
        others.push(file);
        others.extend(plain("filename\n"));
    }
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let parts = Parts { others, prefix: plain(gap.prefix), known, suffix: plain(gap.suffix) };
    parts.in_order(marks, bos, room)
}

struct Parts {
    others: Vec<u32>,
    prefix: Vec<u32>,
    known: Vec<u32>,
    suffix: Vec<u32>,
}

impl Parts {
    fn in_order(self, marks: &GapTokens, bos: Option<u32>, room: usize) -> Vec<u32> {
        let Parts { others, prefix, known, suffix } = self;
        let near = NEAR.min(room.saturating_sub(MARKS));
        let prefix = &prefix[prefix.len().saturating_sub(3 * (near / 4))..];
        let suffix = &suffix[..suffix.len().min((near / 4).saturating_sub(known.len()))];
        let rest = room.saturating_sub(prefix.len() + known.len() + suffix.len() + MARKS);
        let others = &others[others.len().saturating_sub(rest)..];
        let mut tokens = others.to_vec();
        tokens.extend(bos);
        tokens.push(marks.prefix);
        tokens.extend_from_slice(prefix);
        tokens.extend(known);
        tokens.push(marks.suffix);
        tokens.extend_from_slice(suffix);
        tokens.push(marks.middle);
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: GapTokens =
        GapTokens { prefix: 1, suffix: 2, middle: 3, repository: Some(4), file: Some(5) };

    fn parts(others: usize, prefix: usize, known: usize, suffix: usize) -> Parts {
        let from = |first: u32, count: usize| (first..).take(count).collect();
        Parts {
            others: from(1000, others),
            prefix: from(10_000, prefix),
            known: from(20_000, known),
            suffix: from(30_000, suffix),
        }
    }

    #[test]
    fn the_order_is_llama_cpps() {
        let all = parts(2, 2, 1, 2).in_order(&MARKS, Some(9), 100);
        assert_eq!(all, [1000, 1001, 9, 1, 10_000, 10_001, 20_000, 2, 30_000, 30_001, 3]);
        assert_eq!(parts(0, 1, 0, 0).in_order(&MARKS, None, 100), [1, 10_000, 2, 3]);
    }

    #[test]
    fn what_is_nearest_to_the_gap_stays() {
        for room in [4, 10, 64, 1000, 5000] {
            let all = parts(9000, 9000, 0, 9000).in_order(&MARKS, Some(9), room);
            assert!(all.len() <= room, "{} of {room}", all.len());
            let at = |mark| all.iter().position(|id| *id == mark).unwrap();
            let near = NEAR.min(room - 4);
            assert_eq!((at(2) - at(1) - 1, at(3) - at(2) - 1), (3 * (near / 4), near / 4), "{room}");
            if near >= 4 {
                assert_eq!((all[at(2) - 1], all[at(2) + 1]), (10_000 + 8999, 30_000), "{room}");
            }
        }
        let all = parts(9000, 10, 0, 10).in_order(&MARKS, None, 5000);
        assert_eq!(all[..all.iter().position(|id| *id == 1).unwrap()].last(), Some(&(1000 + 8999)));
    }
}
