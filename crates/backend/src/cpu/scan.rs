//! The recurrence of a recurrent layer: a head's matrix, and rows of a text that go through it one after the other.
//!
//! The columns of the matrix do not know of each other. So they lie in blocks that fit the L1 cache, a block by itself, and it
//! takes several rows before the next one has its turn. No number depends on how many.

use super::{
    ops::sum_of_squares,
    simd::{Isa, Kernel, LANES, Simd},
};
use crate::plan::{Scan, ScanKind, WeightId};

/// Columns of a block: four vectors' sums hide most of what an addition waits for.
const BLOCK: usize = 4 * LANES;

/// Rows that a block takes in its turn.
const ROWS: usize = 16;

/// What of a row's step is there by head.
#[derive(Clone, Copy, Default)]
pub struct Gates {
    pub step: f32,
    pub beta: f32,
}

/// What a scan has of weights, by head.
pub struct Numbers<'a> {
    scan: &'a Scan,
    step_bias: &'a [f32],
    decay: &'a [f32],
    through: Option<&'a [f32]>,
}

impl<'a> Numbers<'a> {
    pub fn new(scan: &'a Scan, vectors: &'a [Vec<f32>]) -> Self {
        let vector = |id: WeightId| vectors[id.0 as usize].as_slice();
        Numbers {
            scan,
            step_bias: vector(scan.step_bias),
            decay: vector(scan.decay),
            through: match scan.kind {
                ScanKind::GatedDelta { .. } => None,
                ScanKind::Mamba2 { through } => Some(vector(through)),
            },
        }
    }

    /// `count` rows through a head's matrix, which goes on in `state` from what it is in `from`; `None`: from what it is there.
    /// `input`: what the convolution gave for a row, and its gates. `output` is given what comes out.
    pub fn go_through<'x>(
        &self,
        (isa, head, count): (Isa, usize, usize),
        (mut from, state): (Option<&[f32]>, &mut [f32]),
        scratch: &mut Vec<f32>,
        input: impl Fn(usize) -> (&'x [f32], Gates),
        mut output: impl FnMut(usize, &[f32]),
    ) {
        let Scan { rows, columns, .. } = *self.scan;
        let at = self.scan.columns_of(head);
        scratch.resize(ROWS * 2 * (rows + columns), 0.0);
        let (keys, values) = scratch.split_at_mut(ROWS * 2 * rows);
        let (q, k) = keys.split_at_mut(ROWS * rows);
        let (v, out) = values.split_at_mut(ROWS * columns);
        for first in (0..count).step_by(ROWS) {
            let turn = ROWS.min(count - first);
            let mut gates = [Gates::default(); ROWS];
            for (n, gates) in gates[..turn].iter_mut().enumerate() {
                let (x, own) = input(first + n);
                *gates = own;
                q[n * rows..][..rows].copy_from_slice(&x[at.q..][..rows]);
                k[n * rows..][..rows].copy_from_slice(&x[at.k..][..rows]);
                v[n * columns..][..columns].copy_from_slice(&x[at.v..][..columns]);
            }
            isa.dispatch(Turn {
                scan: self.scan,
                gates: &gates[..turn],
                step_bias: self.step_bias[head],
                decay: self.decay[head],
                through: self.through.map_or(0.0, |through| through[head]),
                q: &mut *q,
                k: &mut *k,
                v,
                from: from.take(),
                state: &mut *state,
                out: &mut *out,
            });
            out.chunks_exact(columns).take(turn).enumerate().for_each(|(n, out)| output(first + n, out));
        }
    }
}

/// Some rows, each in its part of `q`, `k`, `v` and `out`.
struct Turn<'a> {
    scan: &'a Scan,
    gates: &'a [Gates],
    step_bias: f32,
    decay: f32,
    /// Of a Mamba 2.
    through: f32,
    q: &'a mut [f32],
    k: &'a mut [f32],
    v: &'a [f32],
    from: Option<&'a [f32]>,
    state: &'a mut [f32],
    out: &'a mut [f32],
}

/// A row's step for some columns.
struct Step<'a> {
    keep: f32,
    /// How much of a difference is written, or of a value.
    share: f32,
    writes_differences: bool,
    /// On what comes out: a factor, and how much of the value is added.
    scale: f32,
    through: f32,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    from: Option<&'a [f32]>,
    state: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for Turn<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Turn { scan, gates, step_bias, decay, through, q, k, v, from, state, out } = self;
        let Scan { rows, columns, .. } = *scan;
        let mut factors = [(0.0, 0.0); ROWS];
        for (n, (factors, gates)) in factors.iter_mut().zip(gates).enumerate() {
            let size = softplus(gates.step + step_bias);
            let share = match scan.kind {
                ScanKind::GatedDelta { beta: _, eps } => {
                    for x in [&mut q[n * rows..][..rows], &mut k[n * rows..][..rows]] {
                        let length = sum_of_squares(s, x).sqrt().max(eps);
                        x.iter_mut().for_each(|x| *x *= 1.0 / length);
                    }
                    1.0 / (1.0 + (-gates.beta).exp())
                }
                ScanKind::Mamba2 { through: _ } => size,
            };
            *factors = ((size * decay).exp(), share);
        }
        let (writes_differences, scale) = match scan.kind {
            ScanKind::GatedDelta { .. } => (true, 1.0 / (rows as f32).sqrt()),
            ScanKind::Mamba2 { .. } => (false, 1.0),
        };
        let mut at = 0;
        while at < columns {
            let width = BLOCK.min(columns - at);
            let block = at * rows..(at + width) * rows;
            for n in 0..gates.len() {
                let (keep, share) = factors[n];
                let own = n * columns + at..n * columns + at + width;
                let step = Step {
                    keep,
                    share,
                    writes_differences,
                    scale,
                    through,
                    q: &q[n * rows..][..rows],
                    k: &k[n * rows..][..rows],
                    v: &v[own.clone()],
                    from: if n == 0 { from.map(|from| &from[block.clone()]) } else { None },
                    state: &mut state[block.clone()],
                    out: &mut out[own],
                };
                if width == BLOCK { step.whole(s) } else { step.part(s, width) }
            }
            at += width;
        }
    }
}

fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

impl Step<'_> {
    /// What is written, of a value and what the key reads.
    #[inline(always)]
    fn written<S: Simd>(&self, s: S, v: S::F, read: S::F) -> S::F {
        let difference = if self.writes_differences { s.sub(v, s.mul(s.splat(self.keep), read)) } else { v };
        s.mul(difference, s.splat(self.share))
    }

    /// What comes out, of a value and what the query reads.
    #[inline(always)]
    fn result<S: Simd>(&self, s: S, v: S::F, read: S::F) -> S::F {
        match self.writes_differences {
            true => s.mul(read, s.splat(self.scale)),
            false => s.add(read, s.mul(s.splat(self.through), v)),
        }
    }

    /// Of a whole block.
    #[inline(always)]
    fn whole<S: Simd>(mut self, s: S) {
        let state = std::mem::take(&mut self.state).as_chunks_mut::<BLOCK>().0;
        let from = self.from.map(|from| from.as_chunks::<BLOCK>().0);
        let vs = vectors(s, self.v.first_chunk::<BLOCK>().expect("a block's values"));
        let mut read = [s.splat(0.0); 4];
        if self.writes_differences {
            let before: &[[f32; BLOCK]] = from.unwrap_or(state);
            for (row, k) in before.iter().zip(self.k) {
                let k = s.splat(*k);
                for (sum, x) in read.iter_mut().zip(vectors(s, row)) {
                    *sum = s.fma(x, k, *sum);
                }
            }
        }
        let mut written = read;
        for (written, v) in written.iter_mut().zip(vs) {
            *written = self.written(s, v, *written);
        }
        let keep = s.splat(self.keep);
        let mut sums = [s.splat(0.0); 4];
        let mut go_on = |before: [S::F; 4], row: &mut [f32; BLOCK], k: f32, q: f32| {
            let (k, q) = (s.splat(k), s.splat(q));
            let to = row.as_chunks_mut::<LANES>().0;
            for i in 0..4 {
                let kept = s.fma(k, written[i], s.mul(keep, before[i]));
                s.store(kept, &mut to[i]);
                sums[i] = s.fma(kept, q, sums[i]);
            }
        };
        let keys = self.k.iter().zip(self.q);
        match from {
            None => {
                for (row, (k, q)) in state.iter_mut().zip(keys) {
                    go_on(vectors(s, row), row, *k, *q);
                }
            }
            Some(from) => {
                for ((before, row), (k, q)) in from.iter().zip(state).zip(keys) {
                    go_on(vectors(s, before), row, *k, *q);
                }
            }
        }
        let out = std::mem::take(&mut self.out).as_chunks_mut::<LANES>().0;
        for ((out, sum), v) in out.iter_mut().zip(sums).zip(vs) {
            s.store(self.result(s, v, sum), out);
        }
    }

    /// Of a block of fewer columns.
    #[inline(always)]
    fn part<S: Simd>(mut self, s: S, width: usize) {
        let state = std::mem::take(&mut self.state);
        let out = std::mem::take(&mut self.out);
        let mut at = 0;
        while at < width {
            let end = width.min(at + LANES);
            let v = s.load_partial(&self.v[at..end]);
            let mut read = s.splat(0.0);
            if self.writes_differences {
                for (row, k) in self.from.unwrap_or(state).chunks_exact(width).zip(self.k) {
                    read = s.fma(s.load_partial(&row[at..end]), s.splat(*k), read);
                }
            }
            let written = self.written(s, v, read);
            let mut sum = s.splat(0.0);
            for (n, (k, q)) in self.k.iter().zip(self.q).enumerate() {
                let row = n * width + at..n * width + end;
                let before = s.load_partial(&self.from.unwrap_or(state)[row.clone()]);
                let kept = s.fma(s.splat(*k), written, s.mul(s.splat(self.keep), before));
                s.store_partial(kept, &mut state[row]);
                sum = s.fma(kept, s.splat(*q), sum);
            }
            s.store_partial(self.result(s, v, sum), &mut out[at..end]);
            at = end;
        }
    }
}

#[inline(always)]
fn vectors<S: Simd>(s: S, row: &[f32; BLOCK]) -> [S::F; 4] {
    let row = row.as_chunks::<LANES>().0;
    [s.load(&row[0]), s.load(&row[1]), s.load(&row[2]), s.load(&row[3])]
}
