//! Passes of the head that predicts one token more.

use super::Context;
use crate::{Result, batch::Row};

impl Context {
    /// Whether the model has a head that was trained to predict one token more, and this context runs it: then batches may
    /// be [`Batch::mtp`](crate::Batch::mtp).
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
