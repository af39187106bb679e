//! Trying a draft on text that is already there: what it would have said first in each of the last places, against
//! what the full model did say. One masked pass tells of a mask what dozens of rounds would.

use super::{DRAFT, TARGET, policy::Drafted, proposer::glance};
use crate::{
    Batch, Context, Result, RunLayers,
    scores::{Scores, Want},
};

/// Places that a trial looks at: with fewer it says too little, with more it takes too long.
pub const PLACES: std::ops::RangeInclusive<usize> = 24..=48;

/// A source that nobody wanted tried in the first so many tokens of a text is not tried any more.
pub const LATEST: usize = 256;

/// The full model's choices after the last tokens that it evaluated.
#[derive(Default)]
pub(super) struct Choices(Vec<u32>);

impl Choices {
    pub fn add(&mut self, scores: Scores) {
        if self.0.len() == 2 * PLACES.end() {
            self.0.drain(..*PLACES.end());
        }
        self.0.push(scores.greedy());
    }

    /// The last of them; `None` if they are too few.
    pub fn last(&self) -> Option<&[u32]> {
        let from = self.0.len().saturating_sub(*PLACES.end());
        (self.0.len() >= *PLACES.start()).then(|| &self.0[from..])
    }
}

/// Runs `mask` in the places whose `choices` are known, which end with the last cell of the text; `text` is what was
/// evaluated. Each place is a sequence of its own, so that it reads the full model's keys and values like the first
/// token of a draft. `None` if the cache has no room.
pub(super) fn trial(
    context: &mut Context,
    text: &[u32],
    mask: &RunLayers,
    choices: &[u32],
) -> Result<Option<Vec<(Drafted, bool)>>> {
    // After a context shift the cache holds less than the text.
    let evaluated = context.kv().len(TARGET);
    let places = choices.len().min(evaluated);
    if context.kv().room() < places {
        return Ok(None);
    }
    let choices = &choices[choices.len() - places..];
    let mut batch = Batch::new().with_layers(mask.clone());
    for (seq, place) in (DRAFT..).zip(evaluated - places..evaluated) {
        context.fork(TARGET, seq);
        context.truncate(seq, place)?;
        let token = text[text.len() - (evaluated - place)];
        batch.push(token, context.kv().next_pos(seq), seq, true);
    }
    let result = context.decode_for(&batch, Want::Top(1));
    batch.rows.iter().for_each(|row| context.remove(row.seq));
    result?;
    let judged = choices.iter().enumerate().map(|(i, &choice)| {
        let scores = context.scores(i);
        let drafted = scores.greedy();
        (Drafted { confidence: glance::probability(scores, drafted) }, drafted == choice)
    });
    Ok(Some(judged.collect()))
}
