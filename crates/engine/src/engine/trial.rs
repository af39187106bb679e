//! Tries a draft source on text that is already there: compares the first token that it would have drafted at each of the last
//! positions with the full model's choice. One masked pass shows as much of a mask as dozens of rounds would.

use std::{sync::Arc, time::Instant};

use super::Lane;
use crate::{
    Batch, Context, Result, RunLayers,
    batch::SeqId,
    scores::{Scores, Want},
    shortlist::Shortlist,
    speculation::{policy::Drafted, proposer::confidence},
};

/// The first sequence id for a trial's positions, far from all other sequences.
const FIRST_PLACE: SeqId = 1 << 31;

/// How many positions a trial uses: with fewer it shows too little, with more it takes too long.
const PLACES: std::ops::RangeInclusive<usize> = 24..=48;

/// A source that was not tried within this many tokens of a text is not tried any more.
const LATEST: usize = 256;

/// The full model's choices after the last tokens that it evaluated.
#[derive(Default)]
pub struct Choices(Vec<u32>);

impl Choices {
    pub fn add(&mut self, scores: Scores) {
        if self.0.len() == 2 * PLACES.end() {
            self.0.drain(..*PLACES.end());
        }
        self.0.push(scores.greedy());
    }

    /// The last of them, or `None` if there are too few.
    pub fn last(&self) -> Option<&[u32]> {
        let from = self.0.len().saturating_sub(*PLACES.end());
        (self.0.len() >= *PLACES.start()).then(|| &self.0[from..])
    }
}

/// Collects the sources that may be tried on this text. They are tried on what the model writes, where they are right more often
/// than on the prompt.
pub fn prepare(lane: &mut Lane) {
    // Which one to try may change as the text grows.
    let untried = (0..lane.proposers.len()).filter(|&s| lane.proposers[s].mask().is_some());
    lane.text.untried = untried.collect();
    let tries = |&s: &usize| lane.policy.wants_trial(s, *PLACES.start());
    if !lane.text.untried.iter().any(tries) {
        lane.text.untried.clear();
    }
}

/// Tries one of the sources that are still to be tried, if there is enough text and the policy has not seen enough of them.
pub(super) fn next(context: &mut Context, lane: &mut Lane) -> Result<()> {
    if lane.text.out.tokens.len() > LATEST {
        lane.text.untried.clear();
    }
    let Some(known) = lane.text.choices.last().map(<[u32]>::len) else { return Ok(()) };
    let wanted = |&s: &usize| lane.policy.wants_trial(s, known);
    let Some(next) = lane.text.untried.iter().position(wanted) else { return Ok(()) };
    let source = lane.text.untried.remove(next);
    let shortlist = lane.shortlist(source);
    let Some(choices) = lane.text.choices.last() else { return Ok(()) };
    let Some(mask) = lane.proposers[source].mask() else { return Ok(()) };
    let started = Instant::now();
    // All of the text but its last token is evaluated.
    let text = lane.sampler.history();
    let tried = trial(context, lane.text.spec.seq, &text[..text.len() - 1], (mask, shortlist), choices)?;
    let seconds = started.elapsed().as_secs_f64();
    lane.policy.tried(source, &tried.unwrap_or_default(), seconds);
    lane.text.report.trial_seconds += seconds;
    Ok(())
}

/// Runs `mask` at the positions whose `choices` are known, which end with the last cell of the text; `text` is what was evaluated.
/// Each position gets a sequence of its own, so that it reads the full model's keys and values like the first token of a draft.
/// `None` if the cache has no room, or cannot go back that far.
fn trial(
    context: &mut Context,
    seq: SeqId,
    text: &[u32],
    (mask, shortlist): (&RunLayers, Option<Arc<Shortlist>>),
    choices: &[u32],
) -> Result<Option<Vec<(Drafted, bool)>>> {
    // After a context shift the cache holds less than the text.
    let evaluated = context.kv().len(seq);
    let places = choices.len().min(evaluated);
    let goes_back = |place| context.kv().can_truncate(seq, place);
    if context.kv().room() < places || !(evaluated - places..evaluated).all(goes_back) {
        return Ok(None);
    }
    let choices = &choices[choices.len() - places..];
    let mut batch = Batch { shortlist, ..Batch::new().with_layers(mask.clone()) };
    for (own, place) in (FIRST_PLACE..).zip(evaluated - places..evaluated) {
        context.fork(seq, own);
        context.truncate(own, place)?;
        let token = text[text.len() - (evaluated - place)];
        batch.push(token, context.kv().next_pos(own), own, true);
    }
    let result = context.decode_for(&batch, Want::Top(1));
    batch.rows.iter().for_each(|row| context.remove(row.seq));
    result?;
    let judged = choices.iter().enumerate().map(|(i, &choice)| {
        let scores = context.scores(i);
        let drafted = scores.greedy();
        (Drafted { confidence: confidence::probability(scores, drafted) }, drafted == choice)
    });
    Ok(Some(judged.collect()))
}
