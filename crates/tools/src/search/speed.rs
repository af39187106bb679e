//! What agreement and cost are worth: predicted tokens per time over plain decoding, by draft length.
//!
//! All times are in units of one plain step. A round drafts `k` tokens at `c` each and verifies `k + 1` rows; it
//! yields the accepted ones and one more.

use crate::speculation::costs::expected_tokens;

/// The speedup of the best draft length, and that length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    pub speedup: f64,
    pub draft_len: usize,
}

/// Tokens of a round of `k` drafts that are each accepted with chance `a`, whatever came before:
/// `1 + a + .. + a^k`.
pub fn tokens_if_independent(a: f64, k: usize) -> f64 {
    expected_tokens(std::iter::repeat_n(a, k))
}

/// Of rounds of `k` drafts.
pub fn speedup(tokens: f64, k: usize, c: f64, verification: f64) -> f64 {
    tokens / (k as f64 * c + verification)
}

/// Over draft lengths from 1 to `most`. `verification` is asked for numbers of rows.
pub fn best(most: usize, tokens: impl Fn(usize) -> f64, c: f64, verification: impl Fn(usize) -> f64) -> Best {
    (1..=most)
        .map(|k| Best { speedup: speedup(tokens(k), k, c, verification(k + 1)), draft_len: k })
        .max_by(|a, b| a.speedup.total_cmp(&b.speedup))
        .expect("there is a draft of one token")
}

/// Chances that the drafts of a round are accepted, each given those before it, for rounds that start at
/// consecutive positions of a text: `[position][draft]`.
pub type Acceptance = [Vec<f32>];

/// Tokens per round of drafts of `k` over whole texts. A round starts where the one before ended, so hard places,
/// where rounds are short, see more of them: an average over positions would promise too much.
pub fn tokens_walked<'a>(texts: impl IntoIterator<Item = &'a Acceptance>, k: usize) -> f64 {
    let (mut rounds, mut tokens) = (0.0, 0.0);
    for text in texts {
        // The chance that a round starts here.
        let mut starts = vec![0.0; text.len()];
        if let Some(first) = starts.first_mut() {
            *first = 1.0;
        }
        for at in 0..text.len() {
            let here = starts[at];
            rounds += here;
            let mut alive = here;
            for accepted in 0..=k {
                let next = match accepted < k {
                    true => alive * f64::from(text[at].get(accepted).copied().unwrap_or(0.0)),
                    false => 0.0,
                };
                tokens += (alive - next) * (accepted + 1) as f64;
                if let Some(start) = starts.get_mut(at + accepted + 1) {
                    *start += alive - next;
                }
                alive = next;
            }
        }
    }
    if rounds == 0.0 { 1.0 } else { tokens / rounds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_designs_arithmetic() {
        // a = 0.75, k = 6 drafts at 0.0476 and a verification of one step: 3.47 tokens in 1.286.
        let tokens = tokens_if_independent(0.75, 6);
        assert!((tokens - (1.0 - 0.75f64.powi(7)) / 0.25).abs() < 1e-12);
        assert!((speedup(tokens, 6, 0.1, 1.0) - tokens / 1.6).abs() < 1e-12);
        // Verifying is free and drafting costs 0.5: published optimum for a = 0.9 at δ = 0 and c + δ = 0.5.
        let found = best(12, |k| tokens_if_independent(0.9, k), 0.5, |_| 1.0);
        assert_eq!(found.draft_len, 3);
        assert!((found.speedup - 3.439 / 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_walk_over_even_ground_is_the_formula() {
        let text = vec![vec![0.7f32; 4]; 4000];
        for k in 1..=4 {
            let walked = tokens_walked([&text[..]], k);
            assert!((walked - tokens_if_independent(f64::from(0.7f32), k)).abs() < 1e-9, "k {k}: {walked}");
        }
    }

    #[test]
    fn a_walk_meets_hard_places_more_often() {
        // Half of the text is always right, the other half never: 1/5 round a token here, 1 there.
        let mut text = vec![vec![1.0f32; 4]; 1000];
        text.extend(vec![vec![0.0f32; 4]; 1000]);
        let walked = tokens_walked([&text[..]], 4);
        assert!((walked - 2000.0 / 1200.0).abs() < 0.01, "{walked}");
    }

    #[test]
    fn a_walk_of_certainties_counts_rounds() {
        // Accepted in a row from each position: 2, 0, 1, 0 (drafts of 2): rounds at 0 and 3, of 3 and 1 tokens.
        let text = [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]].map(Vec::from);
        assert_eq!(tokens_walked([&text[..]], 2), 2.0);
        assert_eq!(tokens_walked(std::iter::empty(), 2), 1.0);
    }
}
