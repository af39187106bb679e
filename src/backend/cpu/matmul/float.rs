//! F32, F16 and BF16 weights times f32 rows, in sixteen lanes.

use std::ops::Range;

use super::{OutStripe, Weight};
use crate::{
    backend::cpu::simd::{Isa, Kernel, LANES, Simd},
    quant::GgmlType,
};

/// Weight rows and activation rows that are in hand at once: sixteen independent chains of fma.
const ROWS: usize = 4;
const COLUMNS: usize = 4;

pub fn matmul(isa: Isa, weight: &Weight, rows: Range<usize>, x: &[f32], m: usize, out: OutStripe) {
    isa.dispatch(Product { weight: *weight, rows, x, m, out });
}

struct Product<'a> {
    weight: Weight<'a>,
    rows: Range<usize>,
    /// `[m, cols]`
    x: &'a [f32],
    m: usize,
    out: OutStripe,
}

/// How sixteen weights are read.
trait Elements {
    const BYTES: usize;
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V;
}

struct F32;
struct F16;
struct Bf16;

impl Elements for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_f32_bytes(bytes)
    }
}

impl Elements for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_f16(bytes)
    }
}

impl Elements for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_bf16(bytes)
    }
}

impl Kernel for Product<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.weight.ty {
            GgmlType::F32 => self.typed::<S, F32>(s),
            GgmlType::F16 => self.typed::<S, F16>(s),
            _ => self.typed::<S, Bf16>(s),
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn typed<S: Simd, E: Elements>(self, s: S) {
        let mut row = self.rows.start;
        while row < self.rows.end {
            let mut column = 0;
            if row + ROWS <= self.rows.end {
                while column + COLUMNS <= self.m {
                    self.tile::<S, E, ROWS, COLUMNS>(s, row, column);
                    column += COLUMNS;
                }
                while column < self.m {
                    self.tile::<S, E, ROWS, 1>(s, row, column);
                    column += 1;
                }
                row += ROWS;
            } else {
                for column in 0..self.m {
                    self.tile::<S, E, 1, 1>(s, row, column);
                }
                row += 1;
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd, E: Elements, const R: usize, const C: usize>(&self, s: S, row: usize, column: usize) {
        let cols = self.weight.cols;
        let w: [&[u8]; R] =
            std::array::from_fn(|r| &self.weight.bytes[(row + r) * cols * E::BYTES..][..cols * E::BYTES]);
        let x: [&[f32]; C] = std::array::from_fn(|c| &self.x[(column + c) * cols..][..cols]);
        let mut acc = [[s.zero(); C]; R];
        let whole = cols / LANES * LANES;
        let mut k = 0;
        while k < whole {
            // Loops, not `array::from_fn`: that is compiled without the features of this function.
            let mut loaded = [s.zero(); R];
            for r in 0..R {
                loaded[r] = E::load(s, &w[r][k * E::BYTES..]);
            }
            for c in 0..C {
                let x = s.load(&x[c][k..]);
                for r in 0..R {
                    acc[r][c] = s.fma(loaded[r], x, acc[r][c]);
                }
            }
            k += LANES;
        }
        if whole < cols {
            for r in 0..R {
                let mut bytes = [0; 4 * LANES];
                let tail = &w[r][whole * E::BYTES..];
                bytes[..tail.len()].copy_from_slice(tail);
                let w = E::load(s, &bytes);
                for c in 0..C {
                    acc[r][c] = s.fma(w, s.load_part(&x[c][whole..], 0.0), acc[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                self.out.put(column + c, row + r, s.reduce_add(acc[r][c]));
            }
        }
    }
}
