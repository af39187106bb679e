//! What shards of a score write: a line of JSON for each unit, that is a chunk of a text under a mask. Each is complete in
//! itself, so files may be cut anywhere, put together and read in any order.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// Of the format.
const VERSION: u32 = 1;
/// How a line begins, also one that was cut off.
const BEGINNING: &str = "{\"shard_line\":";

/// What units belong together. All of them make a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub version: String,
    pub id: RunId,
    /// How matrices lie in memory, which coarse sublayers depend on.
    pub planes: String,
    pub kind: Kind,
    /// Chunks of the text that are scored.
    pub chunks: usize,
    /// Masks of a sweep; else 1.
    pub masks: usize,
}

impl Run {
    /// By this program.
    pub fn new(id: RunId, config: &ContextConfig, kind: Kind, chunks: usize, masks: usize) -> Self {
        // The masks of a sweep are many, and stand in their lines.
        let mask = match kind {
            Kind::Sweep(_) => checksum(&id.mask),
            _ => id.mask,
        };
        let planes = config.planes.map_or("none".into(), |planes| format!("{planes:?}").to_lowercase());
        Run {
            version: env!("CARGO_PKG_VERSION").into(),
            id: RunId { mask, ..id },
            planes,
            kind,
            chunks,
            masks,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The full model alone.
    Full,
    /// One mask, or the head for one token more, beside it.
    Beside,
    /// Several masks; what they go over.
    Sweep(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// From 1.
    pub chunk: usize,
    /// From 1, in the order of the table.
    pub mask: usize,
    /// Its name or numbers; none for the full model.
    pub label: Vec<Value>,
    pub layers: Option<String>,
    /// Of the bytes that the full model reads for a token.
    pub cost: Option<f64>,
}

/// Of one chunk, and of a sweep one mask.
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
    pub unit: Unit,
    pub sums: Sums,
    pub provenance: Provenance,
    checksum: String,
}

impl ShardLine {
    pub fn new(run: Run, unit: Unit, sums: Sums, provenance: Provenance) -> Self {
        let mut line =
            ShardLine { shard_line: VERSION, run, unit, sums, provenance, checksum: String::new() };
        line.checksum = line.own_checksum();
        line
    }

    fn own_checksum(&self) -> String {
        checksum(&(&self.run, &self.unit, &self.sums, &self.provenance))
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("plain data") + "\n"
    }

    /// `None` if the line was cut off.
    fn read(text: &str) -> Result<Option<Self>, String> {
        let line: ShardLine = match serde_json::from_str(text) {
            Ok(line) => line,
            Err(_) if text.starts_with(BEGINNING) || BEGINNING.starts_with(text) => return Ok(None),
            Err(_) => return Err("no line of `spec-run perplexity --shard`".into()),
        };
        if line.shard_line != VERSION {
            return Err(format!("a line of version {}, where this program reads {VERSION}", line.shard_line));
        }
        if line.checksum != line.own_checksum() {
            return Err(
                "its checksum is another: the line was damaged or edited; remove it, and run its shard again"
                    .into(),
            );
        }
        let Run { chunks, masks, .. } = line.run;
        let inside = |i: usize, of: usize| (1..=of).contains(&i);
        match inside(line.unit.chunk, chunks) && inside(line.unit.mask, masks) {
            true => Ok(Some(line)),
            false => Err("a unit beyond the end of its run".into()),
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

impl From<Unit> for Entry {
    fn from(Unit { label, layers, cost, .. }: Unit) -> Self {
        Entry { label, layers, cost }
    }
}
