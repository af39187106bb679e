//! Whose random numbers a sampled token uses.

use std::collections::VecDeque;

use super::accept::Proposal;
use crate::{
    Sampler,
    sampler::{Distribution, rng::Rng},
    scores::Scores,
};

/// Freely, draft and verification draw as they come, and as many drafts are accepted as can be. But then the text depends on
/// what was drafted, and so on the clock. By position, the n-th token has the n-th random number, in the draft as in
/// the text: a seed gives the text that plain decoding gives. Either way it is distributed as plain decoding's.
pub(crate) enum Draws {
    Free,
    ByPosition { ahead: Rng, numbers: VecDeque<f64> },
}

impl Draws {
    pub fn new(repeatable: bool, sampler: &mut Sampler) -> Self {
        match repeatable && !sampler.config().is_greedy() {
            true => Draws::ByPosition { ahead: sampler.rng().clone(), numbers: VecDeque::new() },
            false => Draws::Free,
        }
    }

    /// The full model's distribution for the token in the `place`-th position from the end of the text, given the
    /// sampler's history: one-hot where the random number has already been drawn.
    pub fn target(&mut self, sampler: &mut Sampler, scores: Scores, place: usize) -> Distribution {
        let p = sampler.distribution(scores);
        match self.number(place) {
            Some(number) => Distribution::one_hot(p.draw(number)),
            None => p,
        }
    }

    /// The draft's choice for that position.
    pub fn draft(&mut self, sampler: &mut Sampler, scores: Scores, place: usize) -> Proposal {
        let q = sampler.distribution(scores);
        match (self.number(place), q.entries()) {
            (Some(number), _) => Proposal { token: q.draw(number), q: None },
            (None, [(only, _)]) => Proposal { token: *only, q: None },
            (None, _) => Proposal { token: q.draw(sampler.rng().next_f64()), q: Some(q) },
        }
    }

    /// The next position has its token. The sampler's own stream goes along, as if it had sampled.
    pub fn settle(&mut self, sampler: &mut Sampler) {
        if let Draws::ByPosition { numbers, .. } = self {
            sampler.rng().next_f64();
            numbers.pop_front();
        }
    }

    fn number(&mut self, place: usize) -> Option<f64> {
        let Draws::ByPosition { ahead, numbers } = self else { return None };
        while numbers.len() <= place {
            numbers.push_back(ahead.next_f64());
        }
        Some(numbers[place])
    }
}
