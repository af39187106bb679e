//! Decides what each text of a round drafts. A text by itself asks its policy, which may be any. For several texts their
//! controllers decide together.

use super::{
    Lane,
    drafting::{Steps, Until},
};
use crate::speculation::{
    Controller, Costs, Offer, RoundChoice,
    controller::group::{self, Member, RoundTerms},
    costs::Together,
};

/// What one text drafts in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub offer: Option<Offer>,
    /// Tokens to draft.
    pub most: usize,
}

impl Share {
    fn of(choice: RoundChoice, offers: &[Offer]) -> Self {
        let RoundChoice::Draft { source, most } = choice else { return Share::default() };
        let offer = offers.iter().find(|offer| offer.source == source).copied();
        offer.map_or(Share::default(), |offer| Share { offer: Some(offer), most: most.min(offer.most) })
    }
}

/// What the texts of a round draft.
pub(super) struct Decision {
    /// By lane.
    pub shares: Vec<Share>,
    pub until: Until,
}

/// Whether it is one text by itself, whose own policy decides and learns what passes cost.
pub(super) fn is_lone(lanes: &[Lane]) -> bool {
    matches!(lanes, [lane] if lane.text.is_going() && lane.text.spec.maker.mask.is_none())
}

/// The estimated costs, by the text that knows the most sources: it knows those of all others.
pub(super) fn costs<'l>(lanes: &'l [Lane]) -> Option<&'l Costs> {
    let controllers = lanes.iter().filter_map(|lane| lane.policy.controller());
    controllers.map(Controller::costs).max_by_key(|costs| costs.sources())
}

/// Decides what each text drafts. `offers` by lane.
pub(super) fn decide(lanes: &mut [Lane], offers: &[Vec<Offer>], terms: &RoundTerms) -> Decision {
    if terms.by_itself {
        let choice = lanes[0].policy.choose(&offers[0]);
        return Decision { shares: vec![Share::of(choice, &offers[0])], until: Until::Policy };
    }
    let mut shares = vec![Share::default(); lanes.len()];
    let (lanes_of, mut members) = members(lanes, |lane| &offers[lane]);
    if !members.is_empty() {
        let choices = group::decide(&mut members, terms);
        for (lane, choice) in lanes_of.into_iter().zip(choices) {
            shares[lane] = Share::of(choice, &offers[lane]);
        }
    }
    Decision { shares, until: Until::Length }
}

/// How many drafted tokens of each text are worth verifying, now that they are drafted. By lane.
pub(super) fn worth_verifying(lanes: &mut [Lane], shares: &[Share], terms: &RoundTerms) -> Vec<usize> {
    let drafted: Vec<_> = lanes.iter().map(|lane| lane.text.made.drafted.clone()).collect();
    let mut kept = vec![0; lanes.len()];
    let (lanes_of, mut members) = members(lanes, |_| &[]);
    let drafts: Vec<_> =
        lanes_of.iter().map(|&lane| shares[lane].offer.map(|offer| (offer, &drafted[lane][..]))).collect();
    if !members.is_empty() {
        let lengths = group::worth_verifying(&mut members, &drafts, terms);
        lanes_of.into_iter().zip(lengths).for_each(|(lane, length)| kept[lane] = length);
    }
    kept
}

/// The texts that get tokens in this round, each with its lane. Texts whose prompts are in the round wait for its drafts like
/// the others.
fn members<'m>(
    lanes: &'m mut [Lane],
    offers: impl Fn(usize) -> &'m [Offer],
) -> (Vec<usize>, Vec<Member<'m>>) {
    let takes_part = |lane: &Lane| lane.text.is_going() || lane.text.prompt.is_some();
    let member = |(i, lane): (usize, &'m mut Lane)| {
        let is_going = lane.text.is_going();
        Some((i, Member { controller: lane.policy.controller_mut()?, offers: offers(i), is_going }))
    };
    lanes.iter_mut().enumerate().filter(|(_, lane)| takes_part(lane)).filter_map(member).unzip()
}

/// Learns how long the draft steps of all texts took, and returns that time in plain steps.
pub(super) fn saw_steps(
    together: &mut Together,
    lanes: &[Lane],
    shares: &[Share],
    steps: Steps,
    seconds: f64,
) -> f64 {
    let Some(costs) = costs(lanes) else { return 0.0 };
    let source = shares.iter().find_map(|share| share.offer.filter(|o| !costs.looks_up(o.source)));
    let (Some(offer), 1..) = (source, steps.passes) else { return 0.0 };
    let rows = steps.rows.div_ceil(steps.passes);
    together.saw_draft(costs, offer.source, rows, seconds / steps.passes as f64);
    steps.passes as f64 * together.draft(costs, offer.source, rows)
}
