//! The file on disk: there whole or not at all.

use std::{ops::ControlFlow, path::Path};

use super::{Synth, Widened};
use crate::{Result, gguf::write_model};

impl Synth {
    /// See [`write_model`] for the file and [`Synth::write`] for the rest.
    pub fn write_file(
        &self,
        path: &Path,
        force: bool,
        threads: usize,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        write_model(path, force, self.tensor_bytes(), |file| self.write(file, threads, progress))
    }
}

impl Widened<'_> {
    pub fn write_file(
        &self,
        path: &Path,
        force: bool,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        write_model(path, force, self.tensor_bytes(), |file| self.write(file, progress))
    }
}
