//! Files that are there whole or not at all.

use std::{fs, path::Path};

use crate::{Error, Result};

/// Written beside and renamed, so that a kill leaves the old file or the new one.
pub fn write_whole(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path)).map_err(|e| {
        let _ = fs::remove_file(&beside);
        Error::io(path, e)
    })
}
