//! What a candidate's step costs, from the cost of each sublayer; and what verifying several rows costs.
//!
//! Steps are timed with everything, without attention, without MLPs and without either; the differences are
//! dealt to the layers by the bytes that they read. That steers the search; of the masks that it ends with, each
//! is timed itself.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::candidate::{Candidate, Part, State};
use crate::{Batch, Context, Result, RunLayers, batch::SeqId, plan::Op};

/// Cases take turns: a machine's speed drifts, and neighbours come and go.
const LEAST_TURNS: usize = 5;
const MOST_TURNS: usize = 200;
const SECONDS: f64 = 1.5;
/// Steps of one case in a row, of which the first finds the caches full of other things.
const STEPS: usize = 3;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Of a plain step, in seconds; all else is in units of it.
    pub step_seconds: f64,
    /// `T(1)`, `T(2)`, ..
    pub rows: Vec<f64>,
    /// Embedding, head and what a pass costs by itself.
    pub base: f64,
    /// By sublayer, in full and coarse.
    pub full: Vec<f64>,
    pub coarse: Vec<f64>,
}

/// One thing to time.
#[derive(Clone, Debug)]
enum Case {
    Step(Option<RunLayers>),
    Rows(usize),
}

impl Costs {
    /// On a sequence of `depth` tokens, which is left as it was. Without `coarse` there are no planes to measure.
    pub fn measure(
        context: &mut Context,
        (seq, depth): (SeqId, usize),
        most_rows: usize,
        coarse: bool,
    ) -> Result<Self> {
        let n_layer = context.model().plan.dims.n_layer;
        let full = Candidate::all(n_layer, State::Run);
        let with = |part: Part, state| {
            let of_part = (0..2 * n_layer).filter(|&s| Candidate::place(s).1 == part);
            of_part.fold(full.clone(), |candidate, sublayer| candidate.with(sublayer, state))
        };
        let mut cases = vec![Case::Step(None)];
        for part in [Part::Attn, Part::Mlp] {
            cases.push(Case::Step(Some(with(part, State::Skip).mask())));
        }
        cases.push(Case::Step(Some(Candidate::all(n_layer, State::Skip).mask())));
        if coarse {
            for part in [Part::Attn, Part::Mlp] {
                cases.push(Case::Step(Some(with(part, State::Coarse).mask())));
            }
        }
        let first_rows = cases.len();
        cases.extend((1..=most_rows).map(Case::Rows));
        let seconds = time(context, (seq, depth), &cases)?;
        let step = seconds[0];
        let unit = |seconds: f64| seconds / step;
        // Each kind is seen twice: missing from everything, and alone beside the base.
        let base = unit(seconds[3]);
        let kind = |missing: f64, alone: f64| ((1.0 - unit(missing)) + (unit(alone) - base)).max(0.0) / 2.0;
        let kinds = [kind(seconds[1], seconds[2]), kind(seconds[2], seconds[1])];
        let coarse_kinds = match coarse {
            true => std::array::from_fn(|i| (kinds[i] - (1.0 - unit(seconds[4 + i]))).clamp(0.0, kinds[i])),
            false => kinds,
        };
        let shares = shares(context);
        let deal =
            |kinds: [f64; 2]| shares.iter().enumerate().map(|(s, share)| share * kinds[s % 2]).collect();
        // More rows never take less time, whatever the clock said.
        let one = seconds[first_rows];
        let most_yet = |most: &mut f64, seconds: &f64| {
            *most = most.max(seconds / one);
            Some(*most)
        };
        Ok(Costs {
            step_seconds: step,
            rows: seconds[first_rows..].iter().scan(1.0, most_yet).collect(),
            base: (1.0 - kinds[0] - kinds[1]).max(0.0),
            full: deal(kinds),
            coarse: deal(coarse_kinds),
        })
    }

    /// A step under the mask, by sum.
    pub fn of(&self, candidate: &Candidate) -> f64 {
        let sublayers = candidate.states().iter().enumerate().map(|(i, state)| match state {
            State::Run => self.full[i],
            State::Coarse => self.coarse[i],
            State::Skip => 0.0,
        });
        self.base + sublayers.sum::<f64>()
    }
}

/// Steps under masks over plain ones, each timed.
pub fn measure_masks(context: &mut Context, place: (SeqId, usize), masks: &[RunLayers]) -> Result<Vec<f64>> {
    let masks = masks.iter().map(|mask| Case::Step(Some(mask.clone())));
    let cases: Vec<Case> = std::iter::once(Case::Step(None)).chain(masks).collect();
    let seconds = time(context, place, &cases)?;
    Ok(seconds[1..].iter().map(|s| s / seconds[0]).collect())
}

/// The seconds of each case: the lower quartile, because neighbours only ever add time.
fn time(context: &mut Context, (seq, depth): (SeqId, usize), cases: &[Case]) -> Result<Vec<f64>> {
    let n_vocab = context.model().plan.dims.n_vocab as u32;
    let batches: Vec<Batch> = cases
        .iter()
        .map(|case| {
            let (rows, mask) = match case {
                Case::Step(mask) => (1, mask.clone()),
                Case::Rows(n) => (*n, None),
            };
            let mut batch = Batch { run_layers: mask, ..Batch::new() };
            // Different tokens, so that they do not all read the same row of the table.
            for i in 0..rows as u32 {
                batch.push(i * 7919 % n_vocab, depth as u32 + i, seq, true);
            }
            batch
        })
        .collect();
    let mut samples = vec![Vec::new(); cases.len()];
    let started = Instant::now();
    for turn in 0..MOST_TURNS {
        if turn >= LEAST_TURNS && started.elapsed().as_secs_f64() > SECONDS {
            break;
        }
        for (batch, samples) in batches.iter().zip(&mut samples) {
            for step in 0..STEPS {
                let started = Instant::now();
                context.decode(batch)?;
                let seconds = started.elapsed().as_secs_f64();
                context.truncate(seq, depth);
                if step > 0 {
                    samples.push(seconds);
                }
            }
        }
    }
    Ok(samples.into_iter().map(quartile).collect())
}

fn quartile(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 4]
}

/// Each sublayer's share of the bytes of its kind.
fn shares(context: &Context) -> Vec<f64> {
    let model = context.model();
    let read = |ops: &Vec<Op>| -> u64 {
        ops.iter().map(|op| model.bytes_read(op, |id| model.weight(id).tensor.bytes)).sum()
    };
    let bytes: Vec<[f64; 2]> =
        model.plan.layers.iter().map(|l| [&l.attn, &l.mlp].map(|ops| read(ops) as f64)).collect();
    let total = [0, 1].map(|kind| bytes.iter().map(|b| b[kind]).sum::<f64>());
    bytes.iter().flat_map(|b| [b[0] / total[0], b[1] / total[1]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_costs_what_it_runs() {
        let costs = Costs {
            step_seconds: 1.0,
            rows: vec![1.0, 1.1],
            base: 0.2,
            full: vec![0.1, 0.3, 0.1, 0.3],
            coarse: vec![0.05, 0.2, 0.05, 0.2],
        };
        let full = Candidate::all(2, State::Run);
        assert!((costs.of(&full) - 1.0).abs() < 1e-12);
        let draft = full.with(0, State::Skip).with(3, State::Coarse);
        assert!((costs.of(&draft) - 0.8).abs() < 1e-12);
        assert!((costs.of(&Candidate::all(2, State::Skip)) - 0.2).abs() < 1e-12);
    }
}
