//! The program from outside.

use std::{fs, ops::Deref, path::Path, process::Command};

use serde_json::Value;
use tempfile::TempDir;

use super::child::{Ended, Start};

/// The file of the embedded model.
pub const EMBEDDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories13m-q8_0.gguf");

pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_spec-run"))
}

pub fn run(args: &[&str]) -> Ended {
    program().args(args).ended()
}

/// In a folder, with arguments that have no spaces.
pub fn run_in(folder: &Path, args: &str) -> Ended {
    program().current_dir(folder).args(args.split_whitespace()).ended()
}

#[track_caller]
pub fn stdout(args: &[&str]) -> String {
    run(args).done()
}

/// Of arguments that have `--json` among them.
#[track_caller]
pub fn json(args: &[&str]) -> Value {
    run(args).json()
}

/// A folder that is removed behind the test.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    /// The path of a file, for a command line.
    pub fn path(&self, name: &str) -> String {
        self.join(name).display().to_string()
    }

    /// The path of a file that is written.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.join(name), content).unwrap();
        self.path(name)
    }

    /// What is in it, sorted.
    pub fn names(&self) -> Vec<String> {
        names(self)
    }
}

/// What is in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}
