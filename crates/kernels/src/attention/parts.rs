//! Partial results: how scores become one, how chunks' are joined in order, and what comes of them.

use std::ops::Range;

use super::{CHUNK, LANES, Lanes, Lens, Scratch, TILES, ZERO};
use crate::{
    rows::SharedRows,
    simd::{Kernel, Simd},
};

/// A partial result of one pair: `m` and `l` in the first vector, then `o`.
pub type Part = [Lanes];

/// Numbers that a part takes.
pub fn part_floats(head_dim: usize) -> usize {
    part_len(head_dim) * LANES
}

/// Vectors of a [`Part`].
pub fn part_len(head_dim: usize) -> usize {
    1 + head_dim.div_ceil(LANES)
}

/// Room for the parts of some rows.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// For each query head of each row, the parts of all chunks.
    pub rows: &'a SharedRows,
    pub n_head: usize,
}

impl Parts<'_> {
    pub fn columns(chunk: usize, head_dim: usize) -> Range<usize> {
        let len = part_floats(head_dim);
        chunk * len..(chunk + 1) * len
    }
}

/// Scores become weights, and parts begin with the maximum, the sum and zeros.
#[inline(always)]
pub fn begin_parts<S: Simd>(
    s: S,
    (cap, slopes): (Option<f32>, Option<&[f32]>),
    scores: &mut [Lanes],
    lens: &Lens,
    n: usize,
    parts: &mut [Lanes],
) {
    for (p, part) in parts.chunks_exact_mut(parts.len() / n).enumerate() {
        let len = lens.of(p);
        let scores = &mut scores[p * TILES..][..len.div_ceil(LANES)];
        if let Some(cap) = cap {
            let squeezed = &mut scores[lens.begin(p) / LANES..];
            squeezed.iter_mut().for_each(|x| s.store(soft_cap(s, s.load(&x.0), cap), &mut x.0));
        }
        if let Some(slopes) = slopes {
            let own = lens.row(p).own as f32;
            let slope = slopes[lens.head(p)];
            let all = bytemuck::cast_slice_mut::<Lanes, f32>(scores);
            for (j, x) in all[lens.begin(p)..len].iter_mut().enumerate() {
                let place = (lens.start + lens.begin(p) + j) as f32;
                *x -= slope * (place - own).abs();
            }
        }
        let (max, sum) = exponentials(s, scores, lens.begin(p)..len);
        part.fill(ZERO);
        (part[0].0[0], part[0].0[1]) = (max, sum);
    }
}

/// `cap · tanh(x / cap)`
#[inline(always)]
fn soft_cap<S: Simd>(s: S, x: S::F, cap: f32) -> S::F {
    let e = s.exp(s.mul(x, s.splat(-2.0 / cap)));
    let tanh = s.sub(s.div(s.splat(2.0), s.add(s.splat(1.0), e)), s.splat(1.0));
    s.mul(s.splat(cap), tanh)
}

/// Turns some scores into exponentials relative to their maximum, the others to zero; returns maximum and sum.
#[inline(always)]
fn exponentials<S: Simd>(s: S, scores: &mut [Lanes], seen: Range<usize>) -> (f32, f32) {
    let all = bytemuck::cast_slice_mut::<Lanes, f32>(scores);
    all[..seen.start].fill(f32::NEG_INFINITY);
    all[seen.end..].fill(f32::NEG_INFINITY);
    let mut max = s.splat(f32::NEG_INFINITY);
    for x in scores.iter() {
        max = s.max(s.load(&x.0), max);
    }
    let max = s.reduce_max(max);
    let mut sum = s.splat(0.0);
    for x in scores {
        let e = s.exp(s.sub(s.load(&x.0), s.splat(max)));
        s.store(e, &mut x.0);
        sum = s.add(sum, e);
    }
    (max, s.reduce_add(sum))
}

/// Joins the parts of one query head of a row that were put down.
pub struct Join<'a> {
    pub parts: Parts<'a>,
    pub row: usize,
    pub head: usize,
    /// Cells that the row sees.
    pub seen: Range<usize>,
    pub sink: Option<f32>,
    pub out: &'a mut [f32],
    pub scratch: &'a mut Scratch,
}

impl Kernel for Join<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let head_dim = self.out.len();
        let len = part_len(head_dim);
        self.scratch.prepare(1, head_dim);
        let Scratch { parts, joined, .. } = self.scratch;
        let (part, joined) = (&mut parts[..len], &mut joined[..len]);
        let row = self.row * self.parts.n_head + self.head;
        let first = self.seen.start / CHUNK;
        for chunk in first..self.seen.end.div_ceil(CHUNK) {
            // SAFETY: put down in an earlier phase.
            let from = unsafe { self.parts.rows.columns(row, Parts::columns(chunk, head_dim)) };
            bytemuck::cast_slice_mut(part).copy_from_slice(from);
            if chunk == first { joined.copy_from_slice(part) } else { join(s, joined, part) }
        }
        finish(s, joined, self.sink, self.out);
    }
}

/// `out = o / l`, after a sink has taken its share.
#[inline(always)]
pub fn finish<S: Simd>(s: S, part: &Part, sink: Option<f32>, out: &mut [f32]) {
    let Some(sink) = sink else {
        let sum = s.splat(part[0].0[1]);
        for (out, o) in out.chunks_mut(LANES).zip(&part[1..]) {
            s.store_partial(s.div(s.load(&o.0), sum), out);
        }
        return;
    };
    let [m, l, ..] = part[0].0;
    let max = if sink > m { sink } else { m };
    let keep = s.exp(s.splat(m - max));
    let sum = s.add(s.mul(s.splat(l), keep), s.exp(s.splat(sink - max)));
    for (out, o) in out.chunks_mut(LANES).zip(&part[1..]) {
        s.store_partial(s.div(s.mul(s.load(&o.0), keep), sum), out);
    }
}

/// Joins the part of a further chunk to those before it.
#[inline(always)]
pub fn join<S: Simd>(s: S, joined: &mut Part, part: &Part) {
    let ([m, l, ..], [m2, l2, ..]) = (joined[0].0, part[0].0);
    let max = if m2 > m { m2 } else { m };
    let keep = s.exp(s.splat(m - max));
    let take = s.exp(s.splat(m2 - max));
    let sum = s.add(s.mul(s.splat(l), keep), s.mul(s.splat(l2), take));
    (joined[0].0[0], joined[0].0[1]) = (max, s.to_array(sum)[0]);
    for (to, from) in joined[1..].iter_mut().zip(&part[1..]) {
        s.store(s.fma(s.load(&from.0), take, s.mul(s.load(&to.0), keep)), &mut to.0);
    }
}
