//! What an importance matrix is made of: for each matrix of a model the squares of what it was multiplied with, added up by
//! column, and how many rows that were. And files of it in llama.cpp's two formats, of which the older one has means.

use std::{
    collections::{BTreeMap, btree_map::Entry as Place},
    io::Write,
    path::Path,
};

use crate::{
    Error, Gguf, Result,
    files::{read_limited, write_large},
    gguf::{Array, TensorInfo, Value, Writer},
    quant::{GgmlType, dequantize},
};

/// Bytes of a file that is read.
const MOST_BYTES: u64 = 16 << 30;
/// What is behind a matrix's name in those of its tensors.
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
const DATASETS: &str = "imatrix.datasets";
const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Gguf,
    /// A mean and a number of chunks for each matrix; that of an expert that no row chose is 1.
    Dat,
}

/// A file as it is.
pub struct Recorded {
    pub file: String,
    pub format: Format,
    /// The texts that it was made of.
    pub datasets: Vec<String>,
    pub chunks: u32,
    /// Tokens of a chunk, where the file says it.
    pub chunk: Option<u32>,
    pub entries: BTreeMap<String, Entry>,
}

/// Of the matrices of a tensor, one after the other.
pub struct Entry {
    /// Sums, or in the older format means times the count.
    pub values: Vec<f32>,
    /// For each matrix, or one for all: rows, or in the older format chunks.
    pub counts: Vec<f32>,
}

impl Recorded {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = read_limited(path, MOST_BYTES)?;
        let name = path.display().to_string();
        let read =
            if bytes.starts_with(b"GGUF") { Self::of_gguf(name, bytes) } else { Self::of_dat(name, &bytes) }?;
        let error = |what: String| Err(Error::gguf(&read.file, what));
        for (matrix, Entry { values, counts }) in &read.entries {
            if let Some(x) = values.iter().find(|x| !x.is_finite() || **x < 0.0) {
                return error(format!("`{matrix}`: a sum of squares of {x}"));
            }
            if let Some(x) = counts.iter().find(|x| !x.is_finite() || **x < 0.0 || x.fract() != 0.0) {
                return error(format!("`{matrix}`: a count of {x}"));
            }
        }
        if read.entries.is_empty() { error("no matrix is in it".into()) } else { Ok(read) }
    }

    fn of_gguf(file: String, bytes: Vec<u8>) -> Result<Self> {
        let gguf = Gguf::from_bytes(&file, bytes)?;
        let metadata = gguf.metadata();
        let error = |what: String| Error::gguf(&file, what);
        let Some(chunks) = metadata.u32(CHUNK_COUNT)? else {
            return Err(error(format!("no `{CHUNK_COUNT}` in the metadata: it is no importance matrix")));
        };
        let numbers = |tensor: &TensorInfo| {
            if tensor.ty != GgmlType::F32 {
                return Err(error(format!("`{}` is {}, wanted F32", tensor.name, tensor.ty)));
            }
            let mut numbers = vec![0.0; tensor.elements() as usize];
            dequantize(tensor.ty, gguf.bytes(tensor), &mut numbers);
            Ok(numbers)
        };
        let mut entries = BTreeMap::new();
        for tensor in gguf.tensors() {
            let Some(name) = tensor.name.strip_suffix(SUMS) else { continue };
            let counts = gguf.tensor(&format!("{name}{COUNTS}"));
            let counts = counts.ok_or_else(|| error(format!("`{name}{COUNTS}` is missing")))?;
            let (values, counts) = (numbers(tensor)?, numbers(counts)?);
            if values.is_empty() || counts.is_empty() || !values.len().is_multiple_of(counts.len()) {
                let (sums, counts) = (values.len(), counts.len());
                return Err(error(format!("`{name}`: {sums} sums do not go with {counts} counts")));
            }
            entries.insert(name.to_string(), Entry { values, counts });
        }
        let datasets = metadata.strings(DATASETS)?.into_iter().flat_map(|all| all.iter().map(str::to_string));
        let (datasets, chunk) = (datasets.collect(), metadata.u32(CHUNK_SIZE)?);
        drop(gguf);
        Ok(Recorded { file, format: Format::Gguf, datasets, chunks, chunk, entries })
    }

    /// Little-endian counts, names and floats, one after the other.
    fn of_dat(file: String, bytes: &[u8]) -> Result<Self> {
        let mut left = bytes;
        let damaged =
            || Error::gguf(&file, "neither a GGUF file nor an importance matrix of the older format");
        let count = take_u32(&mut left).filter(|&n| n > 0).ok_or_else(damaged)?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let (name, entry) = take_entry(&mut left).ok_or_else(damaged)?;
            entries.insert(name, entry);
        }
        // What follows may be missing.
        let chunks = take_u32(&mut left).unwrap_or(0);
        let datasets = take_str(&mut left).filter(|name| !name.is_empty()).into_iter().collect();
        Ok(Recorded { file, format: Format::Dat, datasets, chunks, chunk: None, entries })
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

fn take_entry(left: &mut &[u8]) -> Option<(String, Entry)> {
    let name = take_str(left)?;
    let calls = take_u32(left)?;
    let len = take_u32(left).filter(|&len| len > 0)?;
    let bytes = take(left, (len as usize).checked_mul(4)?)?;
    let values =
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
    Some((name, Entry { values, counts: vec![calls as f32] }))
}

/// What has been counted, in files and by running a model.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub tensors: BTreeMap<String, Sum>,
    /// The texts, in the order in which they were gone through.
    pub datasets: Vec<String>,
    /// Tokens of a chunk.
    pub chunk: usize,
}

/// Of a tensor's matrices, one after the other.
#[derive(Clone, Debug)]
pub struct Sum {
    pub squares: Vec<f64>,
    /// For each matrix, or one for all.
    pub counts: Vec<u64>,
}

impl Sum {
    /// A count for each of so many matrices, where there is one for all.
    pub fn count_each(&mut self, matrices: usize) {
        if let [all] = self.counts[..] {
            self.counts = vec![all; matrices];
        }
    }

    fn most(&self) -> u64 {
        self.counts.iter().copied().max().unwrap_or(0)
    }
}

impl Sums {
    /// Those of several files, added up. The older format tells chunks, not rows, so that of `chunk` tokens are meant.
    pub fn of(files: Vec<Recorded>, chunk: usize) -> Result<Self> {
        let mut sums = Sums { chunk, ..Sums::default() };
        for Recorded { file, format, datasets, entries, .. } in files {
            let times = if format == Format::Dat { chunk } else { 1 };
            for (name, Entry { values, counts }) in entries {
                let new = Sum {
                    squares: values.iter().map(|&x| f64::from(x) * times as f64).collect(),
                    counts: counts.iter().map(|&n| n as u64 * times as u64).collect(),
                };
                let sizes = |sum: &Sum| (sum.squares.len(), sum.counts.len());
                let found = sizes(&new);
                match sums.tensors.entry(name) {
                    Place::Vacant(place) => _ = place.insert(new),
                    Place::Occupied(mut place) => {
                        let wanted = sizes(place.get());
                        if !add(place.get_mut(), new) {
                            return Err(Error::gguf(
                                &file,
                                format!(
                                    "`{}` has {} sums and {} counts, in files before it {} and {}: they are of different \
                                     models",
                                    place.key(),
                                    found.0,
                                    found.1,
                                    wanted.0,
                                    wanted.1
                                ),
                            ));
                        }
                    }
                }
            }
            sums.datasets.extend(datasets);
        }
        Ok(sums)
    }

    /// How many chunks the matrix with the most rows has seen.
    pub fn chunks(&self) -> usize {
        let most = self.tensors.values().map(Sum::most).max().unwrap_or(0);
        most as usize / self.chunk.max(1)
    }

    /// Of how many tensors some matrix was never multiplied with, as experts that no row chose.
    pub fn partial(&self) -> usize {
        self.tensors.values().filter(|sum| sum.counts.contains(&0)).count()
    }

    pub fn write(&self, path: &Path, force: bool, format: Format) -> Result<()> {
        for (name, sum) in &self.tensors {
            if sum.squares.iter().any(|&square| !(square as f32).is_finite()) {
                let what = "the squares of what it is multiplied with do not add up to a finite number";
                return Err(Error::Input(format!("{name}: {what}")));
            }
        }
        match format {
            Format::Gguf => self.write_gguf(path, force),
            Format::Dat => {
                let bytes = self.as_dat();
                write_large(path, force, bytes.len() as u64, |mut file| {
                    file.write_all(&bytes).map_err(|e| Error::io(path, e))
                })
            }
        }
    }

    fn write_gguf(&self, path: &Path, force: bool) -> Result<()> {
        let mut writer = Writer::new();
        writer
            .set("general.type", "imatrix")
            .set(DATASETS, Value::Array(Array::String(self.datasets.iter().collect())))
            .set(CHUNK_COUNT, self.chunks() as u32)
            .set(CHUNK_SIZE, self.chunk as u32);
        let mut data: Vec<Vec<f32>> = Vec::new();
        for (name, Sum { squares, counts }) in &self.tensors {
            let matrices = counts.len() as u64;
            let columns = squares.len() as u64 / matrices;
            writer.tensor(&format!("{name}{SUMS}"), GgmlType::F32, &[columns, matrices]);
            writer.tensor(&format!("{name}{COUNTS}"), GgmlType::F32, &[1, matrices]);
            data.push(squares.iter().map(|&square| square as f32).collect());
            data.push(counts.iter().map(|&count| count as f32).collect());
        }
        let bytes = data.iter().map(|numbers| 4 * numbers.len() as u64).sum();
        write_large(path, force, bytes, |file| {
            writer.write(file, |i, sink| {
                sink.write(&data[i].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
            })
        })
    }

    /// Tensors without any count have no place there. Of several texts the last is named.
    fn as_dat(&self) -> Vec<u8> {
        let counted = || self.tensors.iter().filter(|(_, sum)| sum.most() > 0);
        let mut out = (counted().count() as u32).to_le_bytes().to_vec();
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.bytes());
        };
        for (name, sum) in counted() {
            text(&mut out, name);
            let calls = sum.most().div_ceil(self.chunk.max(1) as u64) as u32;
            out.extend(calls.to_le_bytes());
            out.extend((sum.squares.len() as u32).to_le_bytes());
            let columns = sum.squares.len() / sum.counts.len();
            for (squares, &count) in sum.squares.chunks_exact(columns).zip(&sum.counts) {
                let mean = |square: f64| if count == 0 { 1.0 } else { square as f32 / count as f32 };
                out.extend(squares.iter().flat_map(|&square| (mean(square) * calls as f32).to_le_bytes()));
            }
        }
        out.extend((self.chunks() as u32).to_le_bytes());
        text(&mut out, self.datasets.last().map_or("", String::as_str));
        out
    }
}

/// Whether the two are of the same size, and so are one now. A count for all matrices is one for each.
fn add(all: &mut Sum, mut new: Sum) -> bool {
    let matrices = all.counts.len().max(new.counts.len());
    all.count_each(matrices);
    new.count_each(matrices);
    let fits = all.squares.len() == new.squares.len() && all.counts.len() == new.counts.len();
    if fits {
        all.squares.iter_mut().zip(new.squares).for_each(|(sum, x)| *sum += x);
        all.counts.iter_mut().zip(new.counts).for_each(|(sum, n)| *sum += n);
    }
    fits
}
