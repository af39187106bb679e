//! Where a picture goes, alone or in a page.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::common;
use crate::{Error, Result};

/// A file for a picture: `.html` for a page, `.svg` for the picture alone.
#[derive(Clone, Debug)]
pub struct ReportFile {
    pub path: PathBuf,
    pub is_page: bool,
}

impl From<OsString> for ReportFile {
    fn from(path: OsString) -> Self {
        let path = PathBuf::from(path);
        let is_page = has_extension(&path, &["html", "htm"]);
        ReportFile { path, is_page }
    }
}

impl ReportFile {
    /// What can be refused before anything is computed.
    pub fn check(&self, flag: &str, force: bool, inputs: &[PathBuf]) -> Result<()> {
        if !self.is_page && !has_extension(&self.path, &["svg"]) {
            return Err(Error::Usage(format!(
                "{flag} {}: the name must end in .html or .svg",
                self.path.display()
            )));
        }
        common::check_overwrite(&self.path, force, inputs)
    }

    /// The same name with another ending, for what goes with it.
    pub fn related(&self, ending: &str) -> String {
        let stem = self.path.file_stem().map_or("report".into(), |stem| stem.to_string_lossy());
        format!("{stem}{ending}")
    }
}

fn has_extension(path: &Path, known: &[&str]) -> bool {
    path.extension().and_then(|extension| extension.to_str()).is_some_and(|found| known.contains(&found))
}
