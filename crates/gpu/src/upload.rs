//! Weights on their way to the device: rows are split into streams on all threads, straight from the file's map into
//! staging memory, while the device copies what came before; the file's pages are given back behind it.

use std::{collections::VecDeque, ops::Range};

use rayon::prelude::*;

use super::{
    device::Gpu,
    formats::{Rate, Streams, split_row},
    pipelines::Mode,
    weights::{Joined, Matrix, MatrixPart, Region},
};
use crate::{Model, Result, model::WeightInfo, plan::WeightId};

/// Rows split into streams by one task; so many begin with whole words in every stream.
const TASK_ROWS: usize = 64;

/// The file's bytes that are split at once.
const PIECE: usize = 8 << 20;

/// The most staging memory at any time.
const MOST_STAGED: usize = 64 << 20;

/// Copies are submitted when so much is staged.
const SUBMITTED: usize = 16 << 20;

/// What lies in staging memory: what is being filled, and what the device has been told to copy.
#[derive(Debug)]
struct Staged<T> {
    open: usize,
    /// Oldest first.
    sent: VecDeque<(T, usize)>,
    most: usize,
}

impl<T> Staged<T> {
    fn new() -> Self {
        Staged { open: 0, sent: VecDeque::new(), most: 0 }
    }

    fn bytes(&self) -> usize {
        self.open + self.sent.iter().map(|(_, bytes)| bytes).sum::<usize>()
    }

    /// Waits for the oldest copies until so many bytes are free. What is larger than all staging memory is
    /// there alone.
    fn add(
        &mut self,
        bytes: usize,
        mut send: impl FnMut() -> T,
        mut wait: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        if self.open >= SUBMITTED {
            self.sent.push_back((send(), std::mem::take(&mut self.open)));
        }
        while self.bytes() > 0 && self.bytes() + bytes > MOST_STAGED {
            if self.sent.is_empty() {
                self.sent.push_back((send(), std::mem::take(&mut self.open)));
            }
            let (oldest, _) = self.sent.pop_front().expect("one has just been sent");
            wait(oldest)?;
        }
        self.open += bytes;
        self.most = self.most.max(self.bytes());
        Ok(())
    }
}

pub struct Upload<'a> {
    gpu: &'a Gpu,
    buffers: &'a [wgpu::Buffer],
    staged: Staged<wgpu::SubmissionIndex>,
    done: u64,
    total: u64,
    progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl<'a> Upload<'a> {
    pub fn new(
        gpu: &'a Gpu,
        buffers: &'a [wgpu::Buffer],
        total: u64,
        progress: &'a (dyn Fn(u64, u64) + Sync),
    ) -> Self {
        Upload { gpu, buffers, staged: Staged::new(), done: 0, total, progress }
    }

    fn stage(&mut self, bytes: usize) -> Result<()> {
        let gpu = self.gpu;
        self.staged.add(bytes, || gpu.submit(None), |sent| gpu.wait_for(sent))?;
        self.done += bytes as u64;
        (self.progress)(self.done, self.total);
        Ok(())
    }

    pub fn numbers(&mut self, region: &Region, numbers: &[f32]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(numbers);
        self.stage(bytes.len())?;
        self.gpu.queue.write_buffer(&self.buffers[region.buffer], region.offset, bytes);
        Ok(())
    }

    /// The rows of a part, a few MiB at a time.
    pub fn part(&mut self, model: &Model, joined: &Joined, matrix: &Matrix, part: &MatrixPart) -> Result<()> {
        let row_bytes = model.weight(joined.weights[0]).row_bytes().max(1);
        let at_once = (PIECE / row_bytes).next_multiple_of(TASK_ROWS).max(TASK_ROWS);
        for from in (0..part.rows).step_by(at_once) {
            let rows = from..part.rows.min(from + at_once);
            self.rows(model, joined, matrix, part, rows.clone())?;
            for (id, rows) in
                source_rows(model, joined, part.first_row + rows.start..part.first_row + rows.end)
            {
                let weight = model.weight(id);
                model.gguf.release(&weight.tensor, weight.range_of(rows));
            }
        }
        Ok(())
    }

    fn rows(
        &mut self,
        model: &Model,
        joined: &Joined,
        matrix: &Matrix,
        part: &MatrixPart,
        rows: Range<usize>,
    ) -> Result<()> {
        let rates = matrix.format.streams();
        let sizes = rates.map(|rate| rate.bytes_for(rows.len() * matrix.blocks));
        self.stage(sizes.iter().sum())?;
        // Of each stream that there is: staging memory that is copied to its place when the view goes.
        let mut views = Vec::new();
        for (i, region) in part.streams.iter().enumerate() {
            let Some(size) = wgpu::BufferSize::new(sizes[i] as u64) else { continue };
            let at = region.offset + rates[i].bytes_for(rows.start * matrix.blocks) as u64;
            let view = self.gpu.queue.write_buffer_with(&self.buffers[region.buffer], at, size);
            // No view: the device has failed, and its next check returns the error.
            let Some(view) = view else { return self.gpu.check() };
            views.push((i, rates[i], view));
        }
        let mut tasks: Vec<Task> =
            rows.clone().step_by(TASK_ROWS).map(|first| Task { first, to: Vec::new() }).collect();
        for (stream, rate, view) in &mut views {
            deal(view.slice(..), *rate, matrix.blocks, *stream, &mut tasks);
        }
        tasks.into_par_iter().for_each(|task| {
            let mut streams = Streams::default();
            for row in task.first..rows.end.min(task.first + TASK_ROWS) {
                let (weight, bytes) = source_row(model, joined, part.first_row + row);
                split_row(weight.ty(), weight.factor, bytes, &mut streams);
            }
            let streams = streams.kept_by(matrix.format).finish();
            for (stream, mut place) in task.to {
                place.0.copy_from_slice(&streams[stream]);
            }
        });
        Ok(())
    }

    /// Waits for all of it.
    pub fn finish(self) -> Result<()> {
        self.gpu.submit(None);
        self.gpu.wait()
    }
}

/// Rows for one thread, and where each of their streams goes.
struct Task<'a> {
    first: usize,
    to: Vec<(usize, Place<'a>)>,
}

/// Where bytes of one stream go.
struct Place<'a>(wgpu::WriteOnly<'a, [u8]>);

// SAFETY: it is the only way to these bytes, like `&mut [u8]`; wgpu says the same of sized types and leaves slices out.
unsafe impl Send for Place<'_> {}

/// Fills staging memory on all threads with pieces, one behind the other.
pub fn copy<'b>(to: wgpu::WriteOnly<[u8]>, pieces: impl Iterator<Item = &'b [u8]>) {
    const AT_ONCE: usize = 1 << 20;
    let mut rest = Some(to);
    let mut places = Vec::new();
    for bytes in pieces.flat_map(|piece| piece.chunks(AT_ONCE)) {
        let (mine, others) = rest.take().expect("as long as the pieces").split_at(bytes.len());
        places.push((Place(mine), bytes));
        rest = Some(others);
    }
    places.into_par_iter().for_each(|(mut place, bytes)| place.0.copy_from_slice(bytes));
}

/// Gives each task its part of a stream.
fn deal<'a>(
    whole: wgpu::WriteOnly<'a, [u8]>,
    rate: Rate,
    blocks: usize,
    stream: usize,
    tasks: &mut [Task<'a>],
) {
    let of_task = rate.bytes_for(TASK_ROWS * blocks);
    let mut rest = Some(whole);
    for task in tasks {
        let left = rest.take().expect("one part for each task");
        let len = left.len().min(of_task);
        let (mine, others) = left.split_at(len);
        task.to.push((stream, Place(mine)));
        rest = Some(others);
    }
}

/// Which rows of which weight become these rows of the joined matrix.
fn source_rows(model: &Model, joined: &Joined, rows: Range<usize>) -> Vec<(WeightId, Range<usize>)> {
    let (in_turn, of_each) = in_turn(joined);
    let mut first = 0;
    let mut out = Vec::new();
    for ids in of_each {
        let here = first..first + in_turn * model.weight(ids[0]).rows;
        let (start, end) = (rows.start.max(here.start), rows.end.min(here.end));
        if start < end {
            let rows = (start - first) / in_turn..(end - first).div_ceil(in_turn);
            out.extend(ids.iter().map(|&id| (id, rows.clone())));
        }
        first = here.end;
    }
    out
}

/// How many matrices' rows go in turn; and of each such group the matrices.
fn in_turn(joined: &Joined) -> (usize, Vec<Vec<WeightId>>) {
    match joined.mode {
        Mode::Gate(_) => {
            let (gates, ups) = joined.weights.split_at(joined.weights.len() / 2);
            (2, gates.iter().zip(ups).map(|(&gate, &up)| vec![gate, up]).collect())
        }
        Mode::Store | Mode::Add | Mode::Activate(_) => {
            (1, joined.weights.iter().map(|&id| vec![id]).collect())
        }
    }
}

/// The file's bytes of a row of the joined matrix.
fn source_row<'a>(model: &'a Model, joined: &Joined, row: usize) -> (&'a WeightInfo, &'a [u8]) {
    let n = joined.weights.len();
    let rows = model.weight(joined.weights[0]).rows;
    let (id, row) = match joined.mode {
        Mode::Gate(_) => (joined.weights[row / (2 * rows) + row % 2 * (n / 2)], row / 2 % rows),
        Mode::Store | Mode::Add | Mode::Activate(_) if joined.apart.is_some() => {
            (joined.weights[row / rows], row % rows)
        }
        Mode::Store | Mode::Add | Mode::Activate(_) => {
            let (id, rows) = source_rows(model, joined, row..row + 1).pop().expect("a row of the matrix");
            (id, rows.start)
        }
    };
    let weight = model.weight(id);
    let bytes = weight.row_bytes();
    (weight, &model.weight_bytes(id)[row * bytes..][..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the sizes, no more is ever staged than was promised, everything is sent, and the oldest first.
    #[test]
    fn staging_memory_is_bounded() {
        for sizes in [vec![8 << 20; 100], vec![1; 1000], vec![15 << 20, 40 << 20, 3], vec![64 << 20; 5]] {
            let mut staged = Staged::new();
            let mut next = 0;
            let mut waited = Vec::new();
            for &bytes in &sizes {
                let send = || {
                    next += 1;
                    next
                };
                staged
                    .add(bytes, send, |sent| {
                        waited.push(sent);
                        Ok(())
                    })
                    .unwrap();
                assert!(staged.bytes() <= MOST_STAGED);
            }
            let whole: usize = sizes.iter().sum();
            assert!(
                staged.most <= MOST_STAGED && staged.most >= whole.min(MOST_STAGED / 2),
                "{}",
                staged.most
            );
            assert!(waited.is_sorted() && waited.iter().zip(1..).all(|(&a, b)| a == b));
        }
    }

    /// A single piece of more than all staging memory is there alone.
    #[test]
    fn what_is_too_large_waits_for_everything_else() {
        let mut staged = Staged::new();
        let mut waited = 0;
        for bytes in [1 << 20, MOST_STAGED + 4] {
            staged
                .add(
                    bytes,
                    || (),
                    |()| {
                        waited += 1;
                        Ok(())
                    },
                )
                .unwrap();
        }
        assert_eq!((waited, staged.bytes()), (1, MOST_STAGED + 4));
    }
}
