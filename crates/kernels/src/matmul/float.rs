//! Float weights times f32 activations, generic over the tier.

use super::{OutStripe, Weight};
use crate::{
    quant::{F16, GgmlType},
    simd::{Isa, Kernel, LANES, Simd},
};

/// A float as it lies in the file.
trait FloatWeight: bytemuck::Pod {
    fn load<S: Simd>(s: S, w: &[Self; LANES]) -> S::F;
    fn load_partial<S: Simd>(s: S, w: &[Self]) -> S::F;
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct F32Le([u8; 4]);

impl FloatWeight for F32Le {
    #[inline(always)]
    fn load<S: Simd>(s: S, w: &[Self; LANES]) -> S::F {
        let mut x = [0.0; LANES];
        for (x, w) in x.iter_mut().zip(w) {
            *x = f32::from_le_bytes(w.0);
        }
        s.load(&x)
    }
    #[inline(always)]
    fn load_partial<S: Simd>(s: S, w: &[Self]) -> S::F {
        let mut all = [F32Le([0; 4]); LANES];
        all[..w.len()].copy_from_slice(w);
        Self::load(s, &all)
    }
}

impl FloatWeight for F16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, w: &[Self; LANES]) -> S::F {
        s.load_f16(w)
    }
    #[inline(always)]
    fn load_partial<S: Simd>(s: S, w: &[Self]) -> S::F {
        s.load_f16_partial(w)
    }
}

/// A bfloat16.
impl FloatWeight for [u8; 2] {
    #[inline(always)]
    fn load<S: Simd>(s: S, w: &[Self; LANES]) -> S::F {
        s.load_bf16(w)
    }
    #[inline(always)]
    fn load_partial<S: Simd>(s: S, w: &[Self]) -> S::F {
        s.load_bf16_partial(w)
    }
}

pub fn matmul(isa: Isa, w: &Weight, x: &[f32], out: &mut OutStripe) {
    match w.ty() {
        GgmlType::F32 => isa.dispatch(Rows::<F32Le> { w, weights: bytemuck::cast_slice(w.bytes()), x, out }),
        GgmlType::F16 => isa.dispatch(Rows::<F16> { w, weights: bytemuck::cast_slice(w.bytes()), x, out }),
        GgmlType::BF16 => {
            isa.dispatch(Rows::<[u8; 2]> { w, weights: bytemuck::cast_slice(w.bytes()), x, out })
        }
        other => panic!("{other} weights take quantized activations"),
    }
}

struct Rows<'a, 'o, W> {
    w: &'a Weight<'a>,
    weights: &'a [W],
    x: &'a [f32],
    out: &'a mut OutStripe<'o>,
}

impl<W: FloatWeight> Kernel for Rows<'_, '_, W> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let rows = self.out.rows();
        let whole = rows.len() / 4 * 4;
        for row in (rows.start..rows.start + whole).step_by(4) {
            self.four_rows(s, row);
        }
        for row in rows.start + whole..rows.end {
            for column in 0..self.out.columns() {
                self.tile::<S, 1, 1>(s, row, column);
            }
        }
    }
}

impl<W: FloatWeight> Rows<'_, '_, W> {
    /// All columns, in tiles whose sums fit half of the registers.
    #[inline(always)]
    fn four_rows<S: Simd>(&mut self, s: S, row: usize) {
        let columns = self.out.columns();
        let mut c = 0;
        while S::REGISTERS >= 32 && columns - c >= 4 {
            self.tile::<S, 4, 4>(s, row, c);
            c += 4;
        }
        while columns - c >= 2 {
            if S::REGISTERS >= 32 {
                self.tile::<S, 4, 2>(s, row, c);
            } else {
                self.tile::<S, 2, 2>(s, row, c);
                self.tile::<S, 2, 2>(s, row + 2, c);
            }
            c += 2;
        }
        if c < columns {
            self.tile::<S, 4, 1>(s, row, c);
        }
    }

    /// R rows times C columns: R·C independent chains, each weight and each activation loaded once.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize>(&mut self, s: S, row: usize, column: usize) {
        let k = self.w.cols();
        let (whole, rest) = (k / LANES, k % LANES);
        let mut w: [&[W]; R] = [&[]; R];
        let mut x: [&[f32]; C] = [&[]; C];
        for (r, w) in w.iter_mut().enumerate() {
            *w = &self.weights[(row + r) * k..][..k];
        }
        for (c, x) in x.iter_mut().enumerate() {
            *x = &self.x[(column + c) * k..][..k];
        }
        let mut acc = [[s.splat(0.0); C]; R];
        // The hardware does not foresee rows side by side; the next R lie behind these.
        let step = if column == 0 { R * LANES * size_of::<W>() } else { 0 };
        let next = self.weights.as_ptr().cast::<u8>().wrapping_add((row + R) * k * size_of::<W>());
        for i in 0..whole {
            for line in (0..step).step_by(64) {
                s.prefetch(next.wrapping_add(i * step + line));
            }
            let mut xs = [s.splat(0.0); C];
            for c in 0..C {
                xs[c] = s.load(&x[c].as_chunks::<LANES>().0[i]);
            }
            for r in 0..R {
                let w = W::load(s, &w[r].as_chunks::<LANES>().0[i]);
                for c in 0..C {
                    acc[r][c] = s.fma(w, xs[c], acc[r][c]);
                }
            }
        }
        if rest > 0 {
            for r in 0..R {
                let w = W::load_partial(s, &w[r][k - rest..]);
                for c in 0..C {
                    acc[r][c] = s.fma(w, s.load_partial(&x[c][k - rest..]), acc[r][c]);
                }
            }
        }
        for c in column..column + C {
            let mut results = [0.0; R];
            for r in 0..R {
                results[r] = s.reduce_add(acc[r][c - column]);
            }
            self.out.put(c, row, &results);
        }
    }
}
