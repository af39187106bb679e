//! Sequences that part from each other within a batch: cells are given row by row, and a sequence is forked as soon as the row
//! has its cell behind which it goes its own way.

use super::Context;
use crate::{
    Batch, Error, Result,
    batch::{Fork, Row},
};

impl Context {
    /// What holds of sequences that part from others.
    pub(super) fn check_forks(&self, batch: &Batch) -> Result<()> {
        if batch.forks.is_empty() {
            return Ok(());
        }
        let refused = |what: String| Err(Error::Batch(what));
        if batch.resume.is_some() || batch.mtp.is_some() || !self.model.plan.mixers.is_empty() {
            return refused(
                "sequences part within batches of new rows only, of a model without recurrent layers".into(),
            );
        }
        if !batch.forks.is_sorted_by_key(|fork| fork.after) {
            return refused("sequences part in the order of the rows: sort the forks".into());
        }
        for (i, &Fork { after, to }) in batch.forks.iter().enumerate() {
            let Some(row) = batch.rows.get(after) else {
                return refused(format!("sequence {to} parts after row {after} of {}", batch.rows.len()));
            };
            let is_known = self.kv.len(to) > 0 || batch.forks[..i].iter().any(|other| other.to == to);
            let earlier = batch.rows[..=after].iter().any(|row| row.seq == to);
            let is_behind = |other: &&Row| other.seq == to && other.pos <= row.pos;
            if is_known || earlier || batch.rows.iter().any(|other| is_behind(&other)) {
                return refused(format!(
                    "sequence {to} parts after row {after}: it has to be empty before, and its rows come behind that one"
                ));
            }
        }
        Ok(())
    }

    /// Gives some rows of a batch, of which `first` is the first, their cells.
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
