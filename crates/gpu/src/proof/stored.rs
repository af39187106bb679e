//! Queries, keys and values that are stored as they are multiplied: the bits of those that are stored afterwards.

use super::{
    super::{
        device::Gpu,
        harness::{How, Matrix, Random, bind, blocks, numbers, plain, run, storage},
        params::{ProductParams, RopeStoreParams},
        pipelines::{Bindings, Kernel, Pipelines},
        stored::{Stored, kv_words},
        variants::{Arith, Variants},
    },
    Extent, same_bits,
};
use crate::{Result, kv_type::KvType, quant::GgmlType};

const HEADS: usize = 3;
const KV_HEADS: usize = 1;
const ALL_HEADS: usize = HEADS + 2 * KV_HEADS;
const HEAD: usize = 24;
const CELLS: usize = 12;
const K: usize = 512;
const ROWS: usize = ALL_HEADS * HEAD;

/// Of so many rows, with weights of this type.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub ty: GgmlType,
    pub columns: usize,
    pub stored: Stored,
    pub arith: Arith,
}

impl Case {
    /// Whether both ways make the same of it, and all that they should.
    pub fn agrees(&self, gpu: &Gpu, pipelines: &mut Pipelines) -> Result<bool> {
        let [at_once, afterwards] = [true, false].map(|at_once| self.made(gpu, pipelines, at_once));
        let (at_once, afterwards) = (at_once?, afterwards?);
        let same = at_once.iter().zip(&afterwards).all(|(a, b)| same_bits(a, b));
        Ok(same && at_once[0].iter().all(|&x| x != UNWRITTEN))
    }

    /// Queries, keys and values.
    fn made(&self, gpu: &Gpu, pipelines: &mut Pipelines, at_once: bool) -> Result<[Vec<f32>; 3]> {
        let &Case { ty, columns, stored, arith } = self;
        let mut random = Random::new(columns as u64 + ty as u64);
        let bytes = blocks(&mut random, ty, ROWS * K / ty.block_len());
        let weights = Matrix::new(gpu, ty, &bytes, ROWS, K)?;
        let (x, bias) = (random.floats(columns * K), random.floats(ROWS));
        let how = How { arith, bias: Some(&bias), ..plain(columns, false) };
        let rope = self.rope();
        let turns = numbers(gpu, &random.floats(2 * columns * rope.turns_stride as usize))?;
        let cells: Vec<u32> = (0..columns as u32).map(|row| (5 * row + 2) % CELLS as u32).collect();
        let row_data = storage(gpu, bytemuck::cast_slice(&cells))?;
        let (biases, floats) = (numbers(gpu, &bias)?, weights.input(gpu, &x, columns)?);
        let prepared = weights.scratch_for(gpu, arith, columns)?;
        let unwritten = |len: usize| numbers(gpu, &vec![UNWRITTEN; len]);
        let q_len = columns * HEADS * HEAD;
        let [keys_len, values_len] =
            [rope.key_words, rope.value_words].map(|words| KV_HEADS * CELLS * words as usize);
        let (between, q) = (unwritten(columns * ROWS)?, unwritten(q_len)?);
        let (keys, values) = (unwritten(keys_len)?, unwritten(values_len)?);
        let mut todo = Vec::new();
        let mut input = &floats;
        if arith != Arith::Float {
            todo.push(weights.prepare(gpu, pipelines, &floats, &prepared, &how)?);
            input = &prepared;
        }
        if at_once {
            let [high, low, scales] = weights.streams.each_ref().map(|stream| &stream.buffer);
            let others =
                [&biases, input, &q, &row_data, &turns, &keys, &values].map(|scratch| &scratch.buffer);
            let buffers = [&[high, low, scales][..], &others].concat();
            let params = ProductParams {
                rows: ROWS as u32,
                blocks: weights.blocks as u32,
                x_stride: weights.blocks as u32,
                has_bias: 1,
                heads: rope.heads,
                kv_heads: rope.kv_heads,
                head_dim: rope.head_dim,
                turned: rope.turned,
                turns_stride: rope.turns_stride,
                factor_at: rope.factor_at,
                cells: rope.cells,
                key_words: rope.key_words,
                value_words: rope.value_words,
                ..ProductParams::default()
            };
            let bound = bind(gpu, pipelines, Bindings::STORE_ROWS, &params, &buffers)?;
            let (format, lanes, columns) = (weights.format, gpu.tuning.lanes(weights.blocks), columns as u32);
            let (coarse, scales) = (false, false);
            let kernel = Kernel::StoreRows { format, lanes, columns, coarse, arith, stored, scales };
            let groups = (ROWS as u32).div_ceil(kernel.rows_at_once(&gpu.tuning));
            todo.push((kernel, bound, [groups, 1, 1]));
        } else {
            todo.extend(weights.multiply(gpu, pipelines, input, &between, &biases, &how)?);
            let no_norm = numbers(gpu, &[0.0])?;
            let buffers = [&row_data, &turns, &between, &no_norm, &no_norm, &q, &keys, &values];
            let kernel = Kernel::RopeStore(stored);
            let bound = bind(gpu, pipelines, kernel, &rope, &buffers.map(|scratch| &scratch.buffer))?;
            todo.push((kernel, bound, [ALL_HEADS as u32, columns as u32, 1]));
        }
        let queries = run(gpu, pipelines, &todo, &q.buffer, q_len)?;
        let keys = run(gpu, pipelines, &[], &keys.buffer, keys_len)?;
        Ok([queries, keys, run(gpu, pipelines, &[], &values.buffer, values_len)?])
    }

    /// Not all pairs turn, and behind a row's rotations stands its factor, if it has one.
    fn rope(&self) -> RopeStoreParams {
        let turned = 8 + self.columns as u32 % 4;
        let [key_words, value_words] =
            [self.stored.keys, self.stored.values].map(|ty| kv_words(ty, HEAD) as u32);
        RopeStoreParams {
            heads: HEADS as u32,
            kv_heads: KV_HEADS as u32,
            head_dim: HEAD as u32,
            in_stride: ROWS as u32,
            turned,
            turns_stride: turned + 1,
            factor_at: if self.columns == 3 { u32::MAX } else { turned },
            head_stride: HEAD as u32,
            cells: CELLS as u32,
            key_words,
            value_words,
            ..RopeStoreParams::default()
        }
    }
}

/// What stands in a place before something is written there.
const UNWRITTEN: f32 = 7.0;

/// The first thing that is wrong.
pub(super) fn fault(gpu: &Gpu, pipelines: &mut Pipelines, extent: Extent) -> Result<Option<String>> {
    if !Bindings::STORE_ROWS.fits(&gpu.limits) {
        return Ok(None);
    }
    let stored = Stored { keys: KvType::F16, values: KvType::F16 };
    for &columns in if extent == Extent::All { &[1, 2, 3, 8][..] } else { &[1] } {
        let case = Case { ty: GgmlType::Q8_0, columns, stored, arith: Variants::PLAIN.arith };
        if !case.agrees(gpu, pipelines)? {
            let what = format!("keys: other bits where a batch of {columns} is stored as it is multiplied");
            return Ok(Some(what));
        }
    }
    Ok(None)
}
