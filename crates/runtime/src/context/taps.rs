//! Passes that give the rows of the residual stream before some layers (taps). A device may do that itself. Otherwise the pass
//! runs in pieces that end at these layers. Its results have the same bits, and passes without taps cost nothing more.

use super::Context;
use crate::{
    Batch, Result,
    backend::{Backend, Crossing, Output, Rows, Taps},
    plan::{Buf, BufSet, Plan, Step, Unit},
};

const STREAM: BufSet = BufSet::of([Buf::X]);

/// The rows that were taken out, and memory that is reused from pass to pass.
#[derive(Default)]
pub(super) struct Tapped {
    dim: usize,
    /// Steps of a pass before each layer that is tapped.
    cuts: Vec<usize>,
    /// `[rows, taps, dim]`
    rows: Vec<f32>,
    /// The residual stream at the end of a piece, and at the end of the one before.
    stream: [Vec<f32>; 2],
}

impl Tapped {
    /// Takes this with its memory, and prepares it for a batch.
    pub fn take_for(&mut self, batch: &Batch, plan: &Plan) -> Self {
        let mut tapped = std::mem::take(self);
        tapped.dim = plan.dims.dim;
        tapped.cuts.clear();
        tapped.cuts.extend(batch.taps.iter().map(|&layer| plan.steps_before(layer)));
        tapped.rows.clear();
        tapped
    }

    pub fn is_wanted(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// Runs the steps for the rows. What is taken out is appended to the rows that were taken out before.
    pub fn run(
        &mut self,
        backend: &mut dyn Backend,
        steps: &[Step],
        rows: &Rows,
        mut output: Output,
    ) -> Result<()> {
        let Tapped { dim, cuts, rows: taken, stream: [stream, before] } = self;
        let count = rows.tokens.len();
        let first = taken.len();
        taken.resize(first + count * cuts.len() * *dim, 0.0);
        let taps = Taps { cuts, rows: &mut taken[first..] };
        if let Some(device) = backend.whole_passes()
            && device.run_tapped(steps, rows, taps, output.again())?
        {
            return Ok(());
        }
        stream.resize(count * *dim, 0.0);
        before.resize(count * *dim, 0.0);
        let all_ask = rows.outputs.len() == count;
        let mut output = Some(output);
        let mut begin = 0;
        for (tap, &cut) in cuts.iter().enumerate() {
            std::mem::swap(stream, before);
            // The head does not change the rows if it runs for all of them.
            let with_head = all_ask && steps[cut..].iter().all(|step| step.unit == Unit::Head);
            let end = if with_head { steps.len() } else { cut };
            let out = output.take_if(|_| with_head).unwrap_or_else(Output::none);
            let crossing = Crossing { leaves: STREAM, leaving: stream, ..arriving(begin, before) };
            backend.run_segment(&steps[begin..end], rows, crossing, out)?;
            begin = end;
            let places = taken[first..].chunks_exact_mut(*dim).skip(tap).step_by(cuts.len());
            places.zip(stream.chunks_exact(*dim)).for_each(|(to, row)| to.copy_from_slice(row));
        }
        match output {
            Some(output) if begin < steps.len() => {
                backend.run_segment(&steps[begin..], rows, arriving(begin, stream), output)
            }
            _ => Ok(()),
        }
    }
}

/// The input of a piece that begins after so many steps.
fn arriving(begin: usize, stream: &[f32]) -> Crossing<'_> {
    match begin {
        0 => Crossing::default(),
        _ => Crossing { arrives: STREAM, arriving: stream, ..Crossing::default() },
    }
}

impl Context {
    /// Whether batches may have [`Batch::taps`]: nothing but the residual stream goes from layer to layer.
    pub fn has_taps(&self) -> bool {
        self.has_taps
    }

    /// The `i`-th row of the last decode as it came to each of the layers of [`Batch::taps`], one after the other.
    pub fn taps(&self, i: usize) -> &[f32] {
        let Tapped { dim, cuts, rows, .. } = &self.tapped;
        let width = cuts.len() * dim;
        &rows[i * width..][..width]
    }
}
