//! How often a head is right on texts that it was not fitted to, where its drafts choose from a list that grows with the text.

use super::{
    chain::{Rows, forward},
    loss::List,
    store::{BEST, Store, Text},
};
use crate::{
    Result,
    head::{Tables, Weights},
};

/// Steps of a draft that are judged.
pub const DEPTH: usize = 4;
/// A right token that is no better placed counts as missed.
const MOST_RANK: u8 = 6;

/// Which place the right token has among what a step proposes, 0 for the best; by row and step, each step that many rows
/// after the draft began.
pub struct Ranks {
    texts: Vec<Vec<[u8; DEPTH]>>,
    /// Rows whose token was not on the list.
    missed: usize,
}

/// Of the texts that are held out at a temperature of 0, or of those above.
pub fn ranks(store: &Store, tables: &Tables, weights: &Weights, base: &[u32], greedy: bool) -> Result<Ranks> {
    let mut ranks = Ranks { texts: Vec::new(), missed: 0 };
    for (index, text) in store.texts().iter().enumerate() {
        if !text.held_out || (text.temp <= 0.0) != greedy || text.rows() == 0 {
            continue;
        }
        let rows = Rows::of(store, tables, &[index], None)?;
        let (list, known_from) = list_of(text, base, tables);
        let mut of_text = vec![[u8::MAX; DEPTH]; rows.len()];
        for (n, step) in forward(weights, &rows, DEPTH).iter().enumerate() {
            let logits = list.logits(&step.out, weights.scale());
            for (&row, logits) in step.rows.iter().zip(logits.chunks_exact(list.tokens.len())) {
                let began = row - n;
                let known = |place: usize| known_from[place] as usize <= began;
                let next = rows.next[row];
                let right = list.tokens.iter().position(|&token| token == next).filter(|&place| known(place));
                let rank = right.map(|right| {
                    let better = |place: &usize| logits[*place] > logits[right] && known(*place);
                    (0..logits.len()).filter(better).count().min(usize::from(u8::MAX)) as u8
                });
                ranks.missed += usize::from(n == 0 && right.is_none());
                of_text[began][n] = rank.unwrap_or(u8::MAX);
            }
        }
        ranks.texts.push(of_text);
    }
    Ok(ranks)
}

/// What drafts of a text may ever choose from, and from which row on each token is known.
fn list_of(text: &Text, base: &[u32], tables: &Tables) -> (List, Vec<u32>) {
    let mut from = vec![u32::MAX; tables.model().n_vocab()];
    base.iter().chain(&text.prompt).for_each(|&token| from[token as usize] = 0);
    for (row, &token) in text.tokens.iter().enumerate() {
        let known = &mut from[token as usize];
        *known = (*known).min(row as u32);
    }
    for (row, best) in text.best.chunks_exact(BEST).enumerate() {
        for &token in best {
            let known = &mut from[token as usize];
            *known = (*known).min(row as u32);
        }
    }
    let tokens: Vec<u32> = (0..from.len() as u32).filter(|&token| from[token as usize] != u32::MAX).collect();
    let known_from = tokens.iter().map(|&token| from[token as usize]).collect();
    (List::new(tokens, tables), known_from)
}

impl Ranks {
    /// Drafts that were judged.
    pub fn rows(&self) -> usize {
        self.texts.iter().map(Vec::len).sum()
    }

    /// The share of right tokens that no draft could have proposed.
    pub fn missed(&self) -> f64 {
        self.missed as f64 / self.rows().max(1) as f64
    }

    fn share(&self, counts: impl Fn(&[u8; DEPTH]) -> bool) -> f64 {
        let right = self.texts.iter().flatten().filter(|ranks| counts(ranks)).count();
        right as f64 / self.rows().max(1) as f64
    }

    /// How often the first, the first two, and so on, are all right.
    pub fn agreement(&self) -> [f64; DEPTH] {
        std::array::from_fn(|n| self.share(|ranks| ranks[..=n].iter().all(|&rank| rank == 0)))
    }

    /// How often the right token is among so many of the first step's.
    pub fn among(&self, best: u8) -> f64 {
        self.share(|ranks| ranks[0] < best)
    }

    /// Tokens that a round brings whose drafts are these paths of ranks: rounds begin where the last one ended.
    pub fn tokens_a_round(&self, paths: &[&[u8]]) -> f64 {
        let (mut rounds, mut tokens) = (0, 0);
        for text in &self.texts {
            let mut at = 0;
            while at < text.len() {
                let right =
                    |path: &&&[u8]| text[at].starts_with(path) && path.iter().all(|&rank| rank < MOST_RANK);
                let accepted = paths.iter().filter(right).map(|path| path.len()).max().unwrap_or(0);
                rounds += 1;
                tokens += accepted + 1;
                at += accepted + 1;
            }
        }
        tokens as f64 / f64::from(rounds.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_walked_as_a_text_is_verified() {
        let missed = u8::MAX;
        let text = vec![
            [0, 0, 1, 0],
            [0, missed, 0, 0],
            [1, 0, 0, 0],
            [missed, 0, 0, 0],
            [0, missed, missed, missed],
        ];
        let ranks = Ranks { texts: vec![text], missed: 1 };
        assert_eq!(ranks.agreement(), [0.6, 0.2, 0.0, 0.0]);
        assert_eq!((ranks.among(1), ranks.among(2), ranks.missed()), (0.6, 0.8, 0.2));
        // Accepts 1 of 1, then begins at row 2: 0, row 3: 0, row 4: 1.
        assert_eq!(ranks.tokens_a_round(&[&[0]]), 6.0 / 4.0);
        // Accepts 2, then row 3: 0, row 4: 1.
        assert_eq!(ranks.tokens_a_round(&[&[0], &[0, 0]]), 6.0 / 3.0);
        // With a second choice row 2 is met: 1, 1, 1 from rows 0, 2 and 4.
        assert_eq!(ranks.tokens_a_round(&[&[0], &[1]]), 6.0 / 3.0);
    }
}
