//! Searches for the scale of a group of weights that leaves the least weighted error, sixteen groups side by side: lane g
//! of a vector is group g's, and each lane goes through its own group in order. So neither the tier nor what lies in the
//! other lanes changes a bit.
//!
//! The tries are those of llama.cpp's quantizers: a scale from the largest value, then some a little larger and smaller,
//! each with the levels that it gives and the scale that fits these levels best.

use crate::backend::cpu::simd::{Kernel, LANES, Simd};

/// What no group's largest magnitude is below, but that of zeros.
const NOTHING: f32 = 1e-15;

/// How scale and minimum of a group are searched for.
#[derive(Clone, Copy)]
pub struct Affine {
    /// Levels are `0..=top`.
    pub top: f32,
    /// The first try spans `top + first` steps from the least value to the largest, each further one `by` more.
    pub first: f32,
    pub by: f32,
    pub tries: u32,
    /// Errors count by their size and not by its square.
    pub absolute: bool,
}

/// Scales of groups with as many levels below zero as above: `-most..most`.
#[derive(Clone, Copy)]
pub struct Symmetric {
    pub most: f32,
}

/// The same for few levels: level by level, each changed while that lowers the error.
#[derive(Clone, Copy)]
pub struct LevelByLevel {
    pub most: f32,
}

/// Scales of groups of values that are not negative, with levels `0..=top`.
#[derive(Clone, Copy)]
pub struct Positive {
    pub top: f32,
}

/// Scales of groups whose levels are the values of a table.
#[derive(Clone, Copy)]
pub struct Table {
    pub levels: [f32; 16],
}

/// Sixteen groups of `N` weights and what an error in each weight counts.
pub struct Groups<'a, S: Simd, const N: usize> {
    x: &'a [S::F; N],
    w: &'a [S::F; N],
}

/// A search with one result for a group, or with two.
pub trait Search: Copy {
    /// The scale, and how far below zero the lowest level lies.
    fn of<S: Simd, const N: usize>(self, s: S, groups: Groups<S, N>) -> (S::F, S::F);
}

/// What a search finds for each group of `x`, one after the other.
pub struct SearchAll<'a, How, const N: usize> {
    pub how: How,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub scales: &'a mut [f32],
    /// As long as `scales`, or empty.
    pub mins: &'a mut [f32],
}

impl<How: Search, const N: usize> Kernel for SearchAll<'_, How, N> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let SearchAll { how, x, w, scales, mins } = self;
        for (batch, scales) in scales.chunks_mut(LANES).enumerate() {
            let (x, w) = (side_by_side(s, x, LANES * batch), side_by_side(s, w, LANES * batch));
            let (scale, min) = how.of(s, Groups::<S, N> { x: &x, w: &w });
            s.store_partial(scale, scales);
            if let Some(mins) = mins.chunks_mut(LANES).nth(batch) {
                s.store_partial(min, mins);
            }
        }
    }
}

/// Sixteen groups from number `first` on; those that are not there are zeros.
#[inline(always)]
fn side_by_side<S: Simd, const N: usize>(s: S, from: &[f32], first: usize) -> [S::F; N] {
    let mut all = [s.splat(0.0); N];
    for part in 0..N.div_ceil(LANES) {
        let mut rows = [s.splat(0.0); LANES];
        for (row, group) in rows.iter_mut().zip(from[(first * N).min(from.len())..].chunks_exact(N)) {
            let group = &group[LANES * part..N.min(LANES * (part + 1))];
            *row = match group.first_chunk() {
                Some(whole) => s.load(whole),
                None => s.load_partial(group),
            };
        }
        let columns = s.transpose(rows);
        let room = &mut all[LANES * part..];
        let len = room.len().min(LANES);
        room[..len].copy_from_slice(&columns[..len]);
    }
    all
}

/// The nearest whole number within bounds.
#[inline(always)]
fn level<S: Simd>(s: S, x: S::F, low: S::F, high: S::F) -> S::F {
    s.min(s.max(s.round_ties_even(x), low), high)
}

impl Search for Affine {
    #[inline(always)]
    fn of<S: Simd, const N: usize>(self, s: S, Groups { x, w }: Groups<S, N>) -> (S::F, S::F) {
        let (zero, one, top) = (s.splat(0.0), s.splat(1.0), s.splat(self.top));
        let (mut low, mut high) = (x[0], x[0]);
        let (mut sum_w, mut sum_x) = (zero, zero);
        for (&x, &w) in x.iter().zip(w) {
            (low, high) = (s.min(x, low), s.max(x, high));
            (sum_w, sum_x) = (s.add(sum_w, w), s.add(sum_x, s.mul(w, x)));
        }
        low = s.min(low, zero);
        let span = s.sub(high, low);
        let size = |error| if self.absolute { s.abs(error) } else { s.mul(error, error) };

        let inverse = s.div(top, span);
        let (mut scale, mut min, mut least) = (s.div(one, inverse), low, zero);
        for (&x, &w) in x.iter().zip(w) {
            let q = level(s, s.mul(inverse, s.sub(x, low)), zero, top);
            let error = s.sub(s.add(s.mul(scale, q), low), x);
            least = s.add(least, s.mul(w, size(error)));
        }
        // Each try begins at the best minimum so far.
        for step in 0..=self.tries {
            let inverse = s.div(s.splat(self.first + self.by * step as f32 + self.top), s.sub(high, min));
            let mut q = [zero; N];
            let (mut sum_q, mut sum_qq, mut sum_qx) = (zero, zero, zero);
            for ((&x, &w), q) in x.iter().zip(w).zip(&mut q) {
                *q = level(s, s.mul(inverse, s.sub(x, min)), zero, top);
                let weighed = s.mul(w, *q);
                sum_q = s.add(sum_q, weighed);
                sum_qq = s.add(sum_qq, s.mul(weighed, *q));
                sum_qx = s.add(sum_qx, s.mul(weighed, x));
            }
            let det = s.sub(s.mul(sum_w, sum_qq), s.mul(sum_q, sum_q));
            let fitting = s.div(s.sub(s.mul(sum_w, sum_qx), s.mul(sum_x, sum_q)), det);
            let lowest = s.div(s.sub(s.mul(sum_qq, sum_x), s.mul(sum_q, sum_qx)), det);
            // A minimum above zero cannot be said.
            let fitting = s.if_more(lowest, zero, s.div(sum_qx, sum_qq), fitting);
            let lowest = s.if_more(lowest, zero, zero, lowest);
            let mut error = zero;
            for ((&x, &w), &q) in x.iter().zip(w).zip(&q) {
                let of_one = s.sub(s.add(s.mul(fitting, q), lowest), x);
                error = s.add(error, s.mul(w, size(of_one)));
            }
            let error = s.if_more(det, zero, error, s.splat(f32::INFINITY));
            scale = s.if_more(least, error, fitting, scale);
            min = s.if_more(least, error, lowest, min);
            least = s.if_more(least, error, error, least);
        }
        let min = s.if_more(span, zero, min, low);
        (s.if_more(span, zero, scale, zero), s.sub(zero, min))
    }
}

/// The largest magnitude, and the value that has it: the first of them if there are several.
#[inline(always)]
fn farthest<S: Simd>(s: S, x: &[S::F]) -> (S::F, S::F) {
    let (mut most, mut far) = (s.splat(0.0), s.splat(0.0));
    for &x in x {
        far = s.if_more(s.abs(x), most, x, far);
        most = s.max(s.abs(x), most);
    }
    (most, far)
}

/// Of the scale that fits levels best and the one so far, with what each takes from the error, the better one. Levels are
/// told by their weighed products with the weights and with themselves.
#[inline(always)]
fn better<S: Simd>(s: S, (sum_qx, sum_qq): (S::F, S::F), (scale, best): (S::F, S::F)) -> (S::F, S::F) {
    let fitting = s.div(sum_qx, sum_qq);
    let (ours, theirs) = (s.mul(sum_qx, sum_qx), s.mul(best, sum_qq));
    let gain = s.mul(fitting, sum_qx);
    (s.if_more(ours, theirs, fitting, scale), s.if_more(ours, theirs, gain, best))
}

impl Search for Symmetric {
    #[inline(always)]
    fn of<S: Simd, const N: usize>(self, s: S, Groups { x, w }: Groups<S, N>) -> (S::F, S::F) {
        let (zero, low, high) = (s.splat(0.0), s.splat(-self.most), s.splat(self.most - 1.0));
        let (most, far) = farthest(s, x);
        let (mut scale, mut best) = (zero, zero);
        // The value that is farthest from zero as the lowest level; then the levels a little wider and narrower.
        for by in std::iter::once(0).chain(-9..=-1).chain(1..=9) {
            let inverse = s.div(s.splat(-(self.most + 0.1 * by as f32)), far);
            let (mut sum_qx, mut sum_qq) = (zero, zero);
            for (&x, &w) in x.iter().zip(w) {
                let q = level(s, s.mul(inverse, x), low, high);
                let weighed = s.mul(w, q);
                sum_qx = s.add(sum_qx, s.mul(weighed, x));
                sum_qq = s.add(sum_qq, s.mul(weighed, q));
            }
            (scale, best) = better(s, (sum_qx, sum_qq), (scale, best));
        }
        (s.if_more(most, s.splat(NOTHING), scale, zero), zero)
    }
}

impl Search for LevelByLevel {
    #[inline(always)]
    fn of<S: Simd, const N: usize>(self, s: S, Groups { x, w }: Groups<S, N>) -> (S::F, S::F) {
        let (zero, low, high) = (s.splat(0.0), s.splat(-self.most), s.splat(self.most - 1.0));
        let (most, far) = farthest(s, x);
        let inverse = s.div(low, far);
        let mut q = [zero; N];
        let (mut sum_qx, mut sum_qq) = (zero, zero);
        for ((&x, &w), q) in x.iter().zip(w).zip(&mut q) {
            *q = level(s, s.mul(inverse, x), low, high);
            let weighed = s.mul(w, *q);
            sum_qx = s.add(sum_qx, s.mul(weighed, x));
            sum_qq = s.add(sum_qq, s.mul(weighed, *q));
        }
        for _ in 0..5 {
            for ((&x, &w), q) in x.iter().zip(w).zip(&mut q) {
                let weighed = s.mul(w, *q);
                let others_qx = s.sub(sum_qx, s.mul(weighed, x));
                let others_qq = s.sub(sum_qq, s.mul(weighed, *q));
                let new = level(s, s.div(s.mul(x, others_qq), others_qx), low, high);
                let weighed = s.mul(w, new);
                let new_qx = s.add(others_qx, s.mul(weighed, x));
                let new_qq = s.add(others_qq, s.mul(weighed, new));
                // The gain, and nothing where the others alone give no scale.
                let ours = s.mul(s.mul(new_qx, new_qx), sum_qq);
                let ours = s.if_more(others_qx, zero, s.if_more(new_qq, zero, ours, zero), zero);
                let theirs = s.mul(s.mul(sum_qx, sum_qx), new_qq);
                *q = s.if_more(ours, theirs, new, *q);
                sum_qx = s.if_more(ours, theirs, new_qx, sum_qx);
                sum_qq = s.if_more(ours, theirs, new_qq, sum_qq);
            }
        }
        let scale = s.if_more(sum_qq, zero, s.div(sum_qx, sum_qq), zero);
        (s.if_more(most, s.splat(NOTHING), scale, zero), zero)
    }
}

impl Search for Positive {
    #[inline(always)]
    fn of<S: Simd, const N: usize>(self, s: S, Groups { x, w }: Groups<S, N>) -> (S::F, S::F) {
        let (zero, one, top) = (s.splat(0.0), s.splat(1.0), s.splat(self.top));
        let mut most = zero;
        for &x in x {
            most = s.max(x, most);
        }
        let mut inverse = s.div(top, most);
        let mut least = s.splat(f32::INFINITY);
        for by in [0, -4, -3, -2, -1, 1, 2, 3, 4] {
            let tried = s.div(s.splat(0.1 * by as f32 + self.top), most);
            let step = s.div(one, tried);
            let mut error = zero;
            for (&x, &w) in x.iter().zip(w) {
                let off = s.sub(x, s.mul(step, level(s, s.mul(tried, x), zero, top)));
                error = s.add(error, s.mul(w, s.mul(off, off)));
            }
            inverse = s.if_more(least, error, tried, inverse);
            least = s.if_more(least, error, error, least);
        }
        let (mut sum_qx, mut sum_qq) = (zero, zero);
        for (&x, &w) in x.iter().zip(w) {
            let q = level(s, s.mul(inverse, x), zero, top);
            let weighed = s.mul(w, q);
            sum_qx = s.add(sum_qx, s.mul(weighed, x));
            sum_qq = s.add(sum_qq, s.mul(weighed, q));
        }
        let scale = s.if_more(sum_qq, zero, s.div(sum_qx, sum_qq), zero);
        (s.if_more(most, s.splat(NOTHING), scale, zero), zero)
    }
}

impl Search for Table {
    #[inline(always)]
    fn of<S: Simd, const N: usize>(self, s: S, Groups { x, w }: Groups<S, N>) -> (S::F, S::F) {
        let zero = s.splat(0.0);
        let (most, far) = farthest(s, x);
        let (mut scale, mut best) = (zero, zero);
        // The value that is farthest from zero on the other side of it, then as the first level or near it.
        let tries = std::iter::once(-self.levels[0]).chain((-7..=7).map(|by| by as f32 + self.levels[0]));
        for tried in tries {
            let inverse = s.div(s.splat(tried), far);
            let (mut sum_qx, mut sum_qq) = (zero, zero);
            for (&x, &w) in x.iter().zip(w) {
                let at = s.mul(inverse, x);
                let mut q = s.splat(self.levels[0]);
                for pair in self.levels.windows(2) {
                    q = s.if_more(s.splat((pair[0] + pair[1]) / 2.0), at, q, s.splat(pair[1]));
                }
                let weighed = s.mul(w, q);
                sum_qx = s.add(sum_qx, s.mul(weighed, x));
                sum_qq = s.add(sum_qq, s.mul(weighed, q));
            }
            (scale, best) = better(s, (sum_qx, sum_qq), (scale, best));
        }
        (s.if_more(most, s.splat(NOTHING), scale, zero), zero)
    }
}
