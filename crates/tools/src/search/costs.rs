//! What a candidate's step costs, from the cost of each sublayer; and what verifying several rows costs.
//!
//! Steps are timed with everything, without attention, without MLPs and without either; the differences are
//! dealt to the layers by the bytes that they read. That steers the search; of the masks that it ends with, each
//! is timed itself.
//!
//! Each kind of pass is timed where it stands when it is used, because a pass finds in the caches what the one before
//! has left there: plain steps behind plain steps, a draft's step behind a verification, a verification behind a
//! draft's step. Of a model that fits the cache, draft steps alone would look up to a sixth cheaper.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{
    candidate::{Candidate, State, Sublayer},
    speed::{self, Best},
};
use crate::{Batch, Context, Result, RunLayers, batch::SeqId, measure::stats::Spread, plan::Op};

/// Cases take turns: a machine's speed drifts, and neighbours come and go.
const LEAST_TURNS: usize = 5;
const MOST_TURNS: usize = 200;
const SECONDS: f64 = 1.5;
/// Plain steps in a row, and those of them that still find what other passes have left.
const PLAIN: usize = 10;
const NOT_YET_PLAIN: usize = 4;
/// Of each other case in a turn.
pub const PAIRS: usize = 2;

/// What passes cost on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassCosts {
    /// Of a plain step, in seconds; all else is in units of it.
    pub step_seconds: f64,
    /// `T(1)`, `T(2)`, ..
    pub rows: Vec<f64>,
    /// Embedding, head and what a pass costs by itself.
    pub base: f64,
    /// By sublayer, in full.
    pub full: Vec<f64>,
    /// The same in the other states in which it runs.
    pub otherwise: Vec<(State, Vec<f64>)>,
    /// Verification may go on from what a draft's first layers made.
    #[serde(default)]
    pub resumes: bool,
}

/// One thing to time.
#[derive(Clone, Debug)]
pub enum Case {
    /// Of plain decoding.
    Plain,
    /// A draft's step under a mask.
    Draft(RunLayers),
    /// A verification of so many rows.
    Rows(usize),
}

impl PassCosts {
    /// On a sequence of `depth` tokens, which is left as it was. `states` are those that sublayers may go to.
    pub fn measure(
        context: &mut Context,
        (seq, depth): (SeqId, usize),
        most_rows: usize,
        states: &[State],
        most_seconds: Option<f64>,
    ) -> Result<Self> {
        let n_layer = context.model().plan.dims.n_layer;
        let full = Candidate::all(n_layer, State::Run);
        let with = |part: Sublayer, state| {
            let of_part = (0..2 * n_layer).filter(|&s| Candidate::layer_and_half(s).1 == part);
            of_part.fold(full.clone(), |candidate, sublayer| candidate.with(sublayer, state))
        };
        let draft = |candidate: Candidate| Case::Draft(candidate.mask());
        let mut cases = vec![Case::Plain, draft(full.clone())];
        cases.extend([Sublayer::Attn, Sublayer::Mlp].map(|part| draft(with(part, State::Skip))));
        cases.push(draft(Candidate::all(n_layer, State::Skip)));
        let running = states.iter().copied().filter(|state| *state != State::Skip);
        let others: Vec<State> = running.collect();
        for &state in &others {
            cases.extend([Sublayer::Attn, Sublayer::Mlp].map(|part| draft(with(part, state))));
        }
        let first_rows = cases.len();
        cases.extend((2..=most_rows).map(Case::Rows));
        let seconds = time(context, (seq, depth), cases, most_seconds)?;
        let step = seconds[0];
        let units: Vec<f64> = seconds.iter().map(|seconds| seconds / step).collect();
        let (all, base) = (units[1], units[4]);
        // Each kind is seen twice: missing from everything, and alone beside the base.
        let kind = |missing: f64, alone: f64| ((all - missing) + (alone - base)).max(0.0) / 2.0;
        let kinds = [kind(units[2], units[3]), kind(units[3], units[2])];
        let kinds_in = |units: &[f64]| -> [f64; 2] {
            std::array::from_fn(|i| (kinds[i] - (all - units[i])).clamp(0.0, kinds[i]))
        };
        let shares = shares(context);
        let deal =
            |kinds: [f64; 2]| shares.iter().enumerate().map(|(s, share)| share * kinds[s % 2]).collect();
        Ok(PassCosts {
            step_seconds: step,
            rows: curve(&units[first_rows..]),
            base: (all - kinds[0] - kinds[1]).max(0.0),
            full: deal(kinds),
            otherwise: std::iter::zip(others, units[5..first_rows].chunks_exact(2))
                .map(|(state, units)| (state, deal(kinds_in(units))))
                .collect(),
            resumes: context.keeps_hidden(),
        })
    }

    /// What one of many rows takes of a pass, in seconds, at most: larger batches are no slower.
    pub fn row_seconds(&self) -> f64 {
        self.step_seconds * self.rows.last().copied().unwrap_or(1.0) / self.rows.len().max(1) as f64
    }

    /// The cases that give T(n), for [`PassCosts::retimed`].
    pub fn cases(&self) -> Vec<Case> {
        std::iter::once(Case::Plain).chain((2..=self.rows.len()).map(Case::Rows)).collect()
    }

    /// The same at another time: seconds of [`PassCosts::cases`].
    pub fn retimed(&self, seconds: &[f64]) -> Self {
        let units: Vec<f64> = seconds[1..].iter().map(|s| s / seconds[0]).collect();
        PassCosts { step_seconds: seconds[0], rows: curve(&units), ..self.clone() }
    }

    /// A step under the mask, by sum.
    pub fn of(&self, candidate: &Candidate) -> f64 {
        let sublayers = candidate.states().iter().enumerate().map(|(i, state)| match state {
            State::Run => self.full[i],
            State::Skip => 0.0,
            // What was not timed counts as in full.
            State::Coarse | State::Experts(_) => self
                .otherwise
                .iter()
                .find(|(known, _)| known == state)
                .map_or(self.full[i], |(_, costs)| costs[i]),
        });
        self.base + sublayers.sum::<f64>()
    }

    /// What a step spends in the layers that a draft leaves to verification.
    pub fn prefix(&self, mask: &RunLayers) -> f64 {
        let layers = if self.resumes { mask.full_prefix() } else { 0 };
        self.full[..2 * layers].iter().sum()
    }

    /// The best draft length for steps of cost `c`, of which so much is left to verification.
    pub fn best(&self, tokens: impl Fn(usize) -> f64, c: f64, prefix: f64) -> Best {
        speed::best(self.rows.len() - 1, tokens, c, |n| self.verification(n, prefix))
    }

    /// Verifies `n` rows: all of them go through all layers, or through those after the prefix, to which the draft's
    /// last token comes by itself.
    pub fn verification(&self, n: usize, prefix: f64) -> f64 {
        let whole = self.rows[n - 1];
        whole.min(prefix + (1.0 - prefix) * whole)
    }
}

/// T(1), T(2) and so on, from T(2). More rows never take less time, whatever the clock said.
fn curve(units: &[f64]) -> Vec<f64> {
    let most_yet = |most: &mut f64, &rows: &f64| {
        *most = most.max(rows);
        Some(*most)
    };
    [1.0].iter().chain(units).scan(1.0, most_yet).collect()
}

/// Steps under masks over plain ones, each timed.
pub fn measure_masks(
    context: &mut Context,
    place: (SeqId, usize),
    masks: &[RunLayers],
    most_seconds: Option<f64>,
) -> Result<Vec<f64>> {
    let masks = masks.iter().map(|mask| Case::Draft(mask.clone()));
    let cases: Vec<Case> = std::iter::once(Case::Plain).chain(masks).collect();
    let seconds = time(context, place, cases, most_seconds)?;
    Ok(seconds[1..].iter().map(|s| s / seconds[0]).collect())
}

/// The seconds of each case, from one turn at least; no further one begins after `most_seconds`.
fn time(
    context: &mut Context,
    place: (SeqId, usize),
    cases: Vec<Case>,
    most_seconds: Option<f64>,
) -> Result<Vec<f64>> {
    let mut timing = Timing::new(cases);
    let started = Instant::now();
    for turn in 0..MOST_TURNS {
        let elapsed = started.elapsed().as_secs_f64();
        let enough = turn >= LEAST_TURNS && elapsed > SECONDS;
        if enough || turn > 0 && most_seconds.is_some_and(|most| elapsed > most) {
            break;
        }
        timing.turn(context, place)?;
    }
    Ok(timing.seconds())
}

/// Times of some cases that take turns.
pub struct Timing {
    cases: Vec<Case>,
    samples: Vec<Vec<f64>>,
}

impl Timing {
    pub fn new(cases: Vec<Case>) -> Self {
        Timing { samples: vec![Vec::new(); cases.len()], cases }
    }

    /// Each case a few times, on a sequence of `depth` tokens, which is left as it was.
    pub fn turn(&mut self, context: &mut Context, (seq, depth): (SeqId, usize)) -> Result<()> {
        let n_vocab = context.model().plan.dims.n_vocab as u32;
        let n_layer = context.model().plan.dims.n_layer;
        let pass = |rows: usize, mask: Option<RunLayers>| {
            let mut batch = Batch { run_layers: mask, ..Batch::new() };
            // Different tokens, so that they do not all read the same row of the table.
            for i in 0..rows as u32 {
                batch.push(i * 7919 % n_vocab, depth as u32 + i, seq, true);
            }
            batch
        };
        let mut seconds = |batch: &Batch| {
            let started = Instant::now();
            context.decode(batch)?;
            let seconds = started.elapsed().as_secs_f64();
            context.truncate(seq, depth)?;
            Ok::<f64, crate::Error>(seconds)
        };
        let (verification, draft) =
            (pass(2, None), pass(1, Some(RunLayers::exit(n_layer, n_layer.div_ceil(4)))));
        for (case, samples) in self.cases.iter().zip(&mut self.samples) {
            let (batch, before) = match case {
                Case::Plain => {
                    let step = pass(1, None);
                    for i in 0..PLAIN {
                        let seconds = seconds(&step)?;
                        if i >= NOT_YET_PLAIN {
                            samples.push(seconds);
                        }
                    }
                    continue;
                }
                Case::Draft(mask) => (pass(1, Some(mask.clone())), &verification),
                Case::Rows(n) => (pass(*n, None), &draft),
            };
            for _ in 0..PAIRS {
                seconds(before)?;
                samples.push(seconds(&batch)?);
            }
        }
        Ok(())
    }

    /// Of each case the median.
    pub fn seconds(&self) -> Vec<f64> {
        self.samples.iter().map(|samples| Spread::of(samples).median).collect()
    }
}

/// Each sublayer's share of the bytes of its kind.
fn shares(context: &Context) -> Vec<f64> {
    let model = context.model();
    let read = |ops: &Vec<Op>| -> u64 {
        ops.iter().map(|op| model.bytes_read(op, None, |id| model.weight(id).bytes)).sum()
    };
    let bytes: Vec<[f64; 2]> =
        model.plan.layers.iter().map(|l| [&l.attn, &l.mlp].map(|ops| read(ops) as f64)).collect();
    let total = [0, 1].map(|kind| bytes.iter().map(|b| b[kind]).sum::<f64>());
    // Of a kind that no layer has there is nothing to share.
    bytes.iter().flat_map(|b| [0, 1].map(|kind| b[kind] / total[kind].max(1.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_costs_what_it_runs() {
        let costs = PassCosts {
            step_seconds: 1.0,
            rows: vec![1.0, 1.1],
            base: 0.2,
            full: vec![0.1, 0.3, 0.1, 0.3],
            otherwise: vec![
                (State::Coarse, vec![0.05, 0.2, 0.05, 0.2]),
                (State::Experts(2), vec![0.1, 0.15, 0.1, 0.15]),
            ],
            resumes: true,
        };
        let full = Candidate::all(2, State::Run);
        assert!((costs.of(&full) - 1.0).abs() < 1e-12);
        let draft = full.with(0, State::Skip).with(3, State::Coarse);
        assert!((costs.of(&draft) - 0.8).abs() < 1e-12);
        assert!((costs.of(&full.with(1, State::Experts(2))) - 0.85).abs() < 1e-12);
        assert!((costs.of(&Candidate::all(2, State::Skip)) - 0.2).abs() < 1e-12);
        // By hand: one layer of 0.4, and 0.6 of two rows at 1.1.
        let exit = Candidate::exit(2, 1).mask();
        assert!((costs.verification(2, costs.prefix(&exit)) - 1.06).abs() < 1e-12);
        assert_eq!((costs.prefix(&draft.mask()), costs.verification(2, 0.0)), (0.0, 1.1));
    }
}
