//! Every evaluation on disk as soon as it is made, one JSON object a line. A search that is ended at any moment and
//! started again reads back what it knew and takes the same way, because its way depends on nothing else: every
//! time that was taken is in the journal too.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{candidate::Candidate, costs::PassCosts, family::Proof, measured::Measured, score::Score};
use crate::{Error, Result};

/// What the evaluations are of; a journal of anything else is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunId {
    pub model: String,
    pub text: String,
    pub positions: usize,
    /// Instruction set and threads: costs are theirs.
    pub device: String,
    pub cache_types: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    Run(RunId),
    Costs(PassCosts),
    /// The positions that follow those already scored.
    Score {
        candidate: Candidate,
        from: usize,
        score: Score,
    },
    /// The time that was given was up after so many rows.
    OutOfTime {
        given: Duration,
        rows: u64,
    },
    /// Timed together, for all that will be proved.
    Steps(Vec<(Candidate, f64)>),
    Proof {
        candidate: Candidate,
        proof: Proof,
    },
    /// Timed together.
    Measured(Vec<(Candidate, Measured)>),
}

pub struct Journal {
    file: Option<(PathBuf, File)>,
}

impl Journal {
    /// Keeps nothing.
    pub fn none() -> Self {
        Journal { file: None }
    }

    /// Opens or begins the journal of `run` at `path`, and gives what is in it.
    pub fn open(path: &Path, run: &RunId) -> Result<(Self, Vec<Entry>)> {
        let io = |e| Error::io(path, e);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(io)?;
        // A line without its end was being written when the last run ended.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let refuse = |what: String| Err(Error::Input(format!("{}: {what}", path.display())));
        let mut entries = Vec::new();
        for (i, line) in text[..whole].lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(entry) => entries.push(entry),
                Err(e) => {
                    return refuse(format!(
                        "line {} is not of a search's journal ({e}): name another with --journal, or remove it",
                        i + 1
                    ));
                }
            }
        }
        if whole == 0 && !text.is_empty() {
            let cut_short = text.starts_with("{\"run\"");
            if !cut_short {
                return refuse("is not a search's journal: name another with --journal".into());
            }
        }
        match entries.first() {
            None => {}
            Some(Entry::Run(earlier)) if earlier == run => {}
            Some(_) => {
                return refuse(
                    "the journal of a search with another model, text, --positions or device: name another with --journal, or remove it"
                        .into(),
                );
            }
        }
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(io)?;
        let mut journal = Journal { file: Some((path.to_owned(), file)) };
        if entries.is_empty() {
            journal.add(&Entry::Run(run.clone()))?;
        }
        Ok((journal, entries))
    }

    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let mut line = serde_json::to_string(entry).expect("plain data");
        line.push('\n');
        file.write_all(line.as_bytes()).map_err(|e| Error::io(path, e))
    }
}
