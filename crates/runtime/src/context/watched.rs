//! A context that tells what its matrices are multiplied with.

use std::sync::Arc;

use super::Context;
use crate::{Error, Result, backend::watch::Watch};

impl Context {
    /// From here on `watch` is told of every product. Only the CPU can tell, where all of the model is in main memory.
    pub fn watch(&mut self, watch: Arc<dyn Watch>) -> Result<()> {
        match self.backend.watch(watch) {
            true => Ok(()),
            false => Err(Error::Device("only a model that runs on the CPU alone can be watched".into())),
        }
    }
}
