//! What shards of a score write: a line of JSON for each chunk of a text. Each is complete in itself, so files may be cut
//! anywhere, put together and read in any order.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    common::MOST_TEXT,
    output::warning,
    state::{RunId, checksum},
    sweep::Entry,
};
use crate::{
    ContextConfig, Error, Result,
    eval::{perplexity::Tally, sweep::Sweep},
    files::read_limited,
    provenance::Provenance,
};

/// Of the format; [`BEGINNING`] has it too.
const VERSION: u32 = 2;
/// How a line begins, also one that was cut off.
const BEGINNING: &str = "{\"shard_line\":2,";

/// What chunks belong together. All of them make a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub version: String,
    pub id: RunId,
    /// How matrices lie in memory, which coarse sublayers depend on.
    pub planes: String,
    /// What a sweep goes over.
    pub over: Option<String>,
    /// Chunks of the text that are scored.
    pub chunks: usize,
}

impl Run {
    /// By this program.
    pub fn new(id: RunId, config: &ContextConfig, over: Option<&str>, chunks: usize) -> Self {
        // The masks of a sweep are many, and stand in the lines by themselves.
        let mask = if over.is_some() { checksum(&id.mask) } else { id.mask };
        let planes = config.planes.map_or("none".into(), |planes| format!("{planes:?}").to_lowercase());
        Run {
            version: env!("CARGO_PKG_VERSION").into(),
            id: RunId { mask, ..id },
            planes,
            over: over.map(Into::into),
            chunks,
        }
    }
}

/// Of one chunk, or of several in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sums {
    Tally(Tally),
    Sweep(Sweep),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardLine {
    shard_line: u32,
    pub run: Run,
    /// What is scored beside the full model.
    pub masks: Vec<Entry>,
    /// From 1.
    pub chunk: usize,
    pub sums: Sums,
    pub provenance: Provenance,
    checksum: String,
}

impl ShardLine {
    pub fn new(run: Run, masks: Vec<Entry>, chunk: usize, sums: Sums, provenance: Provenance) -> Self {
        let mut line =
            ShardLine { shard_line: VERSION, run, masks, chunk, sums, provenance, checksum: String::new() };
        line.checksum = line.own_checksum();
        line
    }

    fn own_checksum(&self) -> String {
        checksum(&(&self.run, &self.masks, self.chunk, &self.sums, &self.provenance))
    }

    /// Whether the sums are of the kind that the run makes.
    fn is_sound(&self) -> bool {
        match (&self.sums, &self.run.over) {
            (Sums::Tally(_), None) => self.masks.len() <= 1,
            (Sums::Sweep(sweep), Some(_)) => sweep.masks.len() == self.masks.len(),
            _ => false,
        }
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("plain data") + "\n"
    }

    /// `None` if the line was cut off.
    fn read(text: &str) -> Result<Option<Self>, String> {
        let line: ShardLine = match serde_json::from_str(text) {
            Ok(line) => line,
            Err(_) if text.starts_with(BEGINNING) || BEGINNING.starts_with(text) => return Ok(None),
            Err(_) => return Err("no line of `spec-run perplexity --shard` of this version".into()),
        };
        if line.checksum != line.own_checksum() {
            return Err(
                "its checksum is another: the line was damaged or edited; remove it, and run its shard again"
                    .into(),
            );
        }
        if !(1..=line.run.chunks).contains(&line.chunk) {
            return Err("a chunk beyond the end of its run".into());
        }
        match line.is_sound() {
            true => Ok(Some(line)),
            false => {
                Err("sums of another kind than the line says; remove it, and run its shard again".into())
            }
        }
    }
}

/// All whole lines of a file, with their numbers. Of one that a kill has cut off, a warning tells.
pub fn read(path: &Path) -> Result<Vec<(usize, ShardLine)>> {
    let bytes = read_limited(path, MOST_TEXT)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let at = || format!("{}:{}", path.display(), i + 1);
        match ShardLine::read(line) {
            Ok(Some(line)) => found.push((i + 1, line)),
            Ok(None) => warning!("{}: a line that was cut off is not read", at()),
            Err(what) => return Err(Error::Input(format!("{}: {what}", at()))),
        }
    }
    Ok(found)
}
