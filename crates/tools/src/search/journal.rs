//! Every evaluation on disk as soon as it is made, one JSON object a line. A search that is ended at any moment and
//! started again reads back what it knew and takes the same way, because its way depends on nothing else: every
//! time that was taken is in the journal too.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{candidate::Candidate, costs::PassCosts, family::Proof, measured::Measured, score::Score};
use crate::{Error, Result, files::read_stream_limited};

/// Millions of evaluations; what is larger is another file under a journal's name.
const MOST_BYTES: u64 = 1 << 30;

/// What the evaluations are of; a journal of anything else is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunId {
    /// The fingerprint of the model.
    pub model: String,
    /// The fingerprint of text and positions.
    pub text: String,
    /// How many positions are judged.
    pub positions: usize,
    /// Instruction set and threads: costs are theirs.
    pub device: String,
    /// How keys and values are stored.
    pub cache_types: String,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// What the journal is of.
    Run(RunId),
    /// What passes cost.
    Costs(PassCosts),
    /// Where what follows comes from, once for each run that added to the journal.
    Provenance(Value),
    /// The positions that follow those already scored.
    Score {
        /// What was judged.
        candidate: Candidate,
        /// Positions that were scored before.
        from: usize,
        /// How it fared on these.
        score: Score,
    },
    /// The time that was given was up after so many rows.
    OutOfTime {
        /// The time.
        given: Duration,
        /// Rows evaluated by then.
        rows: u64,
    },
    /// Timed together, for all that will be proved.
    Steps(Vec<(Candidate, f64)>),
    /// A candidate on held-out text.
    Proof {
        /// What was proved.
        candidate: Candidate,
        /// How it fared.
        proof: Proof,
    },
    /// Timed together.
    Measured(Vec<(Candidate, Measured)>),
}

/// What a search has evaluated, in a file that an interrupted search goes on from.
pub struct Journal {
    file: Option<(PathBuf, File)>,
    /// Of what is added from here on; written before the first of it.
    provenance: Option<Value>,
}

impl Journal {
    /// Keeps nothing.
    pub fn none() -> Self {
        Journal { file: None, provenance: None }
    }

    /// Opens or begins the journal of `run` at `path`, and gives what is in it.
    pub fn open(path: &Path, run: &RunId) -> Result<(Self, Vec<Entry>)> {
        let io = |e| Error::io(path, e);
        let refuse = |what: String| Err(Error::Input(format!("{}: {what}", path.display())));
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return refuse("is not a regular file: name another with `journal`".into());
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        // Two that write at once would spoil it for both. Where files cannot be locked, nobody is kept out.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return refuse(
                "another search is writing this journal: wait for its end, or name another with `journal`"
                    .into(),
            );
        }
        let text = read_stream_limited(&path.display().to_string(), &file, MOST_BYTES)?;
        // A line without its end was being written when the last run ended.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut entries = Vec::new();
        for (i, line) in text[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
            match serde_json::from_slice(line.trim_ascii_end()) {
                Ok(entry) => entries.push(entry),
                Err(e) => {
                    return refuse(format!(
                        "line {} is not of a search's journal ({e}): name another with `journal`, or remove it",
                        i + 1
                    ));
                }
            }
        }
        // Less than a line is ours if it is the beginning of what we would write first.
        if whole == 0 && !line_of(&Entry::Run(run.clone())).as_bytes().starts_with(&text) {
            return refuse("is not a search's journal: name another with `journal`".into());
        }
        match entries.first() {
            None => {}
            Some(Entry::Run(earlier)) if earlier == run => {}
            Some(_) => {
                return refuse(
                    "the journal of a search with another model, text, `positions` or device: name another with `journal`, or remove it"
                        .into(),
                );
            }
        }
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(io)?;
        let mut journal = Journal { file: Some((path.to_owned(), file)), provenance: None };
        if entries.is_empty() {
            journal.add(&Entry::Run(run.clone()))?;
        }
        Ok((journal, entries))
    }

    /// Where what is added from here on comes from.
    pub fn explain(&mut self, provenance: Value) {
        self.provenance = Some(provenance);
    }

    /// Adds a line.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let explained = self.provenance.take().map(|of| line_of(&Entry::Provenance(of)));
        let lines = explained.unwrap_or_default() + &line_of(entry);
        file.write_all(lines.as_bytes()).map_err(|e| Error::io(path, e))
    }
}

fn line_of(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("plain data") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_id() -> RunId {
        let text = |s: &str| s.to_string();
        RunId {
            model: text("m"),
            text: text("t"),
            positions: 64,
            device: text("d"),
            cache_types: text("f16 f16"),
        }
    }

    #[test]
    fn one_writer_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (first, entries) = Journal::open(&path, &run_id()).unwrap();
        assert!(entries.is_empty());
        let error = Journal::open(&path, &run_id()).err().expect("locked").to_string();
        assert!(error.contains("another search is writing this journal"), "{error}");
        drop(first);
        let (_second, entries) = Journal::open(&path, &run_id()).unwrap();
        assert_eq!(entries, [Entry::Run(run_id())]);
    }

    #[test]
    fn only_the_beginning_of_our_first_line_is_a_line_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let ours = line_of(&Entry::Run(run_id()));
        let texts = ["{\"run\": \"my own file\"", "{\"run\"xxxx", "notes", "notes\nand more\n", "\n\n"];
        let not_text: [&[u8]; 2] = [b"GGUF\xff\xfe", b"GGUF\xff\n\xfe"];
        for theirs in texts.map(str::as_bytes).into_iter().chain(not_text) {
            std::fs::write(&path, theirs).unwrap();
            let error = Journal::open(&path, &run_id()).err().expect("not a journal").to_string();
            assert!(error.contains("not") && error.contains("name another with `journal`"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), theirs);
        }
        for end in [0, 1, 9, ours.len() - 1] {
            std::fs::write(&path, &ours[..end]).unwrap();
            assert!(Journal::open(&path, &run_id()).is_ok(), "cut at {end}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), ours);
        }
        assert!(cfg!(not(unix)) || Journal::open(Path::new("/dev/null"), &run_id()).is_err());
    }
}
