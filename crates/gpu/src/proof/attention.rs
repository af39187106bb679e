//! Attention over contexts of all lengths, against sums in f64.

use super::{
    super::{
        device::Gpu,
        harness::{Random, bind, numbers, run, storage, store},
        params::AttentionParams,
        pipelines::{Kernel, Pipelines},
        stored::{Stored, kv_words},
        variants::Arith,
        work::{CHUNK, head_stride},
    },
    U, is_more,
};
use crate::{Result, kv_type::KvType};

/// Cells in the cache, more than a context has.
pub const CELLS: usize = 760;

pub struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    stored: Stored,
    scale: f32,
    /// Scores stay below it.
    cap: f32,
    /// By head, if there are any.
    sinks: Vec<f32>,
    /// [rows, heads, stride]
    q: Vec<f32>,
    /// [kv_heads, cells, stride]
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Cells in order of positions; rows see beginnings of it.
    list: Vec<u32>,
}

impl Case {
    pub fn new(heads: usize, kv_heads: usize, dim: usize, stored: Stored, rows: usize) -> Self {
        let mut random = Random::new((heads * dim) as u64);
        let stride = head_stride(dim);
        let mut filled = |count: usize, ty: KvType| -> Vec<f32> {
            let mut head = || {
                let mut head: Vec<f32> = (0..dim).map(|_| 2.0 * random.float()).collect();
                head.resize(stride, 0.0);
                store(ty, &mut head);
                head
            };
            (0..count).flat_map(|_| head()).collect()
        };
        let q = filled(rows * heads, KvType::F32);
        let keys = filled(kv_heads * CELLS, stored.keys);
        let values = filled(kv_heads * CELLS, stored.values);
        // A step that shares no factor with the count visits every cell.
        let list = (0..CELLS).map(|i| (i * 377 % CELLS) as u32).collect();
        let scale = 1.0 / (dim as f32).sqrt();
        Case { heads, kv_heads, dim, stored, scale, cap: 0.0, sinks: Vec::new(), q, keys, values, list }
    }

    /// With scores that are capped, and sinks.
    #[cfg(test)]
    pub fn with_sinks(mut self, cap: f32) -> Self {
        self.cap = cap;
        self.sinks = Random::new(5).floats(self.heads).iter().map(|x| 3.0 * x).collect();
        self
    }

    /// The same numbers, stored as they are.
    #[cfg(test)]
    pub fn in_f32(&self) -> Self {
        let stored = Stored { keys: KvType::F32, values: KvType::F32 };
        let Case { q, keys, values, list, .. } = self;
        let (q, keys, values, list) = (q.clone(), keys.clone(), values.clone(), list.clone());
        Case { stored, q, keys, values, list, sinks: self.sinks.clone(), ..*self }
    }

    fn words(&self, x: &[f32], ty: KvType) -> Vec<u32> {
        x.chunks_exact(head_stride(self.dim)).flat_map(|head| store(ty, &mut head.to_vec())).collect()
    }

    /// `[rows, heads, dim]`; row i sees the first `lens[i]` cells of the list.
    pub fn run(
        &self,
        gpu: &Gpu,
        pipelines: &mut Pipelines,
        lens: &[usize],
        how: (bool, bool),
    ) -> Result<Vec<f32>> {
        self.run_in_pieces(gpu, pipelines, lens, how, lens.len())
    }

    /// So many rows in a dispatch.
    pub fn run_in_pieces(
        &self,
        gpu: &Gpu,
        pipelines: &mut Pipelines,
        lens: &[usize],
        (split, shared): (bool, bool),
        piece_rows: usize,
    ) -> Result<Vec<f32>> {
        let rows = lens.len();
        let stride = head_stride(self.dim);
        let Stored { keys, values } = self.stored;
        let most_chunks = lens.iter().max().unwrap().div_ceil(CHUNK);
        let params = AttentionParams {
            heads: self.heads as u32,
            group: (self.heads / self.kv_heads) as u32,
            head_dim: self.dim as u32,
            head_stride: stride as u32,
            cells: CELLS as u32,
            key_words: kv_words(keys, self.dim) as u32,
            value_words: kv_words(values, self.dim) as u32,
            scale: self.scale,
            cap: self.cap,
            has_sinks: u32::from(!self.sinks.is_empty()),
            out_stride: (self.heads * self.dim) as u32,
            view_at: 1,
            spans_at: 2,
            view_rows: rows as u32,
            most_chunks: most_chunks as u32,
            first_row: 0,
            zero: 0,
        };
        // View 1 is the one that counts; the list begins at word 3.
        let mut row_data = vec![0u32, 1];
        row_data.extend(vec![0u32; 2 * rows]);
        row_data.extend(lens.iter().flat_map(|&len| [3, len as u32]));
        let list: Vec<u32> = [0, 0, 0].into_iter().chain(self.list.iter().copied()).collect();
        let made = |words: &[u32]| storage(gpu, bytemuck::cast_slice(words));
        let (row_data, list, q) = (made(&row_data)?, made(&list)?, numbers(gpu, &self.q)?);
        let keys = made(&self.words(&self.keys, keys))?;
        let values = made(&self.words(&self.values, values))?;
        let sinks = if self.sinks.is_empty() { numbers(gpu, &[0.0]) } else { numbers(gpu, &self.sinks) };
        let sinks = sinks?;
        let len = rows * self.heads * self.dim;
        let out = numbers(gpu, &vec![7.0; len])?;
        let chunks = numbers(gpu, &vec![7.0; piece_rows * self.heads * most_chunks * (stride + 2)])?;
        let to = if split { &chunks } else { &out };
        let heads = self.heads as u32;
        let group = (self.heads / self.kv_heads) as u32;
        let groups = if shared { self.kv_heads as u32 * group.div_ceil(4) } else { heads };
        let y = if split { most_chunks as u32 } else { 1 };
        let kernel = Kernel::Attend { split, shared, stored: self.stored, arith: Arith::Float };
        let mut steps = Vec::new();
        for first in (0..rows).step_by(piece_rows) {
            let params = AttentionParams { first_row: first as u32, ..params };
            let rows = piece_rows.min(rows - first) as u32;
            let buffers = [&row_data, &list, &q, &keys, &values, &sinks, to].map(|b| &b.buffer);
            let attend = bind(gpu, pipelines, kernel, &params, &buffers)?;
            steps.push((kernel, attend, [groups, y, rows]));
            if split {
                let buffers = [&row_data, &chunks, &sinks, &out].map(|b| &b.buffer);
                let join = bind(gpu, pipelines, Kernel::AttendJoin(Arith::Float), &params, &buffers)?;
                steps.push((Kernel::AttendJoin(Arith::Float), join, [heads, 1, rows]));
            }
        }
        run(gpu, pipelines, &steps, &out.buffer, len)
    }

    /// The first number that is further off than roundings explain.
    pub fn fault(&self, got: &[f32], lens: &[usize]) -> Option<String> {
        let stride = head_stride(self.dim);
        for (i, got) in got.chunks_exact(self.dim).enumerate() {
            let (row, head) = (i / self.heads, i % self.heads);
            let kv_head = head / (self.heads / self.kv_heads);
            let q = &self.q[i * stride..][..self.dim];
            let cell = |x: &'_ [f32], cell: u32| -> Vec<f64> {
                let at = (kv_head * CELLS + cell as usize) * stride;
                x[at..][..self.dim].iter().map(|&x| f64::from(x)).collect()
            };
            let cells = &self.list[..lens[row]];
            let scale = f64::from(self.scale);
            let (scores, sizes): (Vec<f64>, Vec<f64>) = cells
                .iter()
                .map(|&c| {
                    let key = cell(&self.keys, c);
                    let products = q.iter().zip(&key).map(|(&q, k)| f64::from(q) * k);
                    products.fold((0.0, 0.0), |(sum, size), x| (sum + scale * x, size + scale * x.abs()))
                })
                .unzip();
            let cap = f64::from(self.cap);
            let capped = |s: f64| if cap > 0.0 { cap * (s / cap).tanh() } else { s };
            let scores: Vec<f64> = scores.into_iter().map(capped).collect();
            let sink = self.sinks.get(head).map(|&sink| f64::from(sink));
            let top = scores.iter().copied().chain(sink).fold(f64::MIN, f64::max);
            let low = scores.iter().copied().chain(sink).fold(f64::MAX, f64::min);
            let e: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let sum: f64 = e.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - top).exp());
            // A score is a sum of dim products in four chains; twice, for the maximum is such a score too. WGSL's
            // exponential is right to 3 + 2·|x| units, and x may be the whole range of the scores. Then the sums
            // over the cells, of weights and of weighted values.
            // A cap is taken from twice itself, by such an exponential.
            let score = 2.0 * (self.dim as f64 / 4.0 + 4.0) * U * sizes.iter().copied().fold(0.0, f64::max)
                + 48.0 * U * cap;
            let exponential = (3.0 + 2.0 * (top - low)) * 2.0 * U;
            let relative = 2.0 * (score + 2.0 * exponential + (cells.len() as f64 + 8.0) * U);
            for (i, &got) in got.iter().enumerate() {
                let (want, size) = cells.iter().zip(&e).fold((0.0, 0.0), |(want, size), (&c, e)| {
                    let v = f64::from(self.values[(kv_head * CELLS + c as usize) * stride + i]);
                    (want + e / sum * v, size + e / sum * v.abs())
                });
                let off = (f64::from(got) - want).abs();
                if is_more(off, relative * size) {
                    return Some(format!("row {row}, head {head}, {i}: {got} for {want}"));
                }
            }
        }
        None
    }

    /// With some numbers of each value so small that halves of them are subnormal.
    pub fn with_small_values(mut self) -> Self {
        let Stored { values: ty, .. } = self.stored;
        let stride = head_stride(self.dim);
        for value in self.values.chunks_exact_mut(stride) {
            value[..8].iter_mut().for_each(|x| *x *= 2e-6);
            store(ty, value);
        }
        self
    }
}
