//! How much each column of a matrix matters: the mean square of what a model multiplies it with. llama.cpp calls that an
//! importance matrix.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    mix::layer_of,
    prune::Numbers,
    sums::{Entry, Format, Recorded},
};
use crate::{
    Error, Gguf, Result,
    gguf::{TensorInfo, Value},
    words::count,
};

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
        let Recorded { file, format, datasets, chunks, entries, .. } = Recorded::read(path)?;
        let means = |Entry { mut values, counts }: Entry| {
            let columns = values.len() / counts.len();
            for (values, count) in values.chunks_exact_mut(columns).zip(counts) {
                values.iter_mut().for_each(|value| match format {
                    _ if count > 0.0 => *value /= count,
                    // An expert that no row chose: all columns alike.
                    Format::Gguf => *value = 1.0,
                    Format::Dat => {}
                });
            }
            values
        };
        let matrices = entries.into_iter().map(|(name, entry)| (name, means(entry))).collect();
        let dataset = datasets.into_iter().next();
        Ok(Importance { file, dataset, chunks, matrices, left_out: BTreeSet::new() })
    }

    /// Of a model without some of its layers.
    pub fn renumber(&mut self, numbers: &Numbers) {
        let matrices = std::mem::take(&mut self.matrices);
        self.matrices =
            matrices.into_iter().filter_map(|(name, means)| Some((numbers.rename(&name)?, means))).collect();
        self.left_out = self.left_out.iter().filter_map(|name| numbers.rename(name)).collect();
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
