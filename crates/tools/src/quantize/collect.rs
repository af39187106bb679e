//! Makes an importance matrix: runs a model over a text and adds up the squares of what each matrix is multiplied with.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use super::sums::{Sum, Sums};
use crate::{
    Batch, Context, Error, Model, Result, backend::watch::Watch, batch::Row, plan::WeightId, quoted::Quoted,
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
    sums: Mutex<Sums>,
}

impl Collector {
    /// Goes on from sums that are there; those of another model are an error.
    pub fn new(model: Arc<Model>, output: bool, mut begun: Sums) -> Result<Arc<Self>> {
        for (name, sum) in &mut begun.tensors {
            let other = |what: String| {
                let what =
                    format!("importance of {} {what}: it was counted with another model", Quoted(name));
                Err(Error::model(model.gguf.name(), what))
            };
            let Some(tensor) = model.gguf.tensor(name) else {
                return other("is of no tensor here".into());
            };
            let matrices = tensor.shape.iter().skip(2).product::<u64>();
            let (found, wanted) = (sum.squares.len() as u64, tensor.shape[0] * matrices);
            if found != wanted || ![1, matrices].contains(&(sum.counts.len() as u64)) {
                return other(format!(
                    "has {found} sums of {} matrices, wanted {wanted} of {matrices}",
                    sum.counts.len()
                ));
            }
            sum.count_each(matrices as usize);
        }
        Ok(Arc::new(Collector { model, output, sums: Mutex::new(begun) }))
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

    pub fn sums(&self) -> Sums {
        self.sums.lock().expect("nobody panics with it").clone()
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
        let mut sums = self.sums.lock().expect("nobody panics with it");
        let sum = sums.tensors.entry(name.clone()).or_insert_with(|| Sum {
            squares: vec![0.0; columns * matrices as usize],
            counts: vec![0; matrices as usize],
        });
        let squares = &mut sum.squares[index * columns..(index + 1) * columns];
        for row in rows {
            squares.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
            sum.counts[index] += 1;
        }
    }
}
