//! How much each column of a matrix matters: the mean square of what a model multiplies it with. llama.cpp calls that an
//! importance matrix, and has two formats for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::mix::layer_of;
use crate::{
    Error, Gguf, Result,
    files::read_limited,
    gguf::{TensorInfo, Value},
    quant::{GgmlType, dequantize},
    words::count,
};

/// Bytes of a file that is read.
const MOST_BYTES: u64 = 16 << 30;
/// What is behind a matrix's name in those of its tensors.
pub(super) const SUMS: &str = ".in_sum2";
pub(super) const COUNTS: &str = ".counts";
pub(super) const DATASETS: &str = "imatrix.datasets";
pub(super) const CHUNK_COUNT: &str = "imatrix.chunk_count";
pub(super) const CHUNK_SIZE: &str = "imatrix.chunk_size";

/// By matrix and column, and by expert where a matrix has several.
#[derive(Debug)]
pub struct Importance {
    file: String,
    /// The text that it was made of.
    dataset: Option<String>,
    chunks: u32,
    matrices: BTreeMap<String, Vec<f32>>,
    left_out: BTreeSet<String>,
}

impl Importance {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = read_limited(path, MOST_BYTES)?;
        let name = path.display().to_string();
        let read =
            if bytes.starts_with(b"GGUF") { Self::of_gguf(name, bytes) } else { Self::of_dat(name, &bytes) }?;
        let unsound = |x: &&f32| !x.is_finite() || **x < 0.0;
        match read.matrices.iter().find_map(|(matrix, all)| all.iter().find(unsound).map(|x| (matrix, x))) {
            Some((matrix, x)) => Err(read.error(format!("`{matrix}`: a mean square of {x}"))),
            None if read.matrices.is_empty() => Err(read.error("no matrix is in it".into())),
            None => Ok(read),
        }
    }

    fn of_gguf(file: String, bytes: Vec<u8>) -> Result<Self> {
        let gguf = Gguf::from_bytes(&file, bytes)?;
        let metadata = gguf.metadata();
        let error = |what: String| Error::gguf(&file, what);
        if metadata.get(CHUNK_COUNT).is_none() {
            return Err(error(format!("no `{CHUNK_COUNT}` in the metadata: it is no importance matrix")));
        }
        let numbers = |tensor: &TensorInfo| {
            if tensor.ty != GgmlType::F32 {
                return Err(error(format!("`{}` is {}, wanted F32", tensor.name, tensor.ty)));
            }
            let mut numbers = vec![0.0; tensor.elements() as usize];
            dequantize(tensor.ty, gguf.bytes(tensor), &mut numbers);
            Ok(numbers)
        };
        let mut matrices = BTreeMap::new();
        for tensor in gguf.tensors() {
            let Some(name) = tensor.name.strip_suffix(SUMS) else { continue };
            let counts = gguf.tensor(&format!("{name}{COUNTS}"));
            let counts = counts.ok_or_else(|| error(format!("`{name}{COUNTS}` is missing")))?;
            let (mut sums, counts) = (numbers(tensor)?, numbers(counts)?);
            if counts.is_empty() || !sums.len().is_multiple_of(counts.len()) {
                let (sums, counts) = (sums.len(), counts.len());
                return Err(error(format!("`{name}`: {sums} sums do not go with {counts} counts")));
            }
            let columns = sums.len() / counts.len();
            for (sums, count) in sums.chunks_exact_mut(columns.max(1)).zip(counts) {
                // An expert that no row chose: all columns alike.
                sums.iter_mut().for_each(|sum| *sum = if count > 0.0 { *sum / count } else { 1.0 });
            }
            matrices.insert(name.to_string(), sums);
        }
        let dataset = metadata.strings(DATASETS)?.and_then(|all| all.get(0).map(str::to_string));
        let chunks = metadata.u32(CHUNK_COUNT)?.unwrap_or(0);
        drop(gguf);
        Ok(Importance { file, dataset, chunks, matrices, left_out: BTreeSet::new() })
    }

    /// The older format: little-endian counts, names and floats, one after the other.
    fn of_dat(file: String, bytes: &[u8]) -> Result<Self> {
        let mut left = bytes;
        let damaged =
            || Error::gguf(&file, "neither a GGUF file nor an importance matrix of the older format");
        let entries = take_u32(&mut left).filter(|&n| n > 0).ok_or_else(damaged)?;
        let mut matrices = BTreeMap::new();
        for _ in 0..entries {
            let (name, mut values, calls) = take_entry(&mut left).ok_or_else(damaged)?;
            if calls > 0 {
                values.iter_mut().for_each(|value| *value /= calls as f32);
            }
            matrices.insert(name, values);
        }
        // What follows may be missing.
        let chunks = take_u32(&mut left).unwrap_or(0);
        let dataset = take_str(&mut left).filter(|name| !name.is_empty());
        Ok(Importance { file, dataset, chunks, matrices, left_out: BTreeSet::new() })
    }

    /// Uses only matrices in whose names one of these texts is found, or all but them.
    pub fn choose(&mut self, names: &[String], found: bool) {
        let is_named = |matrix: &&String| names.iter().any(|name| matrix.contains(name));
        self.left_out.extend(self.matrices.keys().filter(|matrix| is_named(matrix) != found).cloned());
    }

    /// How many matrices are used.
    pub fn entries(&self) -> usize {
        self.matrices.len() - self.left_out.len()
    }

    /// By column of an expert's matrix, if it is there.
    pub fn of(&self, matrix: &str, columns: usize, expert: usize) -> Option<&[f32]> {
        let all = self.matrices.get(matrix).filter(|_| !self.left_out.contains(matrix))?;
        // One row for all experts is what files of matrices that were apart have.
        let row = if all.len() == columns { 0 } else { expert };
        all.get(row * columns..(row + 1) * columns)
    }

    /// Refuses what was made of another model: entries of another size, of layers that are not there, or for some layers
    /// only.
    pub fn check<'t>(&self, gguf: &Gguf, quantized: impl Iterator<Item = &'t TensorInfo>) -> Result<()> {
        let metadata = gguf.metadata();
        let arch = metadata.str("general.architecture")?.unwrap_or_default();
        let number = |key: &str| -> Result<u32> { Ok(metadata.u32(&format!("{arch}.{key}"))?.unwrap_or(0)) };
        let layers = number("block_count")?;
        // The layers of heads for further tokens come last, and no text goes through them.
        let run = layers.saturating_sub(number("nextn_predict_layers")?);
        let other = |what: String| {
            Err(self.error(format!("{what}; it was made of another model than {}", gguf.name())))
        };
        if let Some(name) =
            self.matrices.keys().find(|name| layer_of(name).is_some_and(|layer| layer >= layers))
        {
            return other(format!(
                "`{name}` is of a layer that a model of {} does not have",
                count(layers as usize, "layer")
            ));
        }
        let mut without: BTreeMap<u32, bool> = BTreeMap::new();
        for tensor in quantized {
            let entry = self.matrices.get(&tensor.name);
            let wanted = tensor.shape[0] * tensor.shape[2..].iter().product::<u64>();
            match entry.map(|entry| entry.len() as u64) {
                Some(found) if found != wanted && found != tensor.shape[0] => {
                    return other(format!("`{}` has {found} values, the matrix wants {wanted}", tensor.name));
                }
                _ => {}
            }
            if let Some(layer) = layer_of(&tensor.name).filter(|&layer| layer < run) {
                *without.entry(layer).or_insert(true) &= entry.is_none();
            }
        }
        match without.into_iter().find(|&(_, without)| without) {
            Some((layer, _)) => other(format!("no matrix of layer {layer} is in it")),
            None => Ok(()),
        }
    }

    /// The matrices of these that are not in it.
    pub fn missing<'t>(&self, tensors: impl Iterator<Item = &'t TensorInfo>) -> Vec<&'t str> {
        tensors.map(|tensor| tensor.name.as_str()).filter(|name| !self.matrices.contains_key(*name)).collect()
    }

    /// What a file says of the importance that it was quantized with.
    pub fn describe(&self) -> Vec<(&'static str, Value)> {
        let mut keys = vec![("quantize.imatrix.file", Value::from(self.file.as_str()))];
        keys.extend(self.dataset.as_deref().map(|dataset| ("quantize.imatrix.dataset", dataset.into())));
        keys.push(("quantize.imatrix.entries_count", (self.entries() as u32).into()));
        if self.chunks > 0 {
            keys.push(("quantize.imatrix.chunks_count", self.chunks.into()));
        }
        keys
    }

    fn error(&self, what: String) -> Error {
        Error::gguf(&self.file, what)
    }
}

fn take<'b>(left: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, rest) = left.split_at_checked(len)?;
    *left = rest;
    Some(taken)
}

fn take_u32(left: &mut &[u8]) -> Option<u32> {
    take(left, 4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

fn take_str(left: &mut &[u8]) -> Option<String> {
    let len = take_u32(left)?;
    String::from_utf8(take(left, len as usize)?.to_vec()).ok()
}

/// A matrix's name, its values, and by what these are to be divided.
fn take_entry(left: &mut &[u8]) -> Option<(String, Vec<f32>, u32)> {
    let name = take_str(left)?;
    let calls = take_u32(left)?;
    let len = take_u32(left).filter(|&len| len > 0)?;
    let bytes = take(left, (len as usize).checked_mul(4)?)?;
    let values =
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
    Some((name, values, calls))
}
