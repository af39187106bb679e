//! Passes of the head that predicts one token more.

use super::Context;
use crate::{
    Batch, Error, Result,
    batch::{Mtp, Row},
};

impl Context {
    /// Whether the model has a head that was trained to predict one token more, and this context runs it: then batches may
    /// be [`Batch::mtp`].
    pub fn has_mtp(&self) -> bool {
        self.model.plan.mtp.is_some()
    }

    /// The share of a full pass's weight bytes that a pass of that head reads.
    ///
    /// # Panics
    /// If there is none.
    pub fn mtp_cost(&self) -> f64 {
        self.mtp_bytes() as f64 / self.bytes_read(None) as f64
    }

    /// The weight bytes that a pass of that head reads.
    ///
    /// # Panics
    /// If there is none.
    pub fn mtp_bytes(&self) -> u64 {
        self.model.plan.mtp_steps(true).iter().map(|step| self.step_bytes(step)).sum()
    }

    /// What holds of a batch for that head.
    pub(super) fn check_mtp(&self, batch: &Batch, mtp: &Mtp) -> Result<()> {
        if !self.has_mtp() {
            return Err(Error::Batch(format!(
                "{} has no head for one token more here: open it with `mtp`, in one place",
                self.model.name
            )));
        }
        if batch.run_layers.is_some() || batch.keep_hidden.is_some() || batch.resume.is_some() {
            return Err(Error::Batch(
                "a batch for the head that predicts one token more has no mask, and keeps and resumes nothing"
                    .into(),
            ));
        }
        let width = self.model.plan.width(self.model.plan.mtp_reads(mtp.after_itself));
        if mtp.before.len() != batch.rows.len() * width {
            return Err(Error::Batch(format!(
                "{} hidden numbers for {} rows of {width}: hand over one row for each token",
                mtp.before.len(),
                batch.rows.len()
            )));
        }
        let new: Vec<Row> =
            batch.rows.iter().filter(|row| self.kv.cell_at(row.seq, row.pos).is_none()).copied().collect();
        if new.len() > self.kv.free_cells() {
            return Err(self.kv.full(new.len()));
        }
        self.kv.check_positions(&new)
    }

    /// The cells of rows, new ones for those that have none.
    pub(super) fn mtp_cells(&mut self, rows: &[Row]) -> Result<Vec<u32>> {
        let nothing = vec![None; self.model.plan.own_slots() + self.extra_slots].into();
        let mut cells = Vec::with_capacity(rows.len());
        for row in rows {
            let cell = match self.kv.cell_at(row.seq, row.pos) {
                Some(cell) => cell,
                None => self.kv.append(std::slice::from_ref(row), Some(&nothing))?[0],
            };
            self.kv.write_mtp(cell);
            cells.push(cell);
        }
        Ok(cells)
    }
}
