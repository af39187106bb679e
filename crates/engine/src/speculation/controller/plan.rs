//! The expected gain and cost of a draft from a source.

use super::{Controller, group::Planned};
use crate::speculation::{
    costs::{MOST_ROWS, expected_tokens},
    policy::{Drafted, Offer, Ready, Round},
};

impl Controller {
    /// The draft length with the best rate, for a text by itself.
    pub(super) fn plan(&self, offer: &Offer, most: usize, deviations: f64) -> Planned {
        let chance = |_, index| Some(self.hopeful_chance(offer, index, deviations));
        let mut planned = Planned::likeliest(1, 1.0, most, chance, |_, _, n| Some(self.price(offer, n)));
        planned.rate *= self.arms[offer.source].yields();
        planned
    }

    /// The chance of a token, if it is better than estimated by so many standard deviations.
    pub(super) fn hopeful_chance(&self, offer: &Offer, index: usize, deviations: f64) -> f64 {
        let arm = &self.arms[offer.source];
        arm.known.before.hopeful_chance(arm.before(offer.ready, index), deviations)
    }

    /// Tokens that a draft of at most so many is expected to give.
    pub(super) fn expected_accepted(&self, offer: &Offer, most: usize) -> f64 {
        let chances =
            (0..self.most(offer).min(most)).map(|index| self.chance_at(offer.source, offer.ready, index));
        expected_tokens(chances) - 1.0
    }

    /// The draft steps of so many tokens: the first, and one for each token that was not guessed.
    pub(super) fn steps(&self, offer: &Offer, tokens: usize) -> f64 {
        let Some(guide) = &offer.guide else { return tokens as f64 };
        let missed = 1.0 - self.chance_at(guide.source, guide.ready, 0);
        let further = tokens.saturating_sub(1) as f64;
        tokens.min(1) as f64 + further * (missed * self.arms[offer.source].steps()).min(1.0)
    }

    /// The cost of a round with so many drafted tokens.
    pub(super) fn price(&self, offer: &Offer, tokens: usize) -> f64 {
        self.costs.round(offer.source, self.steps(offer, tokens), tokens)
    }

    /// The chance of a token of which only the position is known.
    pub(super) fn chance_at(&self, source: usize, ready: Option<Ready>, place: usize) -> f64 {
        let arm = &self.arms[source];
        arm.known.before.chance(arm.before(ready, place))
    }

    /// The chance of a token that was drafted.
    pub(super) fn chance_of_drafted(
        &self,
        source: usize,
        ready: Option<Ready>,
        place: usize,
        drafted: Drafted,
    ) -> f64 {
        let arm = &self.arms[source];
        match ready {
            Some(_) => self.chance_at(source, ready, place),
            None => arm.known.after.chance(arm.after(drafted, place)),
        }
    }

    /// The longest draft that makes sense.
    pub(super) fn most(&self, offer: &Offer) -> usize {
        offer.ready.map_or(offer.most, |ready| offer.most.min(ready.tokens)).min(MOST_ROWS - 1)
    }

    /// The longest draft that loses no more than so many plain steps if none of it is accepted.
    pub(super) fn affordable(&self, offer: &Offer, may_lose: f64) -> usize {
        let loss = |k: usize| self.price(offer, k) - 1.0;
        (1..=self.most(offer)).take_while(|&k| loss(k) <= may_lose).count()
    }

    /// The offer with the best optimistic rate, for a text by itself.
    pub(super) fn most_hopeful<'a>(&self, offers: &'a [Offer]) -> Option<&'a Offer> {
        let hope = |offer: &Offer| self.plan(offer, self.most(offer), 1.0).rate;
        offers
            .iter()
            .map(|offer| (offer, hope(offer)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(offer, _)| offer)
    }

    /// The number of accepted tokens that was expected before they were checked.
    pub(super) fn expected(&self, source: usize, round: &Round, ready: Option<Ready>) -> f64 {
        let arm = &self.arms[source];
        let others = round.others.iter().enumerate();
        let others = others.map(|(rank, &other)| arm.known.others.chance(arm.other(other, rank)));
        let drafted = round.drafted.iter().enumerate();
        let chances = drafted.map(|(place, &drafted)| self.chance_of_drafted(source, ready, place, drafted));
        expected_tokens(chances) + others.sum::<f64>()
    }
}
