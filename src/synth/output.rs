//! The file on disk: there whole or not at all.

use std::{
    fs::{self, File},
    ops::ControlFlow,
    path::Path,
};

use super::{Synth, Widened};
use crate::{Error, Result, files::Replacement};

/// Room for metadata and padding, beside the tensors.
const HEAD_BYTES: u64 = 32 << 20;

impl Synth {
    /// See [`whole_file`] for the file and [`Synth::write`] for the rest.
    pub fn write_file(
        &self,
        path: &Path,
        force: bool,
        threads: usize,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        whole_file(path, force, self.tensor_bytes(), |file| self.write(file, threads, progress))
    }
}

impl Widened<'_> {
    pub fn write_file(
        &self,
        path: &Path,
        force: bool,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        whole_file(path, force, self.tensor_bytes(), |file| self.write(file, progress))
    }
}

/// Puts the file in its place when it is complete; what is incomplete is removed. An existing file is
/// replaced only with `force`.
fn whole_file(
    path: &Path,
    force: bool,
    tensor_bytes: u64,
    write: impl FnOnce(File) -> Result<()>,
) -> Result<()> {
    let refuse = |what: &str| Err(Error::Usage(format!("{}: {what}", path.display())));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return refuse("is there and is not a regular file"),
        Ok(_) if !force => return refuse("exists; `force` overwrites it"),
        _ => {}
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    check_space(folder, tensor_bytes + HEAD_BYTES)?;
    let new = Replacement::of(path)?;
    let file = new.file().try_clone().map_err(|e| Error::io(path, e))?;
    write(file).map_err(|e| match e {
        Error::Io { source, .. } => Error::io(path, source),
        other => other,
    })?;
    new.put_in_place()
}

fn check_space(folder: &Path, needed: u64) -> Result<()> {
    match free_bytes(folder) {
        Some(free) if free < needed => {
            let gb = |bytes: u64| bytes as f64 / 1e9;
            let (folder, needed, free) = (folder.display(), gb(needed), gb(free));
            Err(Error::Input(format!(
                "{folder}: {needed:.1} GB are needed and {free:.1} GB are free; choose another folder or model"
            )))
        }
        _ => Ok(()),
    }
}

/// What a user may still write there, if the system tells.
fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let stat = rustix::fs::statvfs(folder).ok()?;
        stat.f_bavail.checked_mul(stat.f_frsize)
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}
