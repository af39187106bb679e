//! Drafts for several texts at once: which of them, and how far each, is one decision, because they share their passes.
//!
//! With B texts a plain round takes V(B) and gives B tokens. A drafted token that survives with chance σ adds σ tokens and
//! one row. The round that is chosen has the best rate `(B + Σσ) / (ΣD + V(B + n))` over the n likeliest tokens, where D is
//! a draft step of those texts that still draft. A text's tokens can only be taken from the first on, and their chances only
//! fall, so the n likeliest are always possible.
//!
//! *Never slower*: every text's account ([`Policy::settle`]) gets the tokens that a round with drafts gave it, and pays what the
//! round took in plain rounds. While any of them is below zero, drafts have no steps.

use std::collections::BTreeMap;

use super::{Lane, drafting::Steps};
use crate::speculation::{Costs, Offer};

/// A rate must be so much better than that of plain rounds: costs are known no better.
const MARGIN: f64 = 1.03;
/// How fast what was measured replaces what was believed.
const LEARN: f64 = 0.2;
/// The most rows of one pass with drafts.
const MOST_ROWS: usize = 64;

/// What a round under load does for one text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub offer: Option<Offer>,
    /// Tokens to draft.
    pub most: usize,
}

/// What is believed of costs by one of the texts, which knows the sources of all.
pub(super) fn costs<'l>(lanes: &'l [Lane]) -> Option<&'l Costs> {
    lanes.iter().filter_map(|lane| lane.policy.costs()).max_by_key(|costs| costs.sources())
}

/// What passes cost with several texts in them: the belief of a text that is alone, corrected by what was measured.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// By rows, the time of a full pass in that of plain steps, over what was believed of it.
    full: BTreeMap<usize, f64>,
    /// By mask, in the order of sources, the same of draft steps.
    draft: BTreeMap<usize, f64>,
    /// Seconds of a plain step.
    step: Option<f64>,
}

impl Load {
    /// V(n), in plain steps of one text.
    fn full(&self, costs: &Costs, rows: usize) -> f64 {
        let factor = |found: Option<(&usize, &f64)>| found.map(|(_, factor)| *factor);
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
        let per_step = seconds / costs.rows(rows);
        let step = *self.step.get_or_insert(per_step);
        let factor = (per_step / step).clamp(0.25, 4.0);
        let known = self.full.entry(rows).or_insert(factor);
        *known += LEARN * (factor - *known);
    }

    pub fn saw_draft(&mut self, costs: &Costs, source: usize, rows: usize, seconds: f64) {
        let Some(step) = self.step else { return };
        let believed = costs.draft(source) * costs.rows(rows) * step;
        if believed > 0.0 {
            let factor = (seconds / believed).clamp(0.25, 4.0);
            let known = self.draft.entry(source).or_insert(factor);
            *known += LEARN * (factor - *known);
        }
    }

    /// What a round takes in plain rounds, whose passes have `base` rows, with so many drafted tokens and what drafting them
    /// took in plain steps.
    pub fn in_plain_rounds(&self, costs: &Costs, base: usize, drafted: usize, drafting: f64) -> f64 {
        (drafting + self.full(costs, base + drafted)) / self.full(costs, base)
    }

    /// What draft steps took, in plain steps.
    pub fn drafting(&self, costs: &Costs, source: usize, steps: Steps) -> f64 {
        match steps.passes {
            0 => 0.0,
            passes => passes as f64 * self.draft(costs, source, steps.rows.div_ceil(passes)),
        }
    }

    /// What each text is to draft. `others`: rows of the pass that are no text's next token.
    pub fn plan(&self, lanes: &[Lane], offers: &[Vec<Offer>], others: usize, room: usize) -> Vec<Share> {
        let nothing = vec![Share::default(); lanes.len()];
        let Some(costs) = costs(lanes) else { return nothing };
        let in_debt = lanes.iter().any(|lane| lane.policy.balance() < 0.0);
        let base = lanes.len() + others;
        let plain = lanes.len() as f64 / self.full(costs, base);
        let masks = offers.iter().flatten().filter(|offer| !costs.looks_up(offer.source));
        let mut masks: Vec<usize> = masks.map(|offer| offer.source).collect();
        masks.sort_unstable();
        masks.dedup();
        if in_debt {
            masks.clear();
        }
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
            let mut tokens = lanes.len() as f64;
            for (n, &(chance, i)) in slots.iter().enumerate() {
                tokens += chance;
                if chosen[i].is_some_and(|offer| mask == Some(&offer.source)) {
                    steps.resize(steps.len().max(lengths[i] + 1), 0);
                    steps[lengths[i]] += 1;
                }
                lengths[i] += 1;
                let source = mask.copied().unwrap_or(0);
                let drafting: f64 = steps.iter().map(|&rows| self.draft(costs, source, rows)).sum();
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
        let base = lanes.len() + others;
        let mut tokens = lanes.len() as f64;
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
