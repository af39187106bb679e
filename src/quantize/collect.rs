//! Makes an importance matrix: runs a model over a text and adds up the squares of what each matrix is multiplied with.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::Path,
    sync::{Arc, Mutex},
};

use super::importance::{CHUNK_COUNT, CHUNK_SIZE, COUNTS, DATASETS, SUMS};
use crate::{
    Batch, Context, Error, Model, Result,
    backend::watch::Watch,
    batch::Row,
    files::write_large,
    gguf::{Array, Value, Writer},
    plan::WeightId,
    quant::GgmlType,
};

/// Logits kept at once, in bytes: nobody looks at them, but without them the last layer would leave rows out.
const LOGITS_BYTES: usize = 64 << 20;

/// How a text is gone through.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    /// Tokens in a chunk.
    pub len: usize,
    /// Put in place of each chunk's first token.
    pub bos: Option<u32>,
    pub count: usize,
}

/// The sums so far.
pub struct Collector {
    model: Arc<Model>,
    /// The head's matrix counts too.
    output: bool,
    tensors: Mutex<BTreeMap<String, Sums>>,
}

/// Of a tensor's matrices, one after the other.
#[derive(Clone, Debug)]
struct Sums {
    columns: usize,
    squares: Vec<f64>,
    counts: Vec<u64>,
}

impl Collector {
    pub fn new(model: Arc<Model>, output: bool) -> Arc<Self> {
        Arc::new(Collector { model, output, tensors: Mutex::default() })
    }

    /// Goes through the chunks, from the first; `on_chunk` hears how many are done and may end the run early.
    pub fn run(
        self: &Arc<Self>,
        context: &mut Context,
        tokens: &[u32],
        chunks: Chunks,
        mut on_chunk: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<usize> {
        context.watch(self.clone())?;
        let at_once = (LOGITS_BYTES / (4 * self.model.n_vocab())).max(1);
        for i in 0..chunks.count {
            context.remove(0);
            let mut chunk = tokens[i * chunks.len..][..chunks.len].to_vec();
            chunk[0] = chunks.bos.unwrap_or(chunk[0]);
            for (piece, tokens) in chunk.chunks(at_once).enumerate() {
                let row = |(n, &token): (usize, &u32)| Row {
                    token,
                    pos: (piece * at_once + n) as u32,
                    seq: 0,
                    logits: true,
                };
                let rows = tokens.iter().enumerate().map(row).collect();
                context.decode(&Batch { rows, ..Batch::new() })?;
            }
            if on_chunk(i + 1).is_break() {
                return Ok(i + 1);
            }
        }
        Ok(chunks.count)
    }

    /// How many tensors were multiplied with, and of how many of them some matrix was not, as experts that no row chose.
    pub fn found(&self) -> (usize, usize) {
        let tensors = self.tensors.lock().expect("nobody panics with it");
        (tensors.len(), tensors.values().filter(|sums| sums.counts.contains(&0)).count())
    }

    /// In llama.cpp's format of GGUF. `dataset` names the text, and `done` chunks of `chunk` tokens were gone through.
    pub fn write(
        &self,
        path: &Path,
        force: bool,
        dataset: &str,
        (done, chunk): (usize, usize),
    ) -> Result<()> {
        let tensors = self.tensors.lock().expect("nobody panics with it");
        for (name, sums) in &*tensors {
            if sums.squares.iter().any(|square| !(*square as f32).is_finite()) {
                let what = format!("the rows that {name} is multiplied with are no finite numbers");
                return Err(Error::model(self.model.gguf.name(), what));
            }
        }
        let mut writer = Writer::new();
        writer
            .set("general.type", "imatrix")
            .set(DATASETS, Value::Array(Array::String(std::iter::once(dataset).collect())))
            .set(CHUNK_COUNT, done as u32)
            .set(CHUNK_SIZE, chunk as u32);
        let mut data: Vec<Vec<f32>> = Vec::new();
        for (name, sums) in &*tensors {
            let matrices = sums.counts.len() as u64;
            writer.tensor(&format!("{name}{SUMS}"), GgmlType::F32, &[sums.columns as u64, matrices]);
            writer.tensor(&format!("{name}{COUNTS}"), GgmlType::F32, &[1, matrices]);
            data.push(sums.squares.iter().map(|&square| square as f32).collect());
            data.push(sums.counts.iter().map(|&count| count as f32).collect());
        }
        let bytes = data.iter().map(|numbers| 4 * numbers.len() as u64).sum();
        write_large(path, force, bytes, |file| {
            writer.write(file, |i, sink| {
                sink.write(&data[i].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
            })
        })
    }
}

impl Watch for Collector {
    fn product(&self, matrix: WeightId, rows: &mut dyn Iterator<Item = &[f32]>) {
        let weight = self.model.weight(matrix);
        let (name, matrices) = (&weight.tensor.name, weight.tensor.shape.iter().skip(2).product::<u64>());
        // Of a tensor that is several matrices below each other, the first stands for all: they share their rows.
        let size = weight.tensor.bytes / matrices;
        if !weight.begin.is_multiple_of(size)
            || !(name.starts_with("blk.") || self.output && name == "output.weight")
        {
            return;
        }
        let (index, columns) = ((weight.begin / size) as usize, weight.cols);
        let mut tensors = self.tensors.lock().expect("nobody panics with it");
        let sums = tensors.entry(name.clone()).or_insert_with(|| Sums {
            columns,
            squares: vec![0.0; columns * matrices as usize],
            counts: vec![0; matrices as usize],
        });
        let squares = &mut sums.squares[index * columns..(index + 1) * columns];
        for row in rows {
            squares.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
            sums.counts[index] += 1;
        }
    }
}
