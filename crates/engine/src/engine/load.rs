//! What the texts of a round are to draft. A text by itself asks its own policy. For several texts it is one decision, because
//! they share their passes.
//!
//! With B texts a plain round takes V(B) and gives B tokens; a prompt that is evaluated in it counts as a token. A drafted
//! token that survives with chance σ adds σ tokens and one row. The round that is chosen has the best rate
//! `(B + Σσ) / (ΣD + V(B + n))` over the n likeliest tokens, where D is a draft step of those texts that still draft. A text's
//! tokens can only be taken from the first on, and their chances only fall, so the n likeliest are always possible.
//!
//! *Never slower*: every text's account ([`Policy::settle`]) gets the tokens that a round with drafts gave it, and pays what the
//! round took, by the clock, in plain rounds. A round that would cost any of them more than it has does not take place. Now and then
//! a plain round is put in, because only that shows what it takes.

use std::collections::BTreeMap;

use super::{
    Lane,
    drafting::{Steps, Until},
};
use crate::speculation::{Costs, Offer, RoundChoice, controller::SPIKE};

/// A rate must be so much better than that of plain rounds: costs are known no better.
const MARGIN: f64 = 1.05;
/// How fast what was measured replaces what was believed.
const LEARN: f64 = 0.2;
/// After so many passes it has to be seen again what a plain round takes.
const PLAIN_AGAIN: u64 = 24;
/// What was seen before is then worth no more than so many passes.
const WORTH: u32 = 4;
/// The most rows of one pass with drafts.
const MOST_ROWS: usize = 64;

/// What a round under load does for one text.
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

/// What the texts of a round are to draft.
pub(super) struct Plan {
    /// By lane.
    pub shares: Vec<Share>,
    pub until: Until,
}

/// Whether it is one text by itself, whose own policy decides and learns what passes cost.
pub(super) fn is_lone(lanes: &[Lane]) -> bool {
    matches!(lanes, [lane] if lane.text.is_going() && lane.text.spec.maker.mask.is_none())
}

/// What was done in a round.
pub(super) struct Done {
    /// Drafted tokens that were verified.
    pub drafted: usize,
    /// What drafting took, in plain steps by what was believed.
    pub drafting: f64,
    /// What all of it took; `None` where a plain round would not have been one pass.
    pub seconds: Option<f64>,
}

/// What is believed of costs by one of the texts, which knows the sources of all.
pub(super) fn costs<'l>(lanes: &'l [Lane]) -> Option<&'l Costs> {
    lanes.iter().filter_map(|lane| lane.policy.costs()).max_by_key(|costs| costs.sources())
}

/// What was seen of passes of one size.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Over what was believed of them.
    factor: f64,
    times: u32,
    /// The number of the pass that was the last.
    last: u64,
}

/// What passes cost with several texts in them: the belief of a text that is alone, corrected by what was measured.
#[derive(Debug, Default)]
pub struct Load {
    /// By rows, the time of a full pass in that of plain steps.
    full: BTreeMap<usize, Seen>,
    /// By mask, in the order of sources, the same of draft steps.
    draft: BTreeMap<usize, f64>,
    /// Seconds of a plain step.
    step: Option<f64>,
    /// Full passes so far.
    passes: u64,
}

impl Load {
    /// V(n), in plain steps of one text.
    fn full(&self, costs: &Costs, rows: usize) -> f64 {
        let factor = |found: Option<(&usize, &Seen)>| found.map(|(_, seen)| seen.factor);
        let below = factor(self.full.range(..=rows).next_back());
        let above = factor(self.full.range(rows..).next());
        let factor = match (below, above) {
            (Some(below), Some(above)) => 0.5 * (below + above),
            (one, other) => one.or(other).unwrap_or(1.0),
        };
        costs.rows(rows) * factor
    }

    /// A draft step of so many texts together.
    fn draft(&self, costs: &Costs, source: usize, rows: usize) -> f64 {
        let factor = self.draft.get(&source).copied().unwrap_or(1.0);
        if costs.looks_up(source) { 0.0 } else { factor * costs.draft(source) * costs.rows(rows) }
    }

    /// A full pass took so long.
    pub fn saw_full(&mut self, costs: &Costs, rows: usize, seconds: f64) {
        let believed = self.full(costs, rows);
        let now = seconds / believed;
        let step = self.step.get_or_insert(now);
        let error = (now / *step).min(SPIKE) - 1.0;
        let factor = believed / costs.rows(rows);
        self.passes += 1;
        let seen = self.full.entry(rows).or_insert(Seen { factor, times: 0, last: self.passes });
        if self.passes - seen.last >= PLAIN_AGAIN {
            seen.times = seen.times.min(WORTH);
        }
        seen.last = self.passes;
        // What is new tells of passes of this size, what is known well of the machine's speed, which all of them share.
        seen.times += 1;
        let new = f64::from(seen.times).recip();
        *step *= 1.0 + LEARN * (1.0 - new) * error;
        seen.factor = (seen.factor * (1.0 + new.max(0.25 * LEARN) * error)).clamp(0.25, 4.0);
    }

    fn saw_draft(&mut self, costs: &Costs, source: usize, rows: usize, seconds: f64) {
        let Some(step) = self.step else { return };
        let believed = costs.draft(source) * costs.rows(rows) * step;
        if believed > 0.0 {
            let factor = (seconds / believed).clamp(0.25, 4.0);
            let known = self.draft.entry(source).or_insert(factor);
            *known += LEARN * (factor - *known);
        }
    }

    /// Whether it is unknown by now what a round without drafts takes, that has so many rows.
    fn plain_is_due(&self, rows: usize) -> bool {
        self.full.get(&rows).is_none_or(|seen| self.passes - seen.last >= PLAIN_AGAIN)
    }

    /// What a round is believed to take in plain rounds, whose passes have `base` rows, with so many drafted tokens and what
    /// drafting them takes in plain steps.
    fn expected_rounds(&self, costs: &Costs, base: usize, drafted: usize, drafting: f64) -> f64 {
        let plain = self.full(costs, base);
        // More rows never take less, whatever was measured.
        (drafting + self.full(costs, base + drafted).max(plain)) / plain
    }

    /// What a round with drafts has taken in plain rounds.
    pub fn in_plain_rounds(&self, costs: &Costs, base: usize, done: &Done) -> f64 {
        let expected = self.expected_rounds(costs, base, done.drafted, done.drafting);
        match (self.step, done.seconds) {
            _ if (done.drafted, done.drafting) == (0, 0.0) => 1.0,
            (Some(step), Some(seconds)) => (seconds / (step * self.full(costs, base))).min(SPIKE * expected),
            _ => expected,
        }
    }

    /// Draft steps of all took so long; gives what that is in plain steps.
    pub fn saw_steps(&mut self, lanes: &[Lane], shares: &[Share], steps: Steps, seconds: f64) -> f64 {
        let Some(costs) = costs(lanes) else { return 0.0 };
        let source = shares.iter().find_map(|share| share.offer.filter(|o| !costs.looks_up(o.source)));
        let (Some(offer), 1..) = (source, steps.passes) else { return 0.0 };
        let rows = steps.rows.div_ceil(steps.passes);
        self.saw_draft(costs, offer.source, rows, seconds / steps.passes as f64);
        self.drafting(costs, offer.source, steps)
    }

    /// What draft steps took, in plain steps.
    fn drafting(&self, costs: &Costs, source: usize, steps: Steps) -> f64 {
        match steps.passes {
            0 => 0.0,
            passes => passes as f64 * self.draft(costs, source, steps.rows.div_ceil(passes)),
        }
    }

    /// What each text is to draft. `others`: rows of the pass that are no text's next token.
    pub fn plan(&self, lanes: &mut [Lane], offers: &[Vec<Offer>], others: usize, room: usize) -> Plan {
        match (is_lone(lanes), &mut *lanes, offers) {
            (true, [lane], [offers]) => {
                Plan { shares: vec![Share::of(lane.policy.choose(offers), offers)], until: Until::Policy }
            }
            _ => Plan { shares: self.shares(lanes, offers, others, room), until: Until::Length },
        }
    }

    /// The same for several texts.
    fn shares(&self, lanes: &[Lane], offers: &[Vec<Offer>], others: usize, room: usize) -> Vec<Share> {
        let nothing = vec![Share::default(); lanes.len()];
        let Some(costs) = costs(lanes) else { return nothing };
        let may_lose = lanes.iter().map(|lane| lane.policy.balance()).fold(f64::INFINITY, f64::min);
        let going = lanes.iter().filter(|lane| lane.text.is_going()).count();
        let base = going + others;
        if others == 0 && self.plain_is_due(base) {
            return nothing;
        }
        let gaining = gaining(lanes);
        let plain = gaining as f64 / self.full(costs, base);
        let masks = offers.iter().flatten().filter(|offer| !costs.looks_up(offer.source));
        let mut masks: Vec<usize> = masks.map(|offer| offer.source).collect();
        masks.sort_unstable();
        masks.dedup();
        let most = room.min(MOST_ROWS.saturating_sub(base));
        let mut best = (MARGIN * plain, nothing);
        for mask in masks.iter().map(Some).chain([None]) {
            let chosen: Vec<Option<Offer>> = std::iter::zip(lanes, offers)
                .map(|(lane, offers)| {
                    let may = |offer: &&Offer| costs.looks_up(offer.source) || mask == Some(&offer.source);
                    let worth = |offer: &Offer| survivals(lane, offer, most).iter().sum::<f64>();
                    offers.iter().filter(may).max_by(|a, b| worth(a).total_cmp(&worth(b))).copied()
                })
                .collect();
            let mut slots: Vec<(f64, usize)> = std::iter::zip(lanes, &chosen)
                .enumerate()
                .flat_map(|(i, (lane, offer))| {
                    let chances = offer.map_or(Vec::new(), |offer| survivals(lane, &offer, most));
                    chances.into_iter().map(move |chance| (chance, i))
                })
                .collect();
            slots.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            slots.truncate(most);
            let mut lengths = vec![0; lanes.len()];
            // Texts that take the n-th step of the mask.
            let mut steps: Vec<usize> = Vec::new();
            let mut tokens = gaining as f64;
            for (n, &(chance, i)) in slots.iter().enumerate() {
                tokens += chance;
                if chosen[i].is_some_and(|offer| mask == Some(&offer.source)) {
                    steps.resize(steps.len().max(lengths[i] + 1), 0);
                    steps[lengths[i]] += 1;
                }
                lengths[i] += 1;
                let source = mask.copied().unwrap_or(0);
                let drafting: f64 = steps.iter().map(|&rows| self.draft(costs, source, rows)).sum();
                if self.expected_rounds(costs, base, n + 1, drafting) - 1.0 > may_lose {
                    break;
                }
                let rate = tokens / (drafting + self.full(costs, base + n + 1));
                if rate > best.0 {
                    let share = |(offer, &most): (&Option<Offer>, &usize)| Share {
                        offer: offer.filter(|_| most > 0),
                        most,
                    };
                    best = (rate, std::iter::zip(&chosen, &lengths).map(share).collect());
                }
            }
        }
        best.1
    }

    /// How many of the drafted tokens of each text are worth a row, now that drafting them is paid.
    pub fn trim(&self, lanes: &[Lane], shares: &[Share], others: usize) -> Vec<usize> {
        let nothing = vec![0; lanes.len()];
        let Some(costs) = costs(lanes) else { return nothing };
        let mut slots: Vec<(f64, usize)> = Vec::new();
        for (i, (lane, share)) in std::iter::zip(lanes, shares).enumerate() {
            let Some(offer) = share.offer else { continue };
            let mut survival = 1.0;
            for (place, &drafted) in lane.text.made.drafted.iter().enumerate() {
                survival *= lane.policy.chance_of(&offer, place, drafted);
                slots.push((survival, i));
            }
        }
        slots.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let going = lanes.iter().filter(|lane| lane.text.is_going()).count();
        let base = going + others;
        let mut tokens = gaining(lanes) as f64;
        let mut best = (tokens / self.full(costs, base), nothing);
        let mut lengths = vec![0; lanes.len()];
        for (n, &(chance, i)) in slots.iter().enumerate() {
            tokens += chance;
            lengths[i] += 1;
            let rate = tokens / self.full(costs, base + n + 1);
            if rate > best.0 {
                best = (rate, lengths.clone());
            }
        }
        best.1
    }
}

/// Texts that a round takes a step further. Those whose prompts are in it wait for its drafts as the others do.
fn gaining(lanes: &[Lane]) -> usize {
    lanes.iter().filter(|lane| lane.text.is_going() || lane.text.prompt.is_some()).count()
}

/// The chance that each token of a draft is accepted, from the first on.
fn survivals(lane: &Lane, offer: &Offer, most: usize) -> Vec<f64> {
    const LONGEST: usize = 16;
    let length = offer.most.min(most).min(LONGEST).min(offer.ready.map_or(usize::MAX, |ready| ready.tokens));
    let chances = (0..length).scan(1.0, |survival, place| {
        *survival *= lane.policy.chance(offer, place);
        Some(*survival)
    });
    chances.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which 8 rows take 1.6 times as long as 4, whatever is believed of them.
    #[test]
    fn a_slow_moment_does_not_make_drafts_look_cheap() {
        let (costs, mut load) = (Costs::frozen(&[]), Load::default());
        for _ in 0..50 {
            load.saw_full(&costs, 4, 0.05);
            load.saw_full(&costs, 8, 0.08);
        }
        let rounds = |load: &Load| load.expected_rounds(&costs, 4, 4, 0.0);
        assert!((rounds(&load) - 1.6).abs() < 0.05, "{}", rounds(&load));
        // All becomes half as fast, and for long no text drafts.
        for _ in 0..50 {
            load.saw_full(&costs, 4, 0.1);
        }
        assert!((rounds(&load) - 1.6).abs() < 0.25, "{}", rounds(&load));
        for _ in 0..50 {
            load.saw_full(&costs, 4, 0.1);
            load.saw_full(&costs, 8, 0.16);
        }
        assert!((rounds(&load) - 1.6).abs() < 0.05, "{}", rounds(&load));
        let plain = Done { drafted: 0, drafting: 0.0, seconds: Some(0.3) };
        assert_eq!(load.in_plain_rounds(&costs, 4, &plain), 1.0);
        let with_drafts = |seconds| Done { drafted: 4, drafting: 0.2, seconds: Some(seconds) };
        let paid = load.in_plain_rounds(&costs, 4, &with_drafts(0.18));
        assert!((paid - 1.8).abs() < 0.1, "by the clock: {paid}");
        let spike = load.in_plain_rounds(&costs, 4, &with_drafts(9.0));
        assert!(spike < 4.0, "somebody else's time: {spike}");
    }
}
