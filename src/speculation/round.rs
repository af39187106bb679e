//! A greedy round that the device runs by itself: the draft's steps, each with the token that the one before picked,
//! then the verification; what comes back is what each of them picked.

use std::{ops::ControlFlow, time::Instant};

use super::{
    DRAFT, Drafting, Run, TARGET, Token,
    accept::Proposal,
    policy::Drafted,
    proposer::glance::{self, CANDIDATES},
};
use crate::{Batch, Result, RunLayers, batch::ChainBatch, scores::Want};

impl<F: FnMut(Token) -> Result<ControlFlow<()>>> Run<'_, '_, F> {
    /// Drafts and verifies in one go. `None` where that cannot be: the source has more to it than a mask, not only
    /// the best tokens matter, the policy wants to see the tokens as they come, the cache has no room for the draft
    /// and the verification at once, or the device cannot; then nothing has happened.
    pub(super) fn whole_round(&mut self, source: usize, most: usize) -> Result<Option<Drafting>> {
        let started = Instant::now();
        if self.want != Want::Top(1) {
            return Ok(None);
        }
        let Some(mask) = self.speculation.proposers[source].mask() else { return Ok(None) };
        let count = self.speculation.policy.length(source, most).unwrap_or(0);
        if count == 0 || 2 * count + 1 > self.context.kv().room() {
            return Ok(None);
        }
        let last = *self.text.out.tokens.last().expect("the first token came from the prompt");
        let links = links(last, self.context.kv().next_pos(TARGET), mask, count);
        self.context.fork(TARGET, DRAFT);
        let chained = self.context.decode_chain(&links, CANDIDATES);
        self.context.remove(DRAFT);
        let Some(chained) = chained? else { return Ok(None) };
        for place in 0..count {
            let scores = self.context.scores(place);
            let token = scores.greedy();
            self.made.proposals.push(Proposal { token, q: None });
            self.made.drafted.push(Drafted { confidence: glance::probability(scores, token) });
            self.made.candidates.push(glance::best(scores));
        }
        self.made.trim(count, self.text.ends);
        // The verification's rows come after the draft's.
        self.row = count;
        let seconds = started.elapsed().as_secs_f64();
        let verified = seconds * chained.last;
        Ok(Some(Drafting { source: Some(source), seconds: seconds - verified, verified: Some(verified) }))
    }
}

/// `count` draft steps on a fork of the text, then all of them on the text itself.
fn links(last: u32, pos: u32, mask: &RunLayers, count: usize) -> Vec<ChainBatch> {
    let positions = || (pos..).take(count);
    let mut links: Vec<ChainBatch> = positions()
        .enumerate()
        .map(|(step, pos)| ChainBatch {
            batch: Batch::prompt(&[last], pos, DRAFT).with_layers(mask.clone()),
            picked: step.checked_sub(1).map(|before| (0, before)).into_iter().collect(),
        })
        .collect();
    let mut rows = Batch::new();
    rows.push(last, pos, TARGET, true);
    positions().for_each(|pos| rows.push(last, pos + 1, TARGET, true));
    links
        .push(ChainBatch { batch: rows, picked: (0..count).map(|drafted| (drafted + 1, drafted)).collect() });
    links
}
