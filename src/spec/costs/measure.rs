//! Timing a few passes before the first round.

use std::time::{Duration, Instant};

use super::{Costs, MOST_ROWS};
use crate::{Batch, Context, Result, RunLayers, batch::SeqId};

/// A start may take this long without being felt.
pub const DEFAULT_BUDGET: Duration = Duration::from_millis(300);

/// Most telling first; what lies between follows from the neighbours.
const LENGTHS: [usize; 8] = [1, 2, 4, 8, 3, 16, 6, 12];
const MOST_TURNS: usize = 5;
/// No caller's sequence has this number.
const SCRATCH: SeqId = SeqId::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    Rows(usize),
    Draft(usize),
}

/// Times passes behind what `seq` holds, for at most `budget` (but one plain step at least), and tells `costs`.
/// `drafts` has the mask of each source, `None` for one that looks up or times itself.
///
/// Works on a fork and leaves the cache as it was; the logits of the last decode are overwritten. A pass that
/// would not end in time is left out: its cost stays the guess, corrected by what was measured.
pub fn measure(
    context: &mut Context,
    seq: SeqId,
    drafts: &[Option<RunLayers>],
    costs: &mut Costs,
    budget: Duration,
) -> Result<()> {
    let started = Instant::now();
    let room = context.kv().free_cells();
    if room == 0 {
        return Ok(());
    }
    // The first touch of buffers and weights is not what a step costs; a slow one is all there is time for.
    let first = timed(context, seq, 1, None)?;
    let left = |seconds: f64| started.elapsed().as_secs_f64() + seconds < budget.as_secs_f64();
    if !left(first) {
        costs.saw_rows(1, first);
    }
    let mut step = first;
    while !costs.anchored() && left(step) {
        step = timed(context, seq, 1, None)?;
        costs.saw_rows(1, step);
    }
    let masked = drafts.iter().enumerate().filter(|(_, mask)| mask.is_some()).map(|(i, _)| Pass::Draft(i));
    let lengths = LENGTHS.iter().filter(|&&n| n <= room.min(MOST_ROWS)).map(|&n| Pass::Rows(n));
    let passes: Vec<Pass> = interleave(lengths.collect(), masked.collect());
    for _ in 0..MOST_TURNS {
        costs.drift();
        for &pass in &passes {
            // By the present belief, and half as much again.
            let expected = 1.5 * step * believed(costs, pass);
            if !left(expected) {
                continue;
            }
            match pass {
                Pass::Rows(n) => costs.saw_rows(n, timed(context, seq, n, None)?),
                Pass::Draft(source) => {
                    let seconds = timed(context, seq, 1, drafts[source].as_ref())?;
                    costs.saw_draft(source, seconds, 1);
                }
            }
        }
    }
    Ok(())
}

fn believed(costs: &Costs, pass: Pass) -> f64 {
    match pass {
        Pass::Rows(n) => costs.rows(n),
        Pass::Draft(source) => costs.draft(source),
    }
}

/// Lengths and drafts in turn, so that a short budget sees some of both.
fn interleave(lengths: Vec<Pass>, drafts: Vec<Pass>) -> Vec<Pass> {
    let longest = lengths.len().max(drafts.len());
    (0..longest).flat_map(|i| [lengths.get(i), drafts.get(i)]).flatten().copied().collect()
}

/// Seconds for `n` rows behind `seq`, the logits of each asked for as a verification does.
fn timed(context: &mut Context, seq: SeqId, n: usize, mask: Option<&RunLayers>) -> Result<f64> {
    let n_vocab = context.model().plan.dims.n_vocab;
    let pos = context.kv().next_pos(seq);
    context.fork(seq, SCRATCH);
    let mut batch = Batch::new();
    for i in 0..n {
        // Which tokens is all one for the time, but not the same embedding row again and again.
        let token = (pos as usize + i).wrapping_mul(7919) % n_vocab;
        batch.push(token as u32, pos + i as u32, SCRATCH, true);
    }
    batch.run_layers = mask.cloned();
    let started = Instant::now();
    let result = context.decode(&batch);
    let seconds = started.elapsed().as_secs_f64();
    context.remove(SCRATCH);
    result.map(|()| seconds)
}
