//! Passes in two parts, as [`crate::batch`] says: what is asked of them, and how rows are kept and taken up again.

use super::Context;
use crate::{
    Batch, Error, Result,
    backend::{Backend, Crossing, Output, Rows},
    batch::{Resume, Row},
    mask::RunLayers,
    plan::{Buf, BufSet, Step, Unit, Visit},
    scores::Want,
};

impl Context {
    /// What holds of a pass that is only a part of one.
    pub(super) fn check_parts(&self, batch: &Batch) -> Result<()> {
        let Batch { rows, run_layers, keep_hidden, resume, .. } = batch;
        let from = resume.as_ref().map(|resume| resume.layer);
        let mut layers = from.into_iter().chain(*keep_hidden).peekable();
        if layers.peek().is_none() {
            return Ok(());
        }
        let n_layer = self.model.plan.dims.n_layer;
        let only_after_last = from.is_none() && *keep_hidden == Some(n_layer);
        let abilities = self.backend.abilities();
        if !(abilities.keeps_hidden || only_after_last && abilities.gives_last_rows) {
            return Err(Error::Batch(format!(
                "hidden rows stay on the device ({}): run all layers in one pass, or `device` cpu",
                self.describe()
            )));
        }
        let in_full = run_layers.as_ref().map_or(n_layer, RunLayers::full_prefix);
        if let Some(layer) = layers.find(|layer| !(1..=in_full).contains(layer)) {
            return Err(Error::Batch(format!(
                "hidden rows at layer {layer}: they can rest where all layers before have run in full, at 1 or later; here the first {in_full} do"
            )));
        }
        if let (Some(from), Some(keep)) = (from, *keep_hidden)
            && (keep < from || keep == from && from < n_layer)
        {
            return Err(Error::Batch(format!(
                "rows that go on from layer {from} do not come to layer {keep} again: keep them at a later one"
            )));
        }
        let Some(Resume { layer, hidden }) = resume else { return Ok(()) };
        let dim = self.model.plan.dims.dim;
        if hidden.len() != rows.len() * dim {
            return Err(Error::Batch(format!(
                "{} hidden numbers for {} rows of {dim}: hand over one row for each token",
                hidden.len(),
                rows.len()
            )));
        }
        let mut cells = Vec::with_capacity(rows.len());
        for Row { pos, seq, .. } in rows {
            let holds = |cell: &u32| (0..*layer).all(|slot| self.kv.holds(*cell, slot, Visit::first(slot)));
            let Some(cell) = self.kv.cell_at(*seq, *pos).filter(holds) else {
                return Err(Error::Batch(format!(
                    "position {pos} of sequence {seq} has not been through the first {layer} layers: nothing to resume"
                )));
            };
            if !self.kv.sees_all(*seq, *pos) {
                return Err(self.kv.lost(format!("position {pos} of sequence {seq} cannot be resumed")));
            }
            cells.push(cell);
        }
        cells.sort_unstable();
        match cells.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Err(Error::Batch("a row is to be resumed twice in one batch: name it once".into())),
            false => Ok(()),
        }
    }

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
