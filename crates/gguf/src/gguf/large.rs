//! Model files that may be larger than memory: made window by window by some threads while another one writes.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    ops::ControlFlow,
    path::Path,
    sync::mpsc::sync_channel,
    thread,
};

use super::Writer;
use crate::{Error, Result, files::write_large};

/// Room for metadata and padding, beside the tensors.
const HEAD_BYTES: u64 = 32 << 20;

/// Pieces of one tensor's data, in order. Three such windows may be in memory at a time.
pub type Window = Vec<Vec<u8>>;

/// As [`write_large`], for a model with so many bytes of tensors.
pub fn write_model(
    path: &Path,
    force: bool,
    tensor_bytes: u64,
    write: impl FnOnce(File) -> Result<()>,
) -> Result<()> {
    write_large(path, force, tensor_bytes + HEAD_BYTES, write)
}

/// Somebody wants no more.
pub fn interrupted() -> Error {
    stopped(ErrorKind::Interrupted)
}

fn stopped(kind: ErrorKind) -> Error {
    Error::io("writing weights", kind.into())
}

impl Writer {
    /// Writes what `make` sends: the windows of all tensors in order, until it is told to break. It runs on a pool of
    /// `threads` (0: one per core). `progress` hears how many bytes of tensors are written; where it breaks, the result is
    /// an error of kind `Interrupted`.
    pub fn write_made(
        &self,
        out: impl Write,
        threads: usize,
        make: impl FnOnce(&dyn Fn(Result<Window>) -> ControlFlow<()>) + Send,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let threads = if threads == 0 { num_cpus::get() } else { threads };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|e| Error::Memory(format!("`threads` {threads}: no such number of threads ({e})")))?;
        let (windows, made) = sync_channel(1);
        let mut written = 0;
        thread::scope(|scope| {
            scope.spawn(move || {
                pool.install(|| {
                    make(&|window| match windows.send(window) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    });
                });
            });
            self.write(out, move |_, sink| {
                while sink.left() > 0 {
                    let window = made.recv().map_err(|_| stopped(ErrorKind::BrokenPipe))??;
                    for piece in &window {
                        sink.write(piece)?;
                        written += piece.len() as u64;
                    }
                    if progress(written).is_break() {
                        return Err(interrupted());
                    }
                }
                Ok(())
            })
        })
    }
}
