//! Models cut into several files: how the files are named, and what their `split.*` keys must say.

use std::path::{Path, PathBuf};

use super::{Metadata, Writer};
use crate::{Error, Result, quoted::Quoted};

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// What a file says of its place among shards; a whole model is the only one of one.
pub(super) struct Split {
    pub no: u32,
    pub count: u32,
    /// Tensors in all shards together.
    pub tensors: Option<u32>,
}

impl Split {
    pub fn of(metadata: &Metadata) -> Result<Self> {
        let count = metadata.u32(COUNT)?.unwrap_or(1).max(1);
        let no = match metadata.u32(NO)? {
            Some(no) => no,
            None if count > 1 => return Err(metadata.missing(NO)),
            None => 0,
        };
        Ok(Split { no, count, tensors: metadata.u32(TENSORS)? })
    }
}

/// `NAME-00002-of-00003.gguf`, taken apart; numbers from one, as in the name.
struct ShardName<'a> {
    path: &'a Path,
    stem: &'a str,
    number: u32,
    count: u32,
}

impl<'a> ShardName<'a> {
    fn parse(path: &'a Path) -> Option<Self> {
        let rest = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = five_digits(rest)?;
        let (stem, number) = five_digits(rest.strip_suffix("-of")?)?;
        Some(ShardName { path, stem, number, count })
    }

    fn sibling(&self, number: u32) -> PathBuf {
        self.path.with_file_name(format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count))
    }
}

/// What the files of a model are called that would be `NAME.gguf` in one: `NAME-00001-of-00003.gguf` and so on.
pub fn paths(whole: &Path, count: usize) -> Vec<PathBuf> {
    let is_gguf = whole.extension().is_some_and(|extension| extension == "gguf");
    let stem = if is_gguf { whole.file_stem() } else { whole.file_name() }.unwrap_or_default();
    let shard = |number| {
        let mut name = stem.to_os_string();
        name.push(format!("-{number:05}-of-{count:05}.gguf"));
        whole.with_file_name(name)
    };
    (1..=count).map(shard).collect()
}

/// Says in a file's metadata that it is the one at index `no` of several, with so many tensors in all of them.
pub fn mark(writer: &mut Writer, no: usize, count: usize, tensors: usize) {
    // llama.cpp's types; no name has room for more files, and no directory for more tensors.
    writer.set(NO, no as u16).set(COUNT, count as u16).set(TENSORS, tensors as i32);
}

/// Takes `-12345` off the end.
fn five_digits(s: &str) -> Option<(&str, u32)> {
    let (rest, digits) = s.rsplit_once('-')?;
    if digits.len() != 5 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((rest, digits.parse().ok()?))
}

/// The other shards of the model that begins with `path`, in order; none for a model in one file.
/// Checks that `path` is the first one and that its name and its keys agree.
pub(super) fn others(path: &Path, split: &Split) -> Result<Vec<PathBuf>> {
    let file = path.display().to_string();
    let name = ShardName::parse(path);
    if split.no > 0 {
        let (no, count) = (u64::from(split.no) + 1, split.count);
        let first = match &name {
            Some(name) => format!("open {} instead", name.sibling(1).display()),
            None => "open the first one instead".into(),
        };
        return Err(Error::gguf(file, format!("this is shard {no} of {count} of a model; {first}")));
    }
    match name {
        None if split.count == 1 => Ok(Vec::new()),
        None => {
            let count = split.count;
            let what = format!(
                "this is the first of {count} shards, but the name does not end in -00001-of-{count:05}.gguf, so \
                 the others cannot be found; give the files the names that they had"
            );
            Err(Error::gguf(file, what))
        }
        Some(name) if (name.number, name.count) == (1, split.count) => {
            Ok((2..=name.count).map(|number| name.sibling(number)).collect())
        }
        Some(name) => {
            let what = format!(
                "the name says shard {} of {}, the metadata say shard 1 of {} (key `{COUNT}`); the file was renamed \
                 or is damaged",
                name.number, name.count, split.count,
            );
            Err(Error::gguf(file, what))
        }
    }
}

/// Checks that the shard at index `no` is the one that the first says it should be.
pub(super) fn check(file: &str, metadata: &Metadata, no: usize, first: &Split) -> Result<()> {
    let split = Split::of(metadata)?;
    if (split.no as usize, split.count) == (no, first.count) {
        return Ok(());
    }
    let what = format!(
        "the metadata say shard {} of {}, but shard {} of {} belongs here; the files are of different models, or \
         were renamed",
        u64::from(split.no) + 1,
        split.count,
        no + 1,
        first.count,
    );
    Err(Error::gguf(file, what))
}

/// Checks the number of tensors in all shards together.
pub(super) fn check_tensors(file: &str, found: usize, first: &Split) -> Result<()> {
    match first.tensors {
        Some(wanted) if wanted as usize != found => Err(Error::gguf(
            file,
            format!("metadata key {} is {wanted}, but {found} tensors were found", Quoted(TENSORS)),
        )),
        _ => Ok(()),
    }
}

/// Says which model the shard that could not be opened belongs to.
pub(super) fn unopened(error: Error, no: usize, first: &Split, model: &str) -> Error {
    match error {
        Error::Io { path, source } => {
            let (number, count) = (no + 1, first.count);
            Error::gguf(path, format!("shard {number} of {count} of {model} cannot be opened: {source}"))
        }
        other => other,
    }
}
