//! Float weights times f32 activations, generic over the tier.

use super::{OutStripe, Weight};
use crate::{
    backend::cpu::simd::{Isa, Kernel, LANES, Simd},
    quant::{F16, GgmlType},
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
        let (whole, rest) = (rows.len() / 4 * 4, rows.len() % 4);
        for row in (rows.start..rows.start + whole).step_by(4) {
            self.all_columns::<S, 4>(s, row);
        }
        for row in rows.end - rest..rows.end {
            self.all_columns::<S, 1>(s, row);
        }
    }
}

impl<W: FloatWeight> Rows<'_, '_, W> {
    #[inline(always)]
    fn all_columns<S: Simd, const R: usize>(&mut self, s: S, row: usize) {
        let columns = self.out.columns();
        let mut c = 0;
        while S::REGISTERS >= 32 && columns - c >= 4 {
            self.tile::<S, R, 4>(s, row, c);
            c += 4;
        }
        while columns - c >= 2 {
            self.tile::<S, R, 2>(s, row, c);
            c += 2;
        }
        if c < columns {
            self.tile::<S, R, 1>(s, row, c);
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
        for i in 0..whole {
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
        for c in 0..C {
            let mut results = [0.0; R];
            for r in 0..R {
                results[r] = s.reduce_add(acc[r][c]);
            }
            self.out.put(column + c, row, &results);
        }
    }
}
