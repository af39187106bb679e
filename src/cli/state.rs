//! What a run keeps in a file so that the same command goes on from it: of what it is, how far it came, and a checksum
//! over both, for a changed digit would be a wrong figure.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Error, Result,
    files::{read_limited, write_whole},
    hash::fnv1a,
};

/// Bytes of a state; a sweep has some for each mask and chunk.
const MOST_BYTES: u64 = 256 << 20;

/// What a state is of; that of another run is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunId {
    pub model: String,
    pub text_tokens: usize,
    pub text_hash: String,
    pub n_ctx: usize,
    /// All of them, in a sweep.
    pub mask: String,
    pub cache_types: String,
}

#[derive(Serialize, Deserialize)]
struct State<T> {
    run: RunId,
    done: T,
    checksum: String,
}

pub struct StateFile {
    path: PathBuf,
    run: RunId,
}

impl StateFile {
    pub fn new(path: &Path, run: RunId) -> Self {
        StateFile { path: path.into(), run }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn refuse(&self, what: &str) -> Error {
        Error::Input(format!("{}: {what}; give another --resume file", self.path.display()))
    }

    /// What an earlier run left there; `None` if there is no file.
    pub fn recall<T: Serialize + DeserializeOwned>(&self) -> Result<Option<T>> {
        let bytes = match read_limited(&self.path, MOST_BYTES) {
            Ok(bytes) => bytes,
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let State { run, done, checksum } = serde_json::from_slice::<State<T>>(&bytes)
            .map_err(|e| self.refuse(&format!("not a state of this program ({e})")))?;
        if checksum != checksum_of(&run, &done) {
            return Err(self.refuse("its checksum is another: the file was damaged or edited"));
        }
        if run != self.run {
            return Err(self.refuse("the state of a run with another model, text, -c or mask"));
        }
        Ok(Some(done))
    }

    pub fn keep<T: Serialize>(&self, done: &T) -> Result<()> {
        let state = State { run: self.run.clone(), done, checksum: checksum_of(&self.run, done) };
        write_whole(&self.path, serde_json::to_string(&state).expect("plain data"))
    }
}

fn checksum_of(run: &RunId, done: &impl Serialize) -> String {
    checksum(&(run, done))
}

/// Of data as it is written.
pub fn checksum(data: &impl Serialize) -> String {
    format!("{:016x}", fnv1a(serde_json::to_string(data).expect("plain data").into_bytes()))
}
