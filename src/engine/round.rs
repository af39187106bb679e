//! A round: what is drafted for each text, one pass of the full model over all of them, and what of it each accepts.
//!
//! A round begins and ends with each text's sequence holding all of it but the last token.

use std::time::Instant;

use super::{Lane, Stop, Text, chain, drafting, text::Hear, trial, verify};
use crate::{
    Context, Result,
    speculation::{Round, RoundChoice},
};

/// Why a text was drafted for, or not, and what that took.
pub(super) struct Drafted {
    pub source: Option<usize>,
    pub seconds: f64,
    /// Seconds of the full model's pass, if it has been made as well.
    pub verified: Option<f64>,
}

impl Drafted {
    const NOTHING: Drafted = Drafted { source: None, seconds: 0.0, verified: None };
}

/// One round of a text that is alone, with a draft if it `may_draft` and that pays.
pub(crate) fn round_alone(
    context: &mut Context,
    lane: &mut Lane,
    may_draft: bool,
    who: usize,
    hear: Hear,
) -> Result<()> {
    if context.kv().free_cells() == 0 && !make_room(context, lane.text)? {
        lane.text.stop = Some(Stop::ContextFull);
        return Ok(());
    }
    if may_draft {
        trial::next(context, lane)?;
    }
    let callbacks = lane.text.callback_seconds;
    let started = Instant::now();
    let before = context.spent();
    let evaluated = context.kv().len(lane.text.limits.seq);
    lane.text.made.clear();
    lane.text.row = 0;
    let Drafted { source, seconds: draft_seconds, verified } = match may_draft {
        true => draft_alone(context, lane)?,
        false => {
            lane.text.report.undrafted.packing += usize::from(!context.is_packed());
            Drafted::NOTHING
        }
    };
    let drafted = context.spent();
    let (verify_seconds, from_layer) = match verified {
        Some(seconds) => (seconds, 0),
        None => {
            let started = Instant::now();
            let from_layer = verify::alone(context, lane, source)?;
            (started.elapsed().as_secs_f64(), from_layer)
        }
    };
    lane.text.report.spent(drafted.since(before), context.spent().since(drafted));
    let outcome = lane.conclude(context, source, evaluated, who, hear)?;
    let total = started.elapsed().as_secs_f64() - (lane.text.callback_seconds - callbacks);
    let round = Round {
        source,
        drafted: &lane.text.made.drafted,
        accepted: if lane.text.made.other.is_some() { 0 } else { outcome.accepted },
        others: &lane.text.made.others_drafted,
        other: lane.text.made.other,
        from_layer,
        draft_seconds,
        verify_seconds,
        other_seconds: (total - draft_seconds - verify_seconds).max(0.0),
    };
    // Steps are slower while weights are still as the file has them.
    if context.is_packed() {
        lane.policy.record(&round);
    }
    let made = &lane.text.made;
    let next = made.other.map_or(outcome.next, |other| made.others[other]);
    lane.text.report.record(&round, next, made);
    Ok(())
}

/// Has the policy's choice drafted.
fn draft_alone(context: &mut Context, lane: &mut Lane) -> Result<Drafted> {
    let room = context.kv().room_to_draft();
    let wanted = lane.text.most_drafted(context);
    let started = Instant::now();
    let offers = lane.offers(context, wanted.min(room));
    if offers.is_empty() {
        let undrafted = &mut lane.text.report.undrafted;
        let why = if wanted.min(room) == 0 { &mut undrafted.no_room } else { &mut undrafted.nothing };
        *why += 1;
    }
    let (source, most) = match lane.policy.choose(&offers) {
        RoundChoice::Draft { source, most } if most > 0 && offers.iter().any(|o| o.source == source) => {
            (source, most.min(room).min(wanted))
        }
        _ => {
            let seconds = started.elapsed().as_secs_f64();
            return Ok(Drafted { source: None, seconds, verified: None });
        }
    };
    if let Some(whole) = chain::whole_round(context, lane, source, most)? {
        return Ok(whole);
    }
    let text_len = lane.sampler.history().len();
    let keeps = lane.text.report.sources[source].0.prefix.is_some() && lane.policy.resumes(source, most);
    lane.begin_draft(context, source, most, keeps, drafting::Until::Policy);
    let result = drafting::draft(context, std::slice::from_mut(lane));
    lane.sampler.truncate(text_len);
    let Text { limits, made, report, drafting, .. } = &mut *lane.text;
    *drafting = None;
    if result.is_err() || made.kept.layer == 0 {
        context.remove(limits.draft);
    }
    result?;
    made.trim(most, &|token| limits.is_end(token));
    if made.cut && most == room {
        report.shortened += 1;
    }
    let source = (!made.proposals.is_empty()).then_some(source);
    Ok(Drafted { source, seconds: started.elapsed().as_secs_f64(), verified: None })
}

/// Context shift, where it was asked for and there is something to drop.
fn make_room(context: &mut Context, text: &Text) -> Result<bool> {
    let Some(keep) = text.limits.shift_keep else { return Ok(false) };
    super::request::shift(context, text.limits.seq, keep)
}
