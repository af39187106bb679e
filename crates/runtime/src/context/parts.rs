//! Passes in two parts, see [`crate::batch`]: how hidden rows are kept, and how a pass goes on from them.

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
    /// The cells of rows that are in the cache.
    pub(super) fn cells_of(&self, rows: &[Row]) -> Vec<u32> {
        rows.iter().map(|row| self.kv.cell_at(row.seq, row.pos).expect("checked")).collect()
    }

    /// Runs the remaining layers for rows that are in the cache.
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

/// The contents of a buffer when a pass begins.
pub(super) struct Given<'a> {
    pub buf: Buf,
    pub rows: &'a [f32],
}

/// Runs the steps at once, or in two segments where rows are to be kept in between.
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
    // The head does not change the rows if it runs for all of them.
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
