//! Timing a few passes before the first round.
//!
//! Only a few, because the rounds themselves give further timings while they do useful work. Needed here are a plain step to compare
//! everything with, the slope of T(n), and a first timing of the draft steps.

use std::time::{Duration, Instant};

use super::Costs;
use crate::{Batch, Context, Result, RunLayers, batch::SeqId, scores::Want, speculation::frequent};

/// A start may take this long without being noticed.
pub const DEFAULT_BUDGET: Duration = Duration::from_millis(300);

/// The numbers of rows to time, most useful first. Other numbers are estimated from these.
const LENGTHS: [usize; 3] = [2, 4, 8];
/// Bytes a second that a good desktop's memory gives. A model that at this speed has no time for [`LEAST_STEPS`] is
/// not measured at all.
const MEMORY: f64 = 50e9;
const LEAST_STEPS: f64 = 4.0;
/// No caller's sequence has this number.
const SCRATCH: SeqId = SeqId::MAX;

/// Times passes after the tokens of `seq`, for at most `budget`, and adds the timings to `costs`. `drafts` has the mask of each
/// source, `None` for a source without one.
///
/// Works on a fork and leaves the cache as it was; the scores of the last decode are overwritten. A pass that
/// would not end in time is left out: its cost stays the guess, corrected by what was measured.
pub fn measure(
    context: &mut Context,
    seq: SeqId,
    drafts: &[Option<RunLayers>],
    costs: &mut Costs,
    budget: Duration,
) -> Result<()> {
    let started = Instant::now();
    let left = |seconds: f64| started.elapsed().as_secs_f64() + seconds < budget.as_secs_f64();
    let room = context.kv().free_cells();
    let bytes = context.bytes_read(None);
    if room == 0 || !left(LEAST_STEPS * bytes as f64 / MEMORY) {
        return Ok(());
    }
    // The first use of buffers and weights takes longer than a usual step.
    let mut step = timed(context, seq, 1, None)?;
    while !costs.anchored() {
        if !left(step) {
            return Ok(());
        }
        step = timed(context, seq, 1, None)?;
        costs.saw_rows(1, step);
    }
    // With half of the estimate as a reserve.
    let in_time = |believed: f64| left(1.5 * step * believed);
    let masks: Vec<_> = drafts.iter().enumerate().filter_map(|(i, mask)| Some((i, mask.as_ref()?))).collect();
    for turn in 0..LENGTHS.len().max(masks.len()) {
        if let Some(&n) = LENGTHS.get(turn)
            && n <= room
            && in_time(costs.rows(n))
        {
            costs.saw_rows(n, timed(context, seq, n, None)?);
        }
        if let Some(&(source, mask)) = masks.get(turn)
            && in_time(costs.draft(source))
        {
            costs.saw_draft(source, timed(context, seq, 1, Some(mask))?, 1);
        }
    }
    Ok(())
}

/// Seconds for `n` rows after `seq`, each asked for its best token as in a verification.
fn timed(context: &mut Context, seq: SeqId, n: usize, mask: Option<&RunLayers>) -> Result<f64> {
    let n_vocab = context.model().plan.dims.n_vocab;
    let pos = context.kv().next_pos(seq);
    context.fork(seq, SCRATCH);
    let mut batch = Batch::new();
    for i in 0..n {
        // Any tokens take the same time, but not the same embedding row again and again.
        let token = (pos as usize + i).wrapping_mul(7919) % n_vocab;
        batch.push(token as u32, pos + i as u32, SCRATCH, true);
    }
    batch.run_layers = mask.cloned();
    batch.shortlist = mask.and_then(|_| frequent::at_first(context));
    let started = Instant::now();
    let result = context.decode_for(&batch, Want::Top(1));
    let seconds = started.elapsed().as_secs_f64();
    context.remove(SCRATCH);
    result.map(|()| seconds)
}
