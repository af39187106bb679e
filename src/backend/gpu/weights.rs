//! The weights of the sublayers that live on the device: which matrices are joined so that one kernel reads them,
//! where everything lies, and how it gets there.

use std::collections::HashMap;

use super::{
    device::{ARENA_BYTES, Gpu},
    formats::{BLOCK, Format},
    pipelines::Mode,
    upload::Upload,
};
use crate::{
    Model, Result,
    plan::{Buf, Op, UnitSet, WeightId},
};

/// What every binding's offset is a multiple of.
const ALIGN: u64 = 256;

/// Rows in a part of a matrix are a multiple of this, so that a part begins with whole scales and whole pairs.
const PART_ROWS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Index of the arena's buffer.
    pub buffer: usize,
    pub offset: u64,
    pub bytes: u64,
}

/// Matrices of one format that one kernel reads: their rows one below the other, or row by row in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    pub weights: Vec<WeightId>,
    pub biases: Vec<Option<WeightId>>,
    pub format: Format,
    pub mode: Mode,
    pub src: Buf,
    pub dst: Buf,
    /// Operations of the plan that this one does.
    pub covers: usize,
}

/// What the operations of one sublayer become.
pub fn join(model: &Model, ops: &[&Op]) -> Vec<Joined> {
    let format = |id: WeightId| Format::of(model.weight(id).ty()).expect("checked when the model was loaded");
    let mut out: Vec<Joined> = Vec::new();
    let mut last_src = None;
    for &op in ops {
        let this_src = match *op {
            Op::MatMul { weight, bias, src, dst, add } => {
                match out.last_mut() {
                    // Queries, keys and values lie side by side in one buffer.
                    Some(group) if last_src == Some(src) && !add && group.format == format(weight) => {
                        group.weights.push(weight);
                        group.biases.push(bias);
                        group.covers += 1;
                    }
                    _ => out.push(Joined {
                        weights: vec![weight],
                        biases: vec![bias],
                        format: format(weight),
                        mode: if add { Mode::Add } else { Mode::Store },
                        src,
                        dst,
                        covers: 1,
                    }),
                }
                (!add).then_some(src)
            }
            Op::Gate { gate, up, .. } => {
                let gate = gate.weight;
                let up = up.expect("as in every uniform plan").weight;
                let single = |weight| Joined {
                    weights: vec![weight],
                    biases: vec![None],
                    format: format(weight),
                    mode: Mode::Store,
                    src: Buf::H,
                    dst: Buf::G,
                    covers: 1,
                };
                if format(gate) == format(up) {
                    out.push(Joined {
                        weights: vec![gate, up],
                        biases: vec![None, None],
                        mode: Mode::Gate,
                        ..single(gate)
                    });
                } else {
                    out.extend([single(gate), single(up)]);
                }
                None
            }
            Op::Head { weight, .. } => {
                out.push(Joined {
                    weights: vec![weight],
                    biases: vec![None],
                    format: format(weight),
                    mode: Mode::Store,
                    src: Buf::H,
                    dst: Buf::H,
                    covers: 1,
                });
                None
            }
            Op::Embed { .. } | Op::Norm { .. } | Op::Store(_) | Op::Attend(_) => None,
            _ => unreachable!("not in a uniform plan"),
        };
        last_src = this_src;
    }
    out
}

/// Part of a matrix: as many rows as a binding takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixPart {
    pub first_row: usize,
    pub rows: usize,
    /// High plane, low plane, scales; an empty one is never read.
    pub streams: [Region; 3],
}

#[derive(Clone, Debug)]
pub struct Matrix {
    pub format: Format,
    pub rows: usize,
    /// Blocks of 32 in a row.
    pub blocks: usize,
    pub parts: Vec<MatrixPart>,
}

impl Matrix {
    pub fn bytes(&self) -> u64 {
        self.parts.iter().flat_map(|p| p.streams).map(|s| s.bytes).sum()
    }

    /// What a coarse product leaves out.
    pub fn low_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.streams[1].bytes).sum()
    }
}

/// Deals out places in buffers of a limited size, in order.
#[derive(Debug, Default)]
pub struct Packer {
    /// Sizes of the buffers so far.
    pub buffers: Vec<u64>,
}

impl Packer {
    /// Places for pieces that must lie in one buffer.
    fn place<const N: usize>(&mut self, bytes: [u64; N], arena: u64) -> [Region; N] {
        let whole: u64 = bytes.iter().map(|b| b.next_multiple_of(ALIGN)).sum();
        if self.buffers.last().is_none_or(|used| used + whole > arena) {
            self.buffers.push(0);
        }
        let buffer = self.buffers.len() - 1;
        bytes.map(|bytes| {
            let offset = self.buffers[buffer];
            self.buffers[buffer] += bytes.next_multiple_of(ALIGN);
            Region { buffer, offset, bytes }
        })
    }
}

/// Where a matrix goes: parts of at most `limit` bytes.
fn place_matrix(packer: &mut Packer, format: Format, rows: usize, blocks: usize, limit: u64) -> Matrix {
    let row_bytes = (format.bytes(PART_ROWS * blocks) as u64).div_ceil(PART_ROWS as u64);
    let most_rows = (limit.saturating_sub(4 * ALIGN) / row_bytes) as usize / PART_ROWS * PART_ROWS;
    let most_rows = most_rows.max(PART_ROWS);
    let mut parts = Vec::new();
    for first_row in (0..rows).step_by(most_rows) {
        let part_rows = most_rows.min(rows - first_row);
        let bytes = format.streams().map(|rate| rate.bytes_for(part_rows * blocks) as u64);
        parts.push(MatrixPart {
            first_row,
            rows: part_rows,
            streams: packer.place(bytes, ARENA_BYTES.min(limit)),
        });
    }
    Matrix { format, rows, blocks, parts }
}

/// All weights on the device.
pub struct Weights {
    buffers: Vec<wgpu::Buffer>,
    /// By their first weight.
    pub matrices: HashMap<WeightId, Matrix>,
    /// By their first weight: the biases of joined matrices.
    pub biases: HashMap<WeightId, Region>,
    pub vectors: HashMap<WeightId, Region>,
    /// Something to bind where nothing is read.
    pub nothing: Region,
}

impl Weights {
    pub fn load(
        gpu: &Gpu,
        model: &Model,
        held: &UnitSet,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self> {
        let limit = gpu.binding_bytes();
        let arena = ARENA_BYTES.min(limit);
        let mut packer = Packer::default();
        let [nothing] = packer.place([256], arena);
        let mut weights = Weights {
            buffers: Vec::new(),
            matrices: HashMap::new(),
            biases: HashMap::new(),
            vectors: HashMap::new(),
            nothing,
        };
        let mut todo = Vec::new();
        for ops in &held.ops(&model.plan) {
            for id in ops.iter().flat_map(|op| model.plan.operands(op).norms()) {
                let bytes = 4 * model.weight(id).cols.next_multiple_of(BLOCK) as u64;
                weights.vectors.entry(id).or_insert_with(|| packer.place([bytes], arena)[0]);
            }
            for joined in join(model, ops).into_iter().chain(table(model, ops)) {
                let first = joined.weights[0];
                if weights.matrices.contains_key(&first) {
                    continue;
                }
                let rows = joined.weights.iter().map(|&id| model.weight(id).rows).sum();
                let blocks = model.weight(first).cols.div_ceil(BLOCK);
                let matrix = place_matrix(&mut packer, joined.format, rows, blocks, limit);
                weights.matrices.insert(first, matrix);
                if joined.biases.iter().any(Option::is_some) {
                    weights.biases.insert(first, packer.place([4 * rows as u64], arena)[0]);
                }
                todo.push(joined);
            }
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        for &bytes in &packer.buffers {
            weights.buffers.push(gpu.buffer("weights", bytes, usage)?);
        }
        let total = packer.buffers.iter().sum();
        let mut upload = Upload::new(gpu, &weights.buffers, total, progress);
        for (&id, region) in &weights.vectors {
            let mut numbers = model.vector(id);
            numbers.resize(region.bytes as usize / 4, 0.0);
            upload.numbers(region, &numbers)?;
        }
        for joined in &todo {
            let matrix = &weights.matrices[&joined.weights[0]];
            for part in &matrix.parts {
                upload.part(model, joined, matrix, part)?;
            }
            if let Some(region) = weights.biases.get(&joined.weights[0]) {
                let numbers: Vec<f32> = std::iter::zip(&joined.weights, &joined.biases)
                    .flat_map(|(&id, bias)| match bias {
                        Some(bias) => model.vector(*bias),
                        None => vec![0.0; model.weight(id).rows],
                    })
                    .collect();
                upload.numbers(region, &numbers)?;
            }
        }
        upload.finish()?;
        Ok(weights)
    }

    pub fn binding(&self, region: Region) -> wgpu::BufferBinding<'_> {
        let Region { buffer, offset, bytes } = if region.bytes == 0 { self.nothing } else { region };
        wgpu::BufferBinding {
            buffer: &self.buffers[buffer],
            offset,
            size: wgpu::BufferSize::new(bytes.next_multiple_of(16)),
        }
    }
}

/// The embedding table as a matrix.
fn table(model: &Model, ops: &[&Op]) -> Option<Joined> {
    let table = ops.iter().find_map(|op| model.plan.operands(op).table)?;
    Some(Joined {
        weights: vec![table],
        biases: vec![None],
        format: Format::of(model.weight(table).ty()).expect("checked when the model was loaded"),
        mode: Mode::Store,
        src: Buf::X,
        dst: Buf::X,
        covers: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_a_binding_and_cover_the_matrix() {
        for format in Format::ALL {
            for (rows, blocks, limit) in [(128_256, 128, 128 << 20), (1000, 8, 1 << 20), (64, 8, 64 << 20)] {
                let mut packer = Packer::default();
                let matrix = place_matrix(&mut packer, format, rows, blocks, limit);
                let mut next = 0;
                for part in &matrix.parts {
                    assert_eq!(part.first_row, next);
                    assert_eq!(part.first_row % PART_ROWS, 0);
                    next += part.rows;
                    for (region, rate) in part.streams.iter().zip(format.streams()) {
                        assert_eq!(region.bytes, rate.bytes_for(part.rows * blocks) as u64);
                        assert!(region.offset % ALIGN == 0 && region.bytes <= limit);
                        assert!(region.offset + region.bytes <= packer.buffers[region.buffer]);
                    }
                }
                assert_eq!(next, rows);
                assert!(packer.buffers.iter().all(|&b| b <= limit), "{format:?}");
            }
        }
    }
}
