//! Passes that make keys and values of what another model left.

use super::Context;
use crate::{Batch, Error, Result};

impl Context {
    /// What holds of a batch for such a pass.
    pub(super) fn check_inject(&self, batch: &Batch) -> Result<()> {
        let Some(rows) = &batch.inject else { return Ok(()) };
        let plan = &self.model.plan;
        let Some(inject) = &plan.inject else {
            return Err(Error::Batch(format!(
                "{} makes keys and values of its own tokens alone",
                self.model.name
            )));
        };
        let only_that = batch.run_layers.is_none()
            && batch.keep_hidden.is_none()
            && batch.resume.is_none()
            && batch.mtp.is_none()
            && batch.taps.is_empty()
            && batch.forks.is_empty()
            && batch.rows.iter().all(|row| !row.logits);
        if !only_that {
            return Err(Error::Batch(
                "a batch of keys and values from another model's rows has nothing else".into(),
            ));
        }
        let width = plan.width(inject.reads);
        if rows.len() != batch.rows.len() * width {
            return Err(Error::Batch(format!(
                "{} numbers for {} rows of {width}: hand over one row for each token",
                rows.len(),
                batch.rows.len()
            )));
        }
        Ok(())
    }
}
