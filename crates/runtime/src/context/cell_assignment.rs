//! Cells for the rows of a pass, and these rows as a backend sees them.

use std::borrow::Cow;

use super::Context;
use crate::{
    Batch, Result,
    backend::{Rows, SlotView, View},
    batch::Row,
    kv::{KvCache, StateRun},
    lora::Scales,
    shortlist::Shortlist,
};

/// Rows with their cells.
pub(super) struct CellAssignment<'a> {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    /// By class of slots.
    cells: Vec<Cow<'a, [u32]>>,
    pub outputs: Vec<usize>,
    states: Vec<StateRun>,
    scales: Vec<Option<Scales>>,
}

impl<'a> CellAssignment<'a> {
    pub fn new(
        kv: &KvCache,
        rows: &[Row],
        cells: &'a [u32],
        states: Vec<StateRun>,
        scales: Vec<Option<Scales>>,
    ) -> Self {
        let in_windows = |class| cells.iter().map(|&cell| kv.place(class, cell)).collect();
        CellAssignment {
            tokens: rows.iter().map(|r| r.token).collect(),
            positions: rows.iter().map(|r| r.pos).collect(),
            cells: std::iter::once(Cow::Borrowed(cells)).chain((1..kv.classes()).map(in_windows)).collect(),
            outputs: (0..rows.len()).filter(|&i| rows[i].logits).collect(),
            states,
            scales,
        }
    }

    pub fn rows<'s>(
        &'s self,
        views: &'s [View<'s>],
        view_of_slot: &'s [SlotView],
        shortlist: Option<&'s Shortlist>,
    ) -> Rows<'s> {
        let CellAssignment { tokens, positions, cells, outputs, states, scales } = self;
        Rows { tokens, positions, cells, outputs, views, view_of_slot, states, shortlist, scales }
    }
}

impl Context {
    /// Gives some rows of a batch, of which `first` is the first, their cells: row by row, and a sequence that parts from another
    /// is forked as soon as the row behind which it does so has its cell.
    pub(super) fn assign_cells(&mut self, batch: &Batch, rows: &[Row], first: usize) -> Result<Vec<u32>> {
        let written = batch.run_layers.as_ref().and_then(|mask| self.written_slots(mask));
        if batch.forks.is_empty() {
            return self.kv.append(rows, written.as_ref());
        }
        let mut cells = Vec::with_capacity(rows.len());
        let here = first..first + rows.len();
        for fork in batch.forks.iter().filter(|fork| here.contains(&fork.after)) {
            let until = fork.after - first + 1;
            cells.extend(self.kv.append(&rows[cells.len()..until.max(cells.len())], written.as_ref())?);
            self.kv.fork(batch.rows[fork.after].seq, fork.to);
        }
        cells.extend(self.kv.append(&rows[cells.len()..], written.as_ref())?);
        Ok(cells)
    }
}
