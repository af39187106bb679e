//! The file on disk: there whole or not at all.

use std::{ops::ControlFlow, path::Path};

use super::{Synth, Widened};
use crate::{Result, files::write_large};

/// Room for metadata and padding, beside the tensors.
const HEAD_BYTES: u64 = 32 << 20;

impl Synth {
    /// See [`write_large`] for the file and [`Synth::write`] for the rest.
    pub fn write_file(
        &self,
        path: &Path,
        force: bool,
        threads: usize,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        write_large(path, force, self.tensor_bytes() + HEAD_BYTES, |file| self.write(file, threads, progress))
    }
}

impl Widened<'_> {
    pub fn write_file(
        &self,
        path: &Path,
        force: bool,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        write_large(path, force, self.tensor_bytes() + HEAD_BYTES, |file| self.write(file, progress))
    }
}
