//! Passes in two parts, as [`crate::batch`] says: how rows are kept and taken up again.

use super::Context;
use crate::{
    Batch, Result,
    backend::{Backend, Crossing, Output, Rows},
    batch::{Resume, Row},
    mask::RunLayers,
    plan::{Buf, BufSet, Step, Unit},
    scores::Want,
};

impl Context {
    /// Of rows that are in the cache.
    pub(super) fn cells_of(&self, rows: &[Row]) -> Vec<u32> {
        rows.iter().map(|row| self.kv.cell_at(row.seq, row.pos).expect("checked")).collect()
    }

    /// Takes rows that are in the cache through the other layers.
    pub(super) fn decode_resumed(&mut self, batch: &Batch, resume: &Resume, want: Want) -> Result<()> {
        let cells = self.cells_of(&batch.rows);
        let written = batch.run_layers.as_ref().and_then(|mask| self.written_slots(mask));
        cells.iter().for_each(|&cell| self.kv.rewrite(cell, written.clone()));
        let result = self.evaluate(batch, want);
        if result.is_err() {
            let left = self.written_slots(&RunLayers::exit(self.model.plan.dims.n_layer, resume.layer));
            cells.iter().for_each(|&cell| self.kv.rewrite(cell, left.clone()));
        }
        result
    }
}

/// What a pass finds of each row in a buffer.
pub(super) struct Given<'a> {
    pub buf: Buf,
    pub rows: &'a [f32],
}

/// Runs the steps in one go, or in two where rows are to be kept between.
pub(super) fn run(
    backend: &mut dyn Backend,
    steps: &[Step],
    rows: &Rows,
    given: Option<Given>,
    kept: Option<(usize, &mut [f32])>,
    output: Output,
) -> Result<()> {
    const STREAM: BufSet = BufSet::of([Buf::X]);
    let crossing = match given {
        Some(Given { buf, rows }) => {
            Crossing { arrives: BufSet::of([buf]), arriving: rows, ..Crossing::default() }
        }
        None => Crossing::default(),
    };
    let Some((before, hidden)) = kept else {
        return backend.run_segment(steps, rows, crossing, output);
    };
    let (first, then) = steps.split_at(before);
    // The head leaves the rows as they are, if it is asked for all of them.
    let only_head = then.iter().all(|step| step.unit == Unit::Head);
    if only_head && (then.is_empty() || rows.outputs.len() == rows.tokens.len()) {
        let crossing = Crossing { leaves: STREAM, leaving: hidden, ..crossing };
        return backend.run_segment(steps, rows, crossing, output);
    }
    let to_rest = Crossing { leaves: STREAM, leaving: hidden, ..crossing };
    backend.run_segment(first, rows, to_rest, Output::none())?;
    let from_rest = Crossing { arrives: STREAM, arriving: hidden, ..Crossing::default() };
    backend.run_segment(then, rows, from_rest, output)
}
