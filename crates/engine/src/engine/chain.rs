//! A greedy round that the device runs by itself: the draft's steps, each with the token that the step before picked, and then
//! the verification. The tokens that all of them picked come back at the end.

use std::time::Instant;

use super::{Lane, verify::Pass};
use crate::{
    Batch, Context, Result, RunLayers,
    batch::{ChainBatch, SeqId},
    scores::Want,
    speculation::{
        policy::Drafted,
        proposer::confidence::{self, CANDIDATES},
    },
};

/// A round that the device has run.
pub(super) struct Chained {
    pub draft_seconds: f64,
    pub pass: Pass,
}

/// Drafts and verifies without waiting in between. `None`, and nothing has happened, where that is not possible: the source is
/// more than a mask, other tokens than the best matter, the policy wants to see each token, the cache has no room for draft and
/// verification at once, or the device cannot do it.
pub(super) fn whole_round(
    context: &mut Context,
    lane: &mut Lane,
    source: usize,
    most: usize,
) -> Result<Option<Chained>> {
    let started = Instant::now();
    if lane.text.want != Want::Top(1) {
        return Ok(None);
    }
    let Some(mask) = lane.proposers[source].mask() else { return Ok(None) };
    let count = lane.policy.length(source, most).unwrap_or(0);
    if count == 0 || 2 * count + 1 > context.kv().room() {
        return Ok(None);
    }
    let (seq, draft) = (lane.text.spec.seq, lane.text.spec.draft);
    let links = links(lane.text.last(), context.kv().next_pos(seq), (seq, draft), mask, count);
    context.fork(seq, draft);
    let chained = context.decode_chain(&links, CANDIDATES);
    context.remove(draft);
    let Some(chained) = chained? else { return Ok(None) };
    let made = &mut lane.text.made;
    for place in 0..count {
        let scores = context.scores(place);
        let token = scores.greedy();
        made.proposals.push(token);
        made.drafted.push(Drafted { confidence: confidence::probability(scores, token) });
        made.candidates.push(confidence::best(scores));
    }
    made.trim(count, &|token| lane.text.spec.is_end(token));
    // The verification's rows come after the draft's.
    lane.text.row = count;
    let seconds = started.elapsed().as_secs_f64();
    let verified = seconds * chained.last;
    let pass = Pass { rows: made.proposals.len() + 1, seconds: verified, from_layer: 0, is_full: true };
    Ok(Some(Chained { draft_seconds: seconds - verified, pass }))
}

/// `count` draft steps on a fork of the text, then the verification of all of them on the text itself.
fn links(
    last: u32,
    pos: u32,
    (seq, draft): (SeqId, SeqId),
    mask: &RunLayers,
    count: usize,
) -> Vec<ChainBatch> {
    let positions = || (pos..).take(count);
    let mut links: Vec<ChainBatch> = positions()
        .enumerate()
        .map(|(step, pos)| ChainBatch {
            batch: Batch::prompt(&[last], pos, draft).with_layers(mask.clone()),
            picked: step.checked_sub(1).map(|before| (0, before)).into_iter().collect(),
        })
        .collect();
    let mut rows = Batch::new();
    rows.push(last, pos, seq, true);
    positions().for_each(|pos| rows.push(last, pos + 1, seq, true));
    links
        .push(ChainBatch { batch: rows, picked: (0..count).map(|drafted| (drafted + 1, drafted)).collect() });
    links
}
