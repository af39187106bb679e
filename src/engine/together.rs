//! A round of several texts: drafts that were chosen together, and one pass of the full model over what each goes on with
//! and over parts of prompts.

use std::time::Instant;

use super::{
    Lane, Load,
    drafting::{self, Steps},
    load::{self, Done, Share},
    text::{Hear, Part},
    verify,
};
use crate::{Batch, Context, Result, RunLayers, scores::Want, speculation::Round};

/// What one text has in a pass.
struct Rows {
    lane: usize,
    /// Its first row.
    row: usize,
    /// Its first output.
    output: usize,
}

/// One round; gives the number of its full passes, and of texts in these. Texts whose prompt is not evaluated yet get at most
/// `chunk` rows of theirs in it, all together. There must be cells for all rows.
pub(crate) fn round(
    context: &mut Context,
    lanes: &mut [Lane],
    chunk: usize,
    load: &mut Load,
    hear: Hear,
) -> Result<(u64, u64)> {
    let parts = parts(lanes, chunk);
    let others: usize = parts.iter().map(|part| part.as_ref().map_or(0, |part| part.rows.len())).sum();
    let going: Vec<usize> = (0..lanes.len()).filter(|&i| lanes[i].text.is_going()).collect();
    let drafts = draft(context, lanes, &going, others, load)?;
    let drafted = lanes.iter().map(|lane| lane.text.made.proposals.len()).sum();
    let groups = groups(lanes, &parts);
    let mut seconds = drafts.seconds;
    for group in &groups {
        seconds += pass(context, lanes, group, &parts, &drafts.shares, load, hear)?;
    }
    for (lane, _) in std::iter::zip(lanes.iter_mut(), &parts).filter(|(_, part)| part.is_some()) {
        lane.text.make_unseen(context)?;
    }
    let seconds = (groups.len() == 1).then_some(seconds);
    settle(lanes, &going, others, &Done { drafted, drafting: drafts.cost, seconds }, load);
    Ok((groups.len() as u64, groups.iter().map(Vec::len).sum::<usize>() as u64))
}

/// What each lane's prompt has in this pass.
fn parts(lanes: &[Lane], chunk: usize) -> Vec<Option<Part>> {
    let mut left = chunk;
    let part = |lane: &Lane| {
        let part = lane.text.next_part(left)?;
        left -= part.rows.len();
        Some(part)
    };
    lanes.iter().map(part).collect()
}

/// Lanes that share a pass: those under the same mask.
fn groups(lanes: &[Lane], parts: &[Option<Part>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let takes_part = |i: &usize| parts[*i].is_some() || lanes[*i].text.is_going();
    for i in (0..lanes.len()).filter(takes_part) {
        let mask = |i: usize| &lanes[i].text.limits.mask;
        match groups.iter_mut().find(|group| mask(group[0]) == mask(i)) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    groups
}

/// What was drafted.
struct Drafts {
    /// By lane.
    shares: Vec<Share>,
    /// What it took, in plain steps by what was believed.
    cost: f64,
    seconds: f64,
}

/// Has drafted what is worth it, and cuts it to what is to be verified.
fn draft(
    context: &mut Context,
    lanes: &mut [Lane],
    going: &[usize],
    others: usize,
    load: &mut Load,
) -> Result<Drafts> {
    let mut drafts = Drafts { shares: vec![Share::default(); lanes.len()], cost: 0.0, seconds: 0.0 };
    for lane in lanes.iter_mut() {
        lane.text.made.clear();
    }
    let room = context.kv().room_to_draft().saturating_sub(going.len() + others);
    if going.is_empty() || room == 0 {
        return Ok(drafts);
    }
    let each = room / going.len();
    let offers: Vec<_> = lanes
        .iter_mut()
        .map(|lane| match lane.text.is_going() {
            true => lane.offers(context, lane.text.most_drafted(context).min(each)),
            false => Vec::new(),
        })
        .collect();
    let shares = load.plan(lanes, &offers, others, room);
    let lengths: Vec<usize> = lanes.iter().map(|lane| lane.sampler.history().len()).collect();
    let started = Instant::now();
    let mut of_heads = 0;
    for (lane, share) in lanes.iter_mut().zip(&shares) {
        if let Some(offer) = share.offer {
            of_heads += lane.begin_draft(context, offer.source, share.most, false, drafting::Until::Length);
        }
    }
    // A head steps for one text at a time.
    let steps = drafting::draft(context, lanes)
        .map(|steps| Steps { passes: steps.passes + of_heads, rows: steps.rows + of_heads });
    for (lane, length) in lanes.iter_mut().zip(lengths) {
        lane.sampler.truncate(length);
        lane.text.drafting = None;
        context.remove(lane.text.limits.draft);
        let limits = &lane.text.limits;
        lane.text.made.trim(usize::MAX, &|token| limits.is_end(token));
    }
    let steps = steps?;
    drafts.seconds = started.elapsed().as_secs_f64();
    if let (Some(costs), 1..) = (load::costs(lanes), steps.passes) {
        let seconds = drafts.seconds / steps.passes as f64;
        let source = shares.iter().find_map(|share| share.offer.filter(|o| !costs.looks_up(o.source)));
        if let Some(offer) = source {
            load.saw_draft(costs, offer.source, steps.rows.div_ceil(steps.passes), seconds);
            drafts.cost = load.drafting(costs, offer.source, steps);
        }
    }
    let kept = load.trim(lanes, &shares, others);
    for (lane, most) in lanes.iter_mut().zip(kept) {
        let made = &mut lane.text.made;
        made.trim(most, &|_| false);
    }
    drafts.shares = shares;
    Ok(drafts)
}

/// One pass of lanes that run alike, and what comes of it; gives the pass's seconds.
fn pass(
    context: &mut Context,
    lanes: &mut [Lane],
    group: &[usize],
    parts: &[Option<Part>],
    shares: &[Share],
    load: &mut Load,
    hear: Hear,
) -> Result<f64> {
    let mut batch = Batch::new();
    let mut outputs = 0;
    let mut want = Want::Top(1);
    let mut rows = Vec::with_capacity(group.len());
    for &i in group {
        rows.push(Rows { lane: i, row: batch.rows.len(), output: outputs });
        let text = &*lanes[i].text;
        batch.keep_hidden = batch.keep_hidden.or(text.keeps(context));
        match &parts[i] {
            Some(part) => batch.rows.extend(&part.rows),
            None => batch.rows.append(&mut verify::rows(context, text).rows),
        }
        outputs = batch.rows.iter().filter(|row| row.logits).count();
        want = want.and(text.want);
    }
    batch.run_layers = lanes[group[0]].text.limits.mask.clone();
    // All rows of a pass would be taken out, those of prompts too, of which nobody needs any.
    if group.iter().all(|&i| parts[i].is_none()) && batch.run_layers.is_none() && batch.keep_hidden.is_none()
    {
        for &i in group {
            let Lane { text, policy, .. } = &mut lanes[i];
            if let Some(tapped) = text.tapped.as_mut().filter(|tapped| policy.may_draft(tapped.source)) {
                batch.taps = tapped.ask();
            }
        }
    }
    let count = batch.rows.len();
    let started = Instant::now();
    context.decode_for(&batch, want)?;
    let seconds = started.elapsed().as_secs_f64();
    if batch.run_layers.as_ref().is_none_or(RunLayers::is_full)
        && let Some(costs) = load::costs(lanes)
    {
        load.saw_full(costs, count, seconds);
    }
    let ends: Vec<usize> = rows[1..].iter().map(|next| next.row).chain([count]).collect();
    for (Rows { lane: i, row, output }, end) in rows.into_iter().zip(ends) {
        lanes[i].text.row = output;
        lanes[i].text.add_unseen(&batch.rows[row..end], context, row);
        match &parts[i] {
            Some(part) => lanes[i].took_part(context, part, i, hear)?,
            None => {
                let share = seconds * (lanes[i].text.made.proposals.len() + 1) as f64 / count as f64;
                verdict(context, &mut lanes[i], &shares[i], share, i, hear)?;
            }
        }
    }
    Ok(seconds)
}

/// What a text makes of the pass.
fn verdict(
    context: &mut Context,
    lane: &mut Lane,
    share: &Share,
    seconds: f64,
    who: usize,
    hear: Hear,
) -> Result<()> {
    let drafted = lane.text.made.proposals.len();
    let offer = share.offer.filter(|_| drafted > 0);
    let before = context.kv().len(lane.text.limits.seq) - drafted - 1;
    let outcome = lane.conclude(context, offer.map(|offer| offer.source), before, who, hear)?;
    let round = Round {
        source: offer.map(|offer| offer.source),
        drafted: &lane.text.made.drafted,
        accepted: outcome.accepted,
        others: &[],
        other: None,
        from_layer: 0,
        draft_seconds: 0.0,
        verify_seconds: seconds,
        other_seconds: 0.0,
    };
    if let Some(offer) = offer {
        lane.policy.record_acceptance(&offer, &round);
    }
    lane.text.report.record(&round, outcome.next, &lane.text.made);
    Ok(())
}

/// Writes a round into the accounts.
fn settle(lanes: &mut [Lane], going: &[usize], others: usize, done: &Done, load: &Load) {
    let costs = load::costs(lanes);
    let base = going.len() + others;
    let Some(rounds) = costs.map(|costs| load.in_plain_rounds(costs, base, done)) else { return };
    for &i in going {
        let gained = lanes[i].text.gained;
        lanes[i].policy.settle(gained, rounds);
    }
}
