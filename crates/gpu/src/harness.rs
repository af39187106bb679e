//! Single kernels on data of one's own: for the proof of a device, the trial of variants, and tests.

use wgpu::BufferUsages as Usage;

use super::{
    command::{Binding, BufferCopy},
    device::Gpu,
    formats::{BLOCK, FileType, Format, Streams, split_row},
    params::{Params, PrepareParams, ProductParams},
    pipelines::{Bindings, Kernel, Mode, Pipelines},
    readback,
    record::Recorder,
    stored::words_of,
    tuning::TILE_ROWS,
    tuning::{Tiles, Tiling, Turns},
    variants::Arith,
};
use crate::{Result, kv_type::KvType, quant::GgmlType, rng::Rng};

pub struct Random(Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Rng::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// -1..1
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 2f32.powi(23) - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// Random bits with scales of about 1/100, as in real models.
pub fn blocks(random: &mut Random, ty: GgmlType, n: usize) -> Vec<u8> {
    blocks_of(random, ty, n, 0.01)
}

/// Random bits with halves of so much to three times as much.
pub fn blocks_of(random: &mut Random, ty: GgmlType, n: usize, least: f32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..n * ty.block_bytes()).map(|_| random.next() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in FileType::of(ty).map_or(&[][..], |file| file.halves) {
            let scale = half::f16::from_f32(least * (random.float() + 2.0));
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        match ty {
            GgmlType::MXFP4 => block[0] = 118 + (random.next() % 4) as u8,
            GgmlType::NVFP4 => block[..4].fill_with(|| 8 + (random.next() % 24) as u8),
            GgmlType::IQ1_M => {
                // A quarter of its half in the top of each of four words.
                let scale = half::f16::from_f32(least * (random.float() + 2.0)).to_bits();
                for i in 0..4 {
                    let top = &mut block[49 + 2 * i];
                    *top = *top & 15 | ((scale >> (4 * i) & 15) as u8) << 4;
                }
            }
            GgmlType::F32 => block.copy_from_slice(&random.float().to_le_bytes()),
            GgmlType::F16 => block.copy_from_slice(&half::f16::from_f32(random.float()).to_le_bytes()),
            GgmlType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes()),
            _ => {}
        }
    }
    bytes
}

/// Has a head hold what it can be stored as; gives the words that it is stored in, zero where there is nothing.
pub fn store(ty: KvType, head: &mut [f32]) -> Vec<u32> {
    let mut row = vec![0; ty.row_bytes(head.len())];
    ty.put(head, &mut row);
    ty.take(&row, head);
    words_of(ty, &row)
}

/// A buffer that is given back when it goes.
pub struct Scratch<'a> {
    gpu: &'a Gpu,
    pub buffer: wgpu::Buffer,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.gpu.release(self.buffer.clone());
    }
}

pub fn scratch(gpu: &Gpu, bytes: u64) -> Result<Scratch<'_>> {
    scratch_for(gpu, bytes, Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC)
}

pub fn scratch_for(gpu: &Gpu, bytes: u64, usage: Usage) -> Result<Scratch<'_>> {
    Ok(Scratch { gpu, buffer: gpu.buffer("a trial", bytes, usage)? })
}

pub fn storage<'a>(gpu: &'a Gpu, bytes: &[u8]) -> Result<Scratch<'a>> {
    let made = scratch(gpu, bytes.len() as u64)?;
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(4), 0);
    gpu.queue.write_buffer(&made.buffer, 0, &padded);
    Ok(made)
}

pub fn numbers<'a>(gpu: &'a Gpu, x: &[f32]) -> Result<Scratch<'a>> {
    storage(gpu, bytemuck::cast_slice(x))
}

/// A kernel, what it binds, and how many workgroups of it.
pub type Dispatch = (Kernel, Binding, [u32; 3]);

/// Binds parameters of its own and buffers.
pub fn bind<T: bytemuck::NoUninit>(
    gpu: &Gpu,
    pipelines: &Pipelines,
    bindings: impl Into<Bindings>,
    params: &T,
    buffers: &[&wgpu::Buffer],
) -> Result<Binding> {
    let mut slots = Params::new(gpu, 1)?;
    let slot = slots.add(params);
    slots.flush(gpu);
    let storage: Vec<_> = buffers.iter().map(|b| b.as_entire_buffer_binding()).collect();
    let group = pipelines.bind(gpu, bindings, slots.buffer(), &storage);
    slots.release(gpu);
    Ok(Binding { group, params: slot })
}

/// Runs kernels one after the other and reads back the beginning of a buffer.
pub fn run(
    gpu: &Gpu,
    pipelines: &mut Pipelines,
    what: &[Dispatch],
    out: &wgpu::Buffer,
    len: usize,
) -> Result<Vec<f32>> {
    let bytes = 4 * len as u64;
    let readable = gpu.buffer("a trial's result", bytes, Usage::MAP_READ | Usage::COPY_DST)?;
    let mut recorder = Recorder::new(gpu, pipelines, None);
    for (kernel, bound, groups) in what {
        recorder.dispatch(*kernel, bound, *groups)?;
    }
    recorder.copy(&BufferCopy::begin(out, &readable, bytes));
    recorder.submit();
    let read = readback::read(gpu, &readable, bytes, bytemuck::pod_collect_to_vec::<u8, f32>)?;
    gpu.release(readable);
    gpu.check()?;
    Ok(read)
}

/// How a product is made.
#[derive(Clone, Copy)]
pub struct How<'a> {
    pub mode: Mode,
    pub columns: usize,
    pub tile: bool,
    pub coarse: bool,
    pub arith: Arith,
    pub bias: Option<&'a [f32]>,
    /// Lanes that each workgroup of a tile makes; 0: all.
    pub share: u32,
    /// By wide tiles.
    pub wide: bool,
    /// Rows lack the scale of their norm.
    pub scales: bool,
}

/// Just the product by plain kernels, in the regime that a pass would take.
pub fn plain(columns: usize, tile: bool) -> How<'static> {
    How {
        mode: Mode::Store,
        columns,
        tile,
        coarse: false,
        arith: Arith::Summed,
        bias: None,
        share: 0,
        wide: false,
        scales: false,
    }
}

/// What stands in an output before something is added to it.
pub fn start(i: usize) -> f32 {
    (i % 13) as f32 - 6.0
}

/// A matrix on the device.
pub struct Matrix<'a> {
    pub format: Format,
    pub rows: usize,
    /// Blocks of 32 in a row.
    pub blocks: usize,
    pub streams: [Scratch<'a>; 3],
}

impl<'a> Matrix<'a> {
    /// `bytes`: the file's blocks of `rows` rows of `k` weights.
    pub fn new(gpu: &'a Gpu, ty: GgmlType, bytes: &[u8], rows: usize, k: usize) -> Result<Self> {
        let mut streams = Streams::default();
        let row_bytes = bytes.len() / rows;
        bytes.chunks_exact(row_bytes).for_each(|row| split_row(ty, 1.0, row, &mut streams));
        let format = Format::of(ty).expect("a type that can be read");
        Self::of_streams(gpu, format, streams, rows, k.div_ceil(BLOCK))
    }

    pub fn of_streams(
        gpu: &'a Gpu,
        format: Format,
        streams: Streams,
        rows: usize,
        blocks: usize,
    ) -> Result<Self> {
        let [high, low, scales] = streams.finish();
        let streams = [storage(gpu, &high)?, storage(gpu, &low)?, storage(gpu, &scales)?];
        Ok(Matrix { format, rows, blocks, streams })
    }

    /// One of zeros.
    pub fn empty(gpu: &'a Gpu, format: Format, rows: usize, blocks: usize) -> Result<Self> {
        let [high, low, scales] = format.streams().map(|rate| rate.bytes_for(rows * blocks) as u64);
        let streams = [scratch(gpu, high)?, scratch(gpu, low)?, scratch(gpu, scales)?];
        Ok(Matrix { format, rows, blocks, streams })
    }

    /// Rows of `x` on the device as kernels want them: whole blocks, rows for whole tiles. `x`: [columns, k]
    pub fn input(&self, gpu: &'a Gpu, x: &[f32], columns: usize) -> Result<Scratch<'a>> {
        let k = x.len() / columns;
        let width = self.blocks * BLOCK;
        let padded =
            x.chunks_exact(k).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, width - k)));
        let mut rows: Vec<f32> = padded.collect();
        rows.resize(columns.next_multiple_of(TILE_ROWS) * width, 0.0);
        numbers(gpu, &rows)
    }

    /// Room for what products of this kind want.
    pub fn scratch_for(&self, gpu: &'a Gpu, arith: Arith, columns: usize) -> Result<Scratch<'a>> {
        let blocks = columns.next_multiple_of(TILE_ROWS) * self.blocks;
        scratch(gpu, (16 * blocks * arith.block_quads()) as u64)
    }

    pub fn prepare(
        &self,
        gpu: &Gpu,
        pipelines: &Pipelines,
        x: &Scratch,
        to: &Scratch,
        how: &How,
    ) -> Result<Dispatch> {
        let params = PrepareParams { blocks: self.blocks as u32 };
        let bound = bind(gpu, pipelines, Kernel::Prepare(how.arith), &params, &[&x.buffer, &to.buffer])?;
        let groups = [self.blocks.div_ceil(32) as u32, how.columns as u32, 1];
        Ok((Kernel::Prepare(how.arith), bound, groups))
    }

    pub fn multiply(
        &self,
        gpu: &Gpu,
        pipelines: &Pipelines,
        x: &Scratch,
        y: &Scratch,
        bias: &Scratch,
        how: &How,
    ) -> Result<Vec<Dispatch>> {
        let &How { mode, columns, tile, coarse, share, wide, scales, .. } = how;
        let arith = how.arith.of(self.format);
        let params = ProductParams {
            rows: self.rows as u32,
            blocks: self.blocks as u32,
            x_stride: self.blocks as u32,
            y_stride: self.outputs(mode) as u32,
            y_first: 0,
            has_bias: u32::from(how.bias.is_some()),
            ..ProductParams::default()
        };
        let [high, low, factors] = self.streams.each_ref().map(|s| &s.buffer);
        let bound = |x, y| {
            let buffers = [high, low, factors, &bias.buffer, x, y];
            bind(gpu, pipelines, Bindings::MATMUL, &params, &buffers)
        };
        let (format, lanes) = (self.format, gpu.tuning.lanes(self.blocks));
        if tile {
            let rows = self.rows as u32;
            if wide {
                let kernel = Kernel::MatmulWide { format, mode, lanes, coarse, scales };
                let groups = Tiling::wide(rows, columns).groups;
                return Ok(vec![(kernel, bound(&x.buffer, &y.buffer)?, groups)]);
            }
            let tiles = Tiles::of(format, arith, pipelines.variants().coop);
            let mut tiling = Tiling::whole(rows, columns, tiles);
            if share > 0 {
                tiling = tiling.shared(lanes, share);
            }
            let Tiling { width, groups, .. } = tiling;
            let kernel = Kernel::MatmulTile { format, mode, lanes, coarse, arith, width, share, scales };
            if share == 0 {
                return Ok(vec![(kernel, bound(&x.buffer, &y.buffer)?, groups)]);
            }
            let sums = scratch(gpu, tiling.sums_bytes(rows, lanes) as u64)?;
            let join = Kernel::MatmulJoin { mode, lanes, width, scales };
            let join_groups = [rows.div_ceil(128), columns as u32, 1];
            return Ok(vec![
                (kernel, bound(&x.buffer, &sums.buffer)?, groups),
                (join, bound(&sums.buffer, &y.buffer)?, join_groups),
            ]);
        }
        let bound = bound(&x.buffer, &y.buffer)?;
        let turns = Turns::of(columns);
        let columns = turns.columns;
        let kernel = Kernel::MatmulRows { format, mode, lanes, columns, coarse, arith, scales };
        let groups = (self.rows as u32).div_ceil(kernel.rows_at_once(&gpu.tuning));
        Ok(vec![(kernel, bound, turns.groups([groups, 1, 1]))])
    }

    /// Numbers in a row of the product.
    pub fn outputs(&self, mode: Mode) -> usize {
        if let Mode::Gate(_) = mode { self.rows / 2 } else { self.rows }
    }

    /// `x`: [columns, k]. Gives `[columns, rows]`, or half as many rows for a gate.
    pub fn product(&self, gpu: &'a Gpu, pipelines: &mut Pipelines, x: &[f32], how: &How) -> Result<Vec<f32>> {
        let outputs = self.outputs(how.mode);
        let mut before = vec![0.0; how.columns.next_multiple_of(TILE_ROWS) * outputs];
        if how.mode == Mode::Add {
            before.iter_mut().enumerate().for_each(|(i, y)| *y = start(i));
        }
        let (x, y) = (self.input(gpu, x, how.columns)?, numbers(gpu, &before)?);
        let bias = numbers(gpu, how.bias.unwrap_or(&[0.0]))?;
        let mut todo = Vec::new();
        let made_ready;
        let arith = how.arith.of(self.format);
        let x = if arith == Arith::Float {
            &x
        } else {
            made_ready = self.scratch_for(gpu, arith, how.columns)?;
            todo.push(self.prepare(gpu, pipelines, &x, &made_ready, how)?);
            &made_ready
        };
        todo.extend(self.multiply(gpu, pipelines, x, &y, &bias, how)?);
        run(gpu, pipelines, &todo, &y.buffer, how.columns * outputs)
    }

    /// What products by dots have for `x`: [columns, blocks, 32].
    #[cfg(test)]
    pub fn rounded(
        &self,
        gpu: &'a Gpu,
        pipelines: &mut Pipelines,
        x: &[f32],
        columns: usize,
    ) -> Vec<[f32; BLOCK]> {
        let how = How { arith: Arith::Int8, ..plain(columns, false) };
        let from = self.input(gpu, x, columns).unwrap();
        let to = self.scratch_for(gpu, how.arith, columns).unwrap();
        let step = self.prepare(gpu, pipelines, &from, &to, &how).unwrap();
        let (quads, blocks) = (how.arith.block_quads(), columns * self.blocks);
        let len = 4 * quads * blocks.next_multiple_of(8);
        let words = run(gpu, pipelines, &[step], &to.buffer, len).unwrap();
        // Eight blocks lie interleaved.
        let quad = |block: usize, i: usize| {
            let at = 8 * quads * (block / 8) + 8 * i + block % 8;
            *words[4 * at..].first_chunk::<4>().unwrap()
        };
        let blocks = (0..blocks).map(|block| {
            let [scale, first, second, _] = quad(block, quads - 1);
            let words = (0..quads - 1).flat_map(|i| quad(block, i)).map(f32::to_bits);
            let units: Vec<f32> = words.flat_map(|w| w.to_le_bytes()).map(|b| f32::from(b as i8)).collect();
            for (sum, units) in [first, second].into_iter().zip(units.chunks(16)) {
                let exact: f64 = units.iter().map(|&x| f64::from(x)).sum();
                assert!(f64::from(sum) == exact, "{sum} {exact}");
            }
            std::array::from_fn(|i| units[i] * scale)
        });
        blocks.collect()
    }
}
