//! The file on disk: there whole or not at all.

use std::{
    fs::{self, File},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use super::{Synth, Widened};
use crate::{Error, Result};

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

/// Writes to `PATH.part` and renames it when it is complete; what is incomplete is removed. An existing file is
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
        Ok(_) if !force => return refuse("exists; --force overwrites it"),
        _ => {}
    }
    let Some(name) = path.file_name() else { return refuse("is not the name of a file") };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    check_space(folder, tensor_bytes + HEAD_BYTES)?;
    let mut part_name = name.to_owned();
    part_name.push(".part");
    let part = PartFile(folder.join(part_name));
    let file = File::create(&part.0).map_err(|e| Error::io(&part.0, e))?;
    write(file).map_err(|e| match e {
        Error::Io { source, .. } => Error::io(path, source),
        other => other,
    })?;
    fs::rename(&part.0, path).map_err(|e| Error::io(path, e))
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

/// Removed when it goes out of scope; after the rename there is nothing left to remove.
struct PartFile(PathBuf);

impl Drop for PartFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
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
