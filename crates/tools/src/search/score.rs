//! What is known of a candidate: sums over the positions judged so far.

use serde::{Deserialize, Serialize};

/// Over positions `0..positions` of the judge's order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    positions: usize,
    /// One bit a position: the first choices were the same. Kept one by one, because candidates are best
    /// compared where they differ.
    agreed: Vec<u64>,
    overlap: f64,
    kl: f64,
    nll: f64,
}

/// What one position says.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    pub agreed: bool,
    pub overlap: f64,
    pub kl: f64,
    /// Negative log-likelihood of the text's next token.
    pub nll: f64,
}

impl Score {
    /// Adds a position.
    pub fn push(&mut self, verdict: &Verdict) {
        let (word, bit) = (self.positions / 64, self.positions % 64);
        if bit == 0 {
            self.agreed.push(0);
        }
        self.agreed[word] |= u64::from(verdict.agreed) << bit;
        self.positions += 1;
        self.overlap += verdict.overlap;
        self.kl += verdict.kl;
        self.nll += verdict.nll;
    }

    /// Adds the positions that come next.
    pub fn extend(&mut self, later: &Score) {
        for i in 0..later.positions {
            let (word, bit) = (self.positions / 64, self.positions % 64);
            if bit == 0 {
                self.agreed.push(0);
            }
            self.agreed[word] |= (later.agreed[i / 64] >> (i % 64) & 1) << bit;
            self.positions += 1;
        }
        self.overlap += later.overlap;
        self.kl += later.kl;
        self.nll += later.nll;
    }

    /// How many positions it is of.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Share of positions where both models' first choice is the same.
    pub fn agreement(&self) -> f64 {
        self.agreed.iter().map(|w| w.count_ones()).sum::<u32>() as f64 / self.positions as f64
    }

    /// Mean of Σ min(p, q).
    pub fn overlap(&self) -> f64 {
        self.overlap / self.positions as f64
    }

    /// The mean KL divergence from the full model, in nats.
    pub fn kl(&self) -> f64 {
        self.kl / self.positions as f64
    }

    /// Of the masked model, on the text's own next tokens.
    pub fn perplexity(&self) -> f64 {
        (self.nll / self.positions as f64).exp()
    }

    /// One standard error of the difference of two agreements over the positions that both have: only where one
    /// agreed and the other did not is anything uncertain.
    pub fn error_against(&self, other: &Score) -> f64 {
        let n = self.positions.min(other.positions);
        let (mut only_here, mut only_there) = (0.0, 0.0);
        for i in 0..n {
            match (self.at(i), other.at(i)) {
                (true, false) => only_here += 1.0,
                (false, true) => only_there += 1.0,
                _ => {}
            }
        }
        let n = n as f64;
        let difference: f64 = only_here - only_there;
        // One more of each, so that no few positions ever look certain.
        ((only_here + only_there + 2.0 - difference * difference / n).max(0.0)).sqrt() / n
    }

    fn at(&self, position: usize) -> bool {
        self.agreed[position / 64] >> (position % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(agreed: impl IntoIterator<Item = bool>) -> Score {
        let mut score = Score::default();
        for agreed in agreed {
            score.push(&Verdict { agreed, overlap: 0.5, kl: 1.0, nll: 2f64.ln() });
        }
        score
    }

    #[test]
    fn parts_make_the_whole() {
        let agreed = |i: usize| i.is_multiple_of(3) || i > 150;
        let whole = score((0..200).map(agreed));
        let mut parts = score((0..70).map(agreed));
        parts.extend(&score((70..133).map(agreed)));
        parts.extend(&score((133..200).map(agreed)));
        assert_eq!((parts.positions, &parts.agreed), (whole.positions, &whole.agreed));
        let expected = (0..200).filter(|&i| agreed(i)).count() as f64 / 200.0;
        assert_eq!(parts.agreement(), expected);
        assert!((parts.overlap() - 0.5).abs() < 1e-12 && (parts.perplexity() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn errors_come_from_where_two_differ() {
        let even = score((0..100).map(|i| i % 2 == 0));
        // The same everywhere: only the two added doubts are left.
        assert!((even.error_against(&even) - 2f64.sqrt() / 100.0).abs() < 1e-12);
        // 50 positions differ, 25 each way: sqrt(52) / 100.
        let quarters = score((0..100).map(|i| i % 4 < 2));
        assert!((even.error_against(&quarters) - 52f64.sqrt() / 100.0).abs() < 1e-12);
    }
}
