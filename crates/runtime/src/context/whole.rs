//! Models that see a text both ways, and models without a head.

use super::Context;
use crate::{Batch, Error, Result};

impl Context {
    /// Where rows see what comes behind them, a text is evaluated in one pass; and not every model gives logits.
    pub(super) fn check_whole(&self, batch: &Batch) -> Result<()> {
        let (plan, name) = (&self.model.plan, &self.model.name);
        if plan.head.is_none() && batch.rows.iter().any(|row| row.logits) {
            return Err(Error::Batch(format!(
                "{name} gives no logits: it makes embeddings, which `Embedder` gives"
            )));
        }
        // Blocks that are drafted follow a text that is known already.
        if !plan.bidirectional || plan.inject.is_some() {
            return Ok(());
        }
        let (rows, most) = (batch.rows.len(), self.backend.max_rows());
        if rows > most {
            return Err(Error::Batch(format!(
                "{rows} tokens at once, and {name} sees a text both ways, in one pass of at most {most}: a larger `n_ubatch`"
            )));
        }
        match batch.rows.iter().find(|row| !self.kv.is_empty(row.seq)) {
            Some(row) => Err(Error::Batch(format!(
                "sequence {} has begun, and {name} sees a text both ways: evaluate it whole",
                row.seq
            ))),
            None => Ok(()),
        }
    }
}
