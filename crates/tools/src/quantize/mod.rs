//! Writes a model in other formats: which type each tensor gets, the search for scales, and the file.
//!
//! A file depends on the model and the settings alone: not on threads, machine or time.

pub mod collect;
mod encode;
mod file_type;
pub mod importance;
mod mix;
pub mod prune;
mod search;
pub mod sums;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use regex::Regex;

pub use encode::WRITTEN;
pub use file_type::FileType;
use importance::Importance;
use mix::Chooser;

use crate::{
    Error, Gguf, Result,
    backend::cpu::simd::Isa,
    files::write_set,
    gguf::{TensorInfo, Value, Window, Writer, beside, shards},
    quant::{GgmlType, dequantize},
};

/// Weights that a thread takes at a time, unless a row has more.
const PIECE: usize = 1 << 17;
/// Pieces made at a time. At most three such windows are in memory.
const WINDOW: usize = 64;
/// Bytes of a tensor that is copied, at a time.
const COPIED: usize = 8 << 20;
/// Version of the formats, as llama.cpp counts them.
const QUANTIZATION_VERSION: u32 = 2;

/// What is asked for.
pub struct Settings {
    pub file_type: FileType,
    /// All tensors stay as they are.
    pub copy: bool,
    /// No rules: everything that is quantized gets the file type's base.
    pub pure: bool,
    /// The head stays as it is.
    pub leave_output: bool,
    pub output: Option<GgmlType>,
    pub embedding: Option<GgmlType>,
    /// The first pattern that is found in a tensor's name gives its type.
    pub overrides: Vec<(Regex, GgmlType)>,
    /// Whether what is quantized already may be quantized again.
    pub requantize: bool,
    pub importance: Option<Importance>,
    /// Metadata that is other than the model's.
    pub metadata: Vec<(String, Value)>,
    /// Of a model in several files each becomes one.
    pub keep_split: bool,
    /// How many layers the model had before some were left out: rules of a mix count these.
    pub layers: Option<u32>,
}

/// A file, or several, planned to the last byte and not yet written.
pub struct Quantized<'a> {
    gguf: &'a Gguf,
    settings: &'a Settings,
    tensors: Vec<Planned<'a>>,
    parts: Vec<Part>,
}

/// A file and its tensors.
struct Part {
    writer: Writer,
    tensors: Range<usize>,
}

/// A tensor and what it becomes.
pub struct Planned<'a> {
    pub tensor: &'a TensorInfo,
    pub ty: GgmlType,
    pub bytes: u64,
    /// By what the numbers of each matrix are multiplied, where a tensor beside it says so.
    factors: Vec<f32>,
    /// The type that was wanted, where its rows are not whole blocks of it.
    pub instead_of: Option<GgmlType>,
}

impl Planned<'_> {
    fn is_copied(&self) -> bool {
        self.ty == self.tensor.ty
    }

    /// Columns, rows of an expert, experts.
    fn shape(&self) -> [usize; 3] {
        let shape = &self.tensor.shape;
        let dim = |i: usize| shape.get(i).map_or(1, |&n| n as usize);
        [dim(0), dim(1), shape.iter().skip(2).product::<u64>() as usize]
    }
}

impl<'a> Quantized<'a> {
    /// Checks all that can be known before the first weight is read.
    pub fn plan(gguf: &'a Gguf, settings: &'a Settings) -> Result<Self> {
        let mut chooser = Chooser::new(gguf, settings)?;
        let mut tensors = Vec::new();
        for tensor in Chooser::order(gguf, settings) {
            let chosen = chooser.choose(tensor);
            tensors.push(planned(gguf, tensor, chosen.ty, chosen.instead_of, settings)?);
        }
        // What the file has beside weights belongs to their type, and the others are multiplied by it here.
        let others = tensors.iter().filter(|planned| !planned.is_copied());
        let folded: HashSet<String> = others.filter_map(|planned| beside(planned.tensor)).flatten().collect();
        tensors.retain(|planned| !folded.contains(&planned.tensor.name));
        for (pattern, _) in &settings.overrides {
            if !tensors.iter().any(|planned| pattern.is_match(&planned.tensor.name)) {
                return Err(Error::Usage(format!("`overrides` {pattern}: found in the name of no tensor")));
            }
        }
        if let Some(importance) = &settings.importance {
            let quantized = tensors.iter().filter(|planned| !planned.is_copied());
            importance.check(gguf, quantized.map(|planned| planned.tensor))?;
        }
        let parts = parts(gguf, settings, &tensors);
        Ok(Quantized { gguf, settings, tensors, parts })
    }

    /// In the order of the file, or of the files.
    pub fn tensors(&self) -> &[Planned<'a>] {
        &self.tensors
    }

    /// Of all tensors together; metadata and padding come on top.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|planned| planned.bytes).sum()
    }

    /// How long the file will be, or all files together.
    pub fn file_bytes(&self) -> Result<u64> {
        self.parts.iter().map(|part| Ok(part.writer.outline()?.1)).sum()
    }

    pub fn file_count(&self) -> usize {
        self.parts.len()
    }

    /// What the files are called, where one would be called `path`.
    pub fn paths(&self, path: &Path) -> Vec<PathBuf> {
        match self.settings.keep_split {
            true => shards::paths(path, self.parts.len()),
            false => vec![path.to_owned()],
        }
    }

    /// All files, or none: see [`write_set`]. `threads` make blocks (0: one per core) while this one writes. `progress`
    /// hears how many bytes of tensors are written; where it breaks, the result is an error of kind `Interrupted`.
    pub fn write_files(
        &self,
        path: &Path,
        force: bool,
        threads: usize,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut before = 0;
        write_set(&self.paths(path), force, self.file_bytes()?, |i, file| {
            let Part { writer, tensors } = &self.parts[i];
            let tensors = &self.tensors[tensors.clone()];
            let make = |send: &dyn Fn(Result<Window>) -> ControlFlow<()>| _ = self.make(tensors, send);
            writer.write_made(file, threads, make, |written| progress(before + written))?;
            before += tensors.iter().map(|planned| planned.bytes).sum::<u64>();
            Ok(())
        })
    }

    /// Sends these tensors in order, until nobody listens any more.
    fn make(&self, tensors: &[Planned], send: &dyn Fn(Result<Window>) -> ControlFlow<()>) -> ControlFlow<()> {
        let isa = Isa::detect();
        for planned in tensors {
            if planned.is_copied() {
                self.copy(planned.tensor, send)?;
            } else {
                self.quantize(isa, planned, send)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn copy(&self, tensor: &TensorInfo, send: &dyn Fn(Result<Window>) -> ControlFlow<()>) -> ControlFlow<()> {
        for (i, part) in self.gguf.bytes(tensor).chunks(COPIED).enumerate() {
            let window = vec![part.to_vec()];
            self.gguf.release(tensor, i * COPIED..i * COPIED + part.len());
            send(Ok(window))?;
        }
        ControlFlow::Continue(())
    }

    fn quantize(
        &self,
        isa: Isa,
        planned: &Planned,
        send: &dyn Fn(Result<Window>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let row_bytes = planned.tensor.bytes as usize / planned.shape()[1..].iter().product::<usize>();
        for window in pieces(planned.shape()).chunks(WINDOW) {
            let made = window.par_iter().map(|piece| self.piece(isa, planned, *piece)).collect();
            if let (Some(first), Some(last)) = (window.first(), window.last()) {
                let rows = first.row..last.row + last.rows;
                self.gguf.release(planned.tensor, rows.start * row_bytes..rows.end * row_bytes);
            }
            send(made)?;
        }
        ControlFlow::Continue(())
    }

    fn piece(&self, isa: Isa, planned: &Planned, Piece { row, rows, expert }: Piece) -> Result<Vec<u8>> {
        let tensor = planned.tensor;
        let columns = planned.shape()[0];
        let row_bytes = tensor.ty.row_bytes(columns).expect("a tensor's rows are whole blocks");
        let bytes = &self.gguf.bytes(tensor)[row * row_bytes..(row + rows) * row_bytes];
        let mut x = vec![0.0; rows * columns];
        dequantize(tensor.ty, bytes, &mut x);
        if planned.factors[expert] != 1.0 {
            x.iter_mut().for_each(|x| *x *= planned.factors[expert]);
        }
        if let Some(at) = x.iter().position(|x| !x.is_finite()) {
            let (row, column) = (row + at / columns, at % columns);
            let what = format!("`{}`: weight {column} of row {row} is not a finite number", tensor.name);
            return Err(Error::gguf(self.gguf.name(), what));
        }
        let importance =
            self.settings.importance.as_ref().and_then(|all| all.of(&tensor.name, columns, expert));
        let mut out = Vec::with_capacity(planned.ty.row_bytes(columns).unwrap_or(0) * rows);
        encode::encode(isa, planned.ty, encode::Rows { x: &x, columns, importance }, &mut out);
        Ok(out)
    }
}

/// Rows of one expert.
#[derive(Clone, Copy)]
struct Piece {
    /// Of the whole tensor.
    row: usize,
    rows: usize,
    expert: usize,
}

fn pieces([columns, rows, experts]: [usize; 3]) -> Vec<Piece> {
    let most = (PIECE / columns.max(1)).max(1);
    let of_one = |expert| {
        (0..rows).step_by(most).map(move |first| Piece {
            row: expert * rows + first,
            rows: most.min(rows - first),
            expert,
        })
    };
    (0..experts).flat_map(of_one).collect()
}

/// Says what cannot be done before anything is written.
fn planned<'a>(
    gguf: &Gguf,
    tensor: &'a TensorInfo,
    ty: GgmlType,
    instead_of: Option<GgmlType>,
    settings: &Settings,
) -> Result<Planned<'a>> {
    let fail = |what: String| Err(Error::model(gguf.name(), format!("{}: {what}", tensor.name)));
    let planned = |bytes, factors| Planned { tensor, ty, bytes, factors, instead_of };
    if ty == tensor.ty {
        return Ok(planned(tensor.bytes, Vec::new()));
    }
    if !tensor.ty.readable() {
        return fail(format!("is {}, which cannot be turned into numbers here", tensor.ty));
    }
    if tensor.ty.block_len() > 1 && !settings.requantize {
        return fail(format!(
            "is {} already, and quantizing it again costs quality: take a file of F16, BF16 or F32, or allow it with \
             `requantize`",
            tensor.ty
        ));
    }
    let columns = tensor.shape[0];
    let Some(row_bytes) = ty.row_bytes(columns as usize) else {
        let len = ty.block_len();
        return fail(format!("a row of {columns} weights is not whole blocks of {ty}, which have {len}"));
    };
    if ty == GgmlType::Q2_K && needs_importance(settings, &tensor.name) {
        return fail(format!(
            "becomes Q2_K, which in a file of {} needs an `importance`",
            settings.file_type
        ));
    }
    let rows: u64 = tensor.shape[1..].iter().product();
    Ok(planned(row_bytes as u64 * rows, gguf.factors(tensor)?))
}

/// llama.cpp writes nothing where so few bits are all over a model and it is not known which matter.
fn needs_importance(settings: &Settings, name: &str) -> bool {
    use mix::Category::{Embedding, Head};
    settings.file_type == FileType::Q2_K_S
        && settings.importance.is_none()
        && !matches!(mix::Category::of(name), Embedding | Head)
}

/// The files: one, or one for each of the model's that has tensors left. The first has the metadata, be there tensors in it
/// or not.
fn parts(gguf: &Gguf, settings: &Settings, tensors: &[Planned]) -> Vec<Part> {
    let shard = |planned: &Planned| if settings.keep_split { planned.tensor.shard } else { 0 };
    let mut files: Vec<usize> = [0].into_iter().chain(tensors.iter().map(shard)).collect();
    files.dedup();
    let part = |(no, &this): (usize, &usize)| {
        let mut writer = if no == 0 { head(gguf, settings) } else { Writer::new() };
        if files.len() > 1 {
            shards::mark(&mut writer, no, files.len(), tensors.len());
        }
        let before = |end: usize| tensors.partition_point(|planned| shard(planned) < end);
        let range = before(this)..before(this + 1);
        for planned in &tensors[range.clone()] {
            writer.tensor(&planned.tensor.name, planned.ty, &planned.tensor.shape);
        }
        Part { writer, tensors: range }
    };
    files.iter().enumerate().map(part).collect()
}

/// The metadata: all but what says that a model is in several files, and what is true of the new one.
fn head(gguf: &Gguf, settings: &Settings) -> Writer {
    let mut new: Vec<(&str, Value)> = vec![("general.quantization_version", QUANTIZATION_VERSION.into())];
    let file_type = gguf.metadata().get("general.file_type").filter(|_| settings.copy);
    new.push(("general.file_type", file_type.cloned().unwrap_or(settings.file_type.id().into())));
    if let Some(importance) = &settings.importance {
        new.extend(importance.describe());
    }
    let replaced: HashSet<&str> = new.iter().map(|(key, _)| *key).collect();
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        if !replaced.contains(key) && !key.starts_with("split.") {
            writer.set(key, value.clone());
        }
    }
    for (key, value) in new {
        writer.set(key, value);
    }
    for (key, value) in &settings.metadata {
        writer.set(key, value.clone());
    }
    writer
}
