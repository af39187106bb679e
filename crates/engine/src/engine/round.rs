//! A round: drafts for each text, a pass of the full model over all drafts and over parts of prompts, and the tokens that each
//! text accepts. A text that has the context for itself is a group of one.
//!
//! A round begins and ends with each text's sequence holding all of it but the last token.

use std::time::Instant;

use super::{
    Lane, OnEvent, TextState,
    chain::{self, Chained},
    decision::{self, Decision, Share},
    drafting::{self, Steps, Until},
    text::PromptRows,
    trial,
    verify::{self, Pass},
};
use crate::{
    Context, Result,
    speculation::{
        Offer, Round,
        controller::group::RoundTerms,
        costs::{RoundWork, Together},
    },
};

/// What a round may do.
pub struct Terms {
    /// The most rows of prompts in it, all together.
    pub chunk: usize,
    /// Whether it may make drafts.
    pub drafts: bool,
}

/// Full passes of a round, and the texts in them.
pub struct Passes {
    pub passes: u64,
    pub texts: u64,
}

/// The rows of one round.
struct Turn {
    /// By lane, the rows of its prompt.
    parts: Vec<Option<PromptRows>>,
    /// Rows of these.
    part_rows: usize,
    /// Lanes that are past their prompt and go on from a last token.
    going: Vec<usize>,
    /// One text by itself, whose own policy decides and learns what passes cost.
    is_lone: bool,
    drafts: Drafts,
}

/// The drafts of a round.
#[derive(Default)]
struct Drafts {
    /// By lane.
    shares: Vec<Share>,
    /// The expected time of the draft steps, in plain steps.
    cost: f64,
    /// The measured time of all drafting.
    seconds: f64,
    /// Draft steps that it took.
    steps: usize,
    /// The full model's pass, if the device has made it as well.
    verified: Option<Pass>,
}

/// Runs one round. There must be cells for its rows; drafts take what is left.
pub fn round(
    context: &mut Context,
    lanes: &mut [Lane],
    terms: &Terms,
    together: &mut Together,
    hear: OnEvent,
) -> Result<Passes> {
    let mut turn = turn(lanes, terms.chunk);
    if turn.is_lone && terms.drafts {
        trial::next(context, &mut lanes[0])?;
    }
    for lane in lanes.iter_mut() {
        lane.text.made.clear();
        lane.text.row = 0;
        lane.text.before = context.kv().len(lane.text.spec.seq);
    }
    let spent = context.spent();
    turn.drafts = match terms.drafts {
        true => draft(context, lanes, &turn, together)?,
        false => Drafts { shares: vec![Share::default(); lanes.len()], ..Drafts::default() },
    };
    let drafting = context.spent().since(spent);
    let source = turn.drafts.shares.first().and_then(|share| share.offer).map(|offer| offer.source);
    let groups = groups(lanes, &turn.parts);
    let mut seconds = turn.drafts.seconds;
    for group in &groups {
        let spent = context.spent();
        let pass = match turn.drafts.verified.take() {
            Some(pass) => pass,
            None => verify::pass(context, lanes, group, &turn.parts, source.filter(|_| turn.is_lone))?,
        };
        seconds += pass.seconds;
        if turn.is_lone {
            lanes[0].text.report.spent(drafting, context.spent().since(spent));
        } else if pass.is_full
            && let Some(costs) = decision::costs(lanes)
        {
            together.saw_rows(costs, pass.rows, pass.seconds);
        }
        for &i in group {
            match &turn.parts[i] {
                Some(part) => lanes[i].took_part(context, part, i, hear)?,
                None => verdict(context, &mut lanes[i], &turn, &pass, i, hear)?,
            }
        }
    }
    for (lane, _) in std::iter::zip(lanes.iter_mut(), &turn.parts).filter(|(_, part)| part.is_some()) {
        lane.text.make_unseen(context)?;
    }
    if !turn.is_lone {
        settle(lanes, &turn, (groups.len() == 1).then_some(seconds), together);
    }
    let texts = groups.iter().map(Vec::len).sum::<usize>();
    Ok(Passes { passes: groups.len() as u64, texts: texts as u64 })
}

fn turn(lanes: &[Lane], chunk: usize) -> Turn {
    let mut left = chunk;
    let part = |lane: &Lane| {
        let part = lane.text.next_part(left)?;
        left -= part.rows.len();
        Some(part)
    };
    let parts = lanes.iter().map(part).collect();
    let going = (0..lanes.len()).filter(|&i| lanes[i].text.is_going()).collect();
    Turn {
        parts,
        part_rows: chunk - left,
        going,
        is_lone: decision::is_lone(lanes),
        drafts: Drafts::default(),
    }
}

/// Lanes that share a pass: those under the same mask.
fn groups(lanes: &[Lane], parts: &[Option<PromptRows>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let takes_part = |i: &usize| parts[*i].is_some() || lanes[*i].text.is_going();
    for i in (0..lanes.len()).filter(takes_part) {
        let mask = |i: usize| &lanes[i].text.spec.maker.mask;
        match groups.iter_mut().find(|group| mask(group[0]) == mask(i)) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    groups
}

/// Makes the drafts that are worth it, and cuts them to the tokens that are worth verifying.
fn draft(context: &mut Context, lanes: &mut [Lane], turn: &Turn, together: &mut Together) -> Result<Drafts> {
    let started = Instant::now();
    let mut drafts = Drafts { shares: vec![Share::default(); lanes.len()], ..Drafts::default() };
    if turn.going.is_empty() {
        return Ok(drafts);
    }
    // `room_to_draft` counts one row already.
    let room = context.kv().room_to_draft().saturating_sub(turn.going.len() + turn.part_rows - 1);
    let each = room / turn.going.len();
    let mut offers = vec![Vec::new(); lanes.len()];
    for &i in &turn.going {
        let most = lanes[i].text.most_drafted(context).min(each);
        offers[i] = lanes[i].offers(context, most);
        if offers[i].is_empty() {
            let undrafted = &mut lanes[i].text.report.undrafted;
            *(if most == 0 { &mut undrafted.no_room } else { &mut undrafted.nothing }) += 1;
        }
    }
    let terms = RoundTerms { by_itself: turn.is_lone, prompt_rows: turn.part_rows, cells: room, together };
    let Decision { shares, until } = decision::decide(lanes, &offers, &terms);
    if let ([lane], [Share { offer: Some(offer), most }]) = (&mut *lanes, &shares[..])
        && let Some(Chained { draft_seconds, pass }) = chain::whole_round(context, lane, offer.source, *most)?
    {
        let steps = lane.text.made.proposals.len();
        return Ok(Drafts { shares, cost: 0.0, seconds: draft_seconds, steps, verified: Some(pass) });
    }
    let stepping = Instant::now();
    let lengths: Vec<usize> = lanes.iter().map(|lane| lane.sampler.history().len()).collect();
    let mut of_heads = 0;
    for (lane, share) in lanes.iter_mut().zip(&shares) {
        if let Some(offer) = share.offer {
            of_heads += lane.begin_draft(context, &offer, share.most, until);
        }
    }
    // A head makes its steps for one text at a time.
    let steps = drafting::draft(context, lanes)
        .map(|steps| Steps { passes: steps.passes + of_heads, rows: steps.rows + of_heads });
    for ((lane, length), share) in lanes.iter_mut().zip(lengths).zip(&shares) {
        lane.sampler.truncate(length);
        let TextState { spec, made, report, drafting, .. } = &mut *lane.text;
        *drafting = None;
        if steps.is_err() || made.kept.layer == 0 {
            context.remove(spec.draft);
        }
        made.trim(share.most, &|token| spec.is_end(token));
        report.shortened += usize::from(made.cut && share.most == each);
    }
    let steps = steps?;
    if until == Until::Length {
        let seconds = stepping.elapsed().as_secs_f64();
        drafts.cost = decision::saw_steps(together, lanes, &shares, steps, seconds);
        let terms =
            RoundTerms { by_itself: turn.is_lone, prompt_rows: turn.part_rows, cells: room, together };
        let kept = decision::worth_verifying(lanes, &shares, &terms);
        for (lane, most) in lanes.iter_mut().zip(kept) {
            lane.text.made.trim(most, &|_| false);
        }
    }
    drafts.seconds = started.elapsed().as_secs_f64();
    drafts.steps = steps.passes;
    drafts.shares = shares;
    Ok(drafts)
}

/// Takes a text's results of a pass.
fn verdict(
    context: &mut Context,
    lane: &mut Lane,
    turn: &Turn,
    pass: &Pass,
    who: usize,
    hear: OnEvent,
) -> Result<()> {
    let (started, callbacks) = (Instant::now(), lane.text.callback_seconds);
    let drafted = lane.text.made.proposals.len();
    let offer = turn.drafts.shares[who].offer.filter(|_| drafted > 0);
    let outcome = lane.conclude(context, offer.map(|offer| offer.source), who, hear)?;
    let other_seconds = started.elapsed().as_secs_f64() - (lane.text.callback_seconds - callbacks);
    let TextState { made, report, .. } = &mut *lane.text;
    let rows = made.drafted.len() + made.others_drafted.len() + 1;
    let round = Round {
        source: offer.map(|offer| offer.source),
        drafted: &made.drafted,
        // Guesses are made only for a text that is alone.
        draft_steps: match offer {
            Some(Offer { guide: Some(_), .. }) if turn.is_lone => turn.drafts.steps,
            _ => drafted,
        },
        accepted: if made.other.is_some() { 0 } else { outcome.accepted },
        others: &made.others_drafted,
        other: made.other,
        from_layer: pass.from_layer,
        draft_seconds: turn.drafts.seconds / turn.going.len() as f64,
        verify_seconds: pass.seconds * rows as f64 / pass.rows as f64,
        other_seconds: other_seconds.max(0.0),
    };
    match offer {
        // Steps are slower while weights are still as in the file.
        _ if turn.is_lone && context.is_packed() => lane.policy.record(&round),
        Some(offer) if !turn.is_lone => {
            if let Some(controller) = lane.policy.controller_mut() {
                controller.record_acceptance(&offer, &round);
            }
        }
        _ => {}
    }
    let next = made.other.map_or(outcome.next, |other| made.others[other]);
    report.record(&round, next, made);
    Ok(())
}

/// Books a round of several texts into their accounts of gained and lost time.
fn settle(lanes: &mut [Lane], turn: &Turn, seconds: Option<f64>, together: &Together) {
    let drafted = lanes.iter().map(|lane| lane.text.made.proposals.len()).sum();
    let work = RoundWork { drafted, drafting: turn.drafts.cost, seconds };
    let base = turn.going.len() + turn.part_rows;
    let Some(rounds) = decision::costs(lanes).map(|costs| together.taken(costs, base, &work)) else {
        return;
    };
    for &i in &turn.going {
        let gained = lanes[i].text.gained;
        if let Some(controller) = lanes[i].policy.controller_mut() {
            controller.settle(gained, rounds);
        }
    }
}
