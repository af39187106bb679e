//! Chunks' partial results, joined in order, and what comes of them.

use super::{CHUNK, LANES, Part, Parts, Scratch, part_len};
use crate::backend::cpu::simd::{Kernel, Simd};

/// Joins the parts of one query head of a row that were put down.
pub struct Join<'a> {
    pub parts: Parts<'a>,
    pub row: usize,
    pub head: usize,
    /// Cells that the row sees.
    pub seen: std::ops::Range<usize>,
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
