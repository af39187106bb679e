//! Attention of one row's group of query heads over one K/V head.
//!
//! The bits are fixed by a sequence's own cells alone: they are taken in chunks of [`CHUNK`] in position
//! order; a chunk's scores, their maximum, the sum of their exponentials and the weighted values make a
//! partial result by themselves, and partial results are joined in order. So chunks may later be dealt to
//! threads without changing a bit.

use super::{
    kv_store::{HeadRows, KvType, Q8_BLOCK, Q8_BLOCK_BYTES},
    simd::{Kernel, LANES, Simd},
};
use crate::quant::F16;

pub const CHUNK: usize = 256;

/// Query heads that share one pass over keys and values.
const HEADS: usize = 4;

pub struct Attend<'a> {
    /// `[group, head_dim]`: the query heads that share this K/V head.
    pub q: &'a [f32],
    pub head_dim: usize,
    pub keys: HeadRows,
    pub key_type: KvType,
    pub values: HeadRows,
    pub value_type: KvType,
    /// What the row sees, in position order.
    pub cells: &'a [u32],
    pub scale: f32,
    /// `[group, head_dim]`
    pub out: &'a mut [f32],
    pub scratch: &'a mut Scratch,
}

/// Per thread, kept from pass to pass.
#[derive(Default)]
pub struct Scratch {
    /// `[HEADS, CHUNK]`
    scores: Vec<f32>,
    /// `[HEADS, head_dim padded to lanes]`: the queries, and a chunk's weighted values.
    q: Vec<f32>,
    partial: Vec<f32>,
    sums: Vec<f32>,
}

impl Scratch {
    /// Room for heads of `len` numbers together; queries and sums are zero.
    fn prepare(&mut self, len: usize) {
        let Scratch { scores, q, partial, sums } = self;
        scores.resize(HEADS * CHUNK, 0.0);
        partial.resize(partial.len().max(len), 0.0);
        for zeroed in [q, sums] {
            zeroed.clear();
            zeroed.resize(len, 0.0);
        }
    }
}

/// How a stored row is read, sixteen numbers at a time.
trait Stored {
    /// Numbers `at..at + 16`, zero where the row ends before.
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F;
}

struct InF16;
struct InF32;
struct InQ8;

impl Stored for InF16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let row = &bytemuck::cast_slice::<u8, F16>(row)[at..];
        match row.first_chunk() {
            Some(x) => s.load_f16(x),
            None => s.load_f16_partial(row),
        }
    }
}

impl Stored for InF32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let mut x = [0.0; LANES];
        for (x, bytes) in x.iter_mut().zip(row[4 * at..].as_chunks::<4>().0) {
            *x = f32::from_le_bytes(*bytes);
        }
        s.load(&x)
    }
}

impl Stored for InQ8 {
    /// Rows are whole blocks.
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let block = &row[at / Q8_BLOCK * Q8_BLOCK_BYTES..][..Q8_BLOCK_BYTES];
        let scale = F16([block[0], block[1]]).to_f32();
        let mut x = [0.0; LANES];
        for (x, &q) in x.iter_mut().zip(&block[2 + at % Q8_BLOCK..]) {
            *x = f32::from(q as i8);
        }
        s.mul(s.splat(scale), s.load(&x))
    }
}

impl Kernel for Attend<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (self.key_type, self.value_type) {
            (KvType::F16, KvType::F16) => self.typed::<S, InF16, InF16>(s),
            (KvType::F16, KvType::F32) => self.typed::<S, InF16, InF32>(s),
            (KvType::F16, KvType::Q8_0) => self.typed::<S, InF16, InQ8>(s),
            (KvType::F32, KvType::F16) => self.typed::<S, InF32, InF16>(s),
            (KvType::F32, KvType::F32) => self.typed::<S, InF32, InF32>(s),
            (KvType::F32, KvType::Q8_0) => self.typed::<S, InF32, InQ8>(s),
            (KvType::Q8_0, KvType::F16) => self.typed::<S, InQ8, InF16>(s),
            (KvType::Q8_0, KvType::F32) => self.typed::<S, InQ8, InF32>(s),
            (KvType::Q8_0, KvType::Q8_0) => self.typed::<S, InQ8, InQ8>(s),
        }
    }
}

impl Attend<'_> {
    #[inline(always)]
    fn typed<S: Simd, K: Stored, V: Stored>(self, s: S) {
        let block = HEADS * self.head_dim;
        for (q, out) in self.q.chunks(block).zip(self.out.chunks_mut(block)) {
            let heads = Heads {
                q,
                head_dim: self.head_dim,
                keys: self.keys,
                values: self.values,
                cells: self.cells,
                scale: self.scale,
            };
            match q.len() / self.head_dim {
                1 => heads.run::<S, K, V, 1>(s, out, self.scratch),
                2 => heads.run::<S, K, V, 2>(s, out, self.scratch),
                3 => heads.run::<S, K, V, 3>(s, out, self.scratch),
                _ => heads.run::<S, K, V, HEADS>(s, out, self.scratch),
            }
        }
    }
}

struct Heads<'a> {
    q: &'a [f32],
    head_dim: usize,
    keys: HeadRows,
    values: HeadRows,
    cells: &'a [u32],
    scale: f32,
}

impl Heads<'_> {
    #[inline(always)]
    fn run<S: Simd, K: Stored, V: Stored, const N: usize>(
        &self,
        s: S,
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let padded = self.head_dim.next_multiple_of(LANES);
        scratch.prepare(N * padded);
        for (padded, head) in scratch.q.chunks_exact_mut(padded).zip(self.q.chunks_exact(self.head_dim)) {
            padded[..self.head_dim].copy_from_slice(head);
        }
        let Scratch { scores, q, partial, sums } = scratch;
        let (mut max, mut sum) = ([f32::NEG_INFINITY; N], [0.0f32; N]);
        for (i, cells) in self.cells.chunks(CHUNK).enumerate() {
            self.scores::<S, K, N>(s, cells, q, scores);
            let len = cells.len().next_multiple_of(LANES);
            let mut keep = [0.0f32; N];
            let mut take = [0.0f32; N];
            for h in 0..N {
                let (chunk_max, chunk_sum) = exponentials(s, &mut scores[h * CHUNK..][..len], cells.len());
                // Join: both sides are scaled down to the larger maximum.
                let joined = if chunk_max > max[h] { chunk_max } else { max[h] };
                keep[h] = if i == 0 { 0.0 } else { (max[h] - joined).exp() };
                take[h] = (chunk_max - joined).exp();
                sum[h] = sum[h] * keep[h] + chunk_sum * take[h];
                max[h] = joined;
            }
            self.weighted_values::<S, V, N>(s, cells, scores, partial);
            for h in 0..N {
                let (keep, take) = (s.splat(keep[h]), s.splat(take[h]));
                for at in (h * padded..(h + 1) * padded).step_by(LANES) {
                    let kept = s.mul(s.load(lanes(sums, at)), keep);
                    s.store(s.fma(s.load(lanes(partial, at)), take, kept), lanes_mut(sums, at));
                }
            }
        }
        for (h, out) in out.chunks_exact_mut(self.head_dim).enumerate() {
            for (out, x) in out.iter_mut().zip(&sums[h * padded..]) {
                *out = x / sum[h];
            }
        }
    }

    /// `scores[h][j] = q[h] · key[j] · scale`; a key is read once for all heads.
    #[inline(always)]
    fn scores<S: Simd, K: Stored, const N: usize>(&self, s: S, cells: &[u32], q: &[f32], scores: &mut [f32]) {
        let padded = self.head_dim.next_multiple_of(LANES);
        for (j, &cell) in cells.iter().enumerate() {
            // SAFETY: keys of visible cells were written in an earlier phase or pass.
            let row = unsafe { self.keys.row(cell) };
            let mut acc = [s.splat(0.0); N];
            let mut at = 0;
            while at < padded {
                let key = K::load(s, row, at);
                for (h, acc) in acc.iter_mut().enumerate() {
                    *acc = s.fma(s.load(lanes(q, h * padded + at)), key, *acc);
                }
                at += LANES;
            }
            for (h, acc) in acc.into_iter().enumerate() {
                scores[h * CHUNK + j] = s.reduce_add(acc) * self.scale;
            }
        }
    }

    /// `partial[h] = Σ weights[h][j] · value[j]`, in order of `j`.
    #[inline(always)]
    fn weighted_values<S: Simd, V: Stored, const N: usize>(
        &self,
        s: S,
        cells: &[u32],
        weights: &[f32],
        partial: &mut [f32],
    ) {
        let padded = self.head_dim.next_multiple_of(LANES);
        let mut at = 0;
        while at < padded {
            let mut acc = [s.splat(0.0); N];
            for (j, &cell) in cells.iter().enumerate() {
                // SAFETY: as for keys.
                let row = unsafe { self.values.row(cell) };
                let value = V::load(s, row, at);
                for (h, acc) in acc.iter_mut().enumerate() {
                    *acc = s.fma(s.splat(weights[h * CHUNK + j]), value, *acc);
                }
            }
            for (h, acc) in acc.into_iter().enumerate() {
                s.store(acc, lanes_mut(partial, h * padded + at));
            }
            at += LANES;
        }
    }
}

/// Turns the first `len` scores into exponentials relative to their maximum; returns maximum and sum.
#[inline(always)]
fn exponentials<S: Simd>(s: S, scores: &mut [f32], len: usize) -> (f32, f32) {
    scores[len..].fill(f32::NEG_INFINITY);
    let (scores, _) = scores.as_chunks_mut::<LANES>();
    let mut max = s.splat(f32::NEG_INFINITY);
    for x in scores.iter() {
        max = s.max(s.load(x), max);
    }
    let max = s.reduce_max(max);
    let mut sum = s.splat(0.0);
    for x in scores {
        let e = s.exp(s.sub(s.load(x), s.splat(max)));
        s.store(e, x);
        sum = s.add(sum, e);
    }
    (max, s.reduce_add(sum))
}

#[inline(always)]
fn lanes(x: &[f32], at: usize) -> &[f32; LANES] {
    x[at..].first_chunk().expect("padded to whole lanes")
}

#[inline(always)]
fn lanes_mut(x: &mut [f32], at: usize) -> &mut [f32; LANES] {
    x[at..].first_chunk_mut().expect("padded to whole lanes")
}
