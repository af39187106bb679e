//! `out[c][r] = Σ_k w[r][k] · x[c][k]`, the weights read from the blocks of the file as they lie there, or
//! [`Packed`].
//!
//! # The contract
//!
//! A result is the same f32, bit for bit, on every tier, for any number of columns, whatever the other columns
//! hold, and however the weight rows are split over calls and threads. Every kernel, those for repacked
//! weights included, computes exactly this (a NaN is a NaN; its payload is free):
//!
//! **Activations** of quantized weights are quantized once per row ([`QuantRows`]), per 32 values:
//! `amax` = the largest |x|; `d = amax / 127`; `q = round_ties_even(x · (127 / amax))`, each operation rounded
//! to f32. If `amax < 2^-100`, d and all q are 0. If a value is NaN or infinite, all q are 0 and d is NaN.
//! `half_sums` are the two sums of 16 q, and `xs = d · f32(sum of the 32 q)`.
//!
//! **Quantized weights** are a sequence of 32-wide blocks: 32 signed integers `w`, a scale `a`, and for
//! some formats two integer sub-scales `s0`, `s1` (else both are 1) and a minimum. One f32 accumulator per
//! result starts at +0.0 and takes the blocks in order:
//! ```text
//! isum = s0 · Σ w[i]·q[i] over i < 16  +  s1 · Σ w[i]·q[i] over i >= 16       exact, in i32
//! acc  = fma(a · d, f32(isum), acc)                                           a · d rounded to f32
//! acc  = fma(n, xs, acc)                                                      Q4_1 Q5_1 Q4_K Q5_K
//! acc  = fma(n0, d · f32(half_sums[0]), acc), then the same with n1           Q2_K
//! ```
//! Where either half has a scale, `acc = fma(a0 · d, f32(Σ w[i]·q[i] over i < 16), acc)`, then the same with a1 and the others.
//!
//! The file of each format in `quant` says at its top what these are, `s` being both sub-scales and `n` the minimum.
//!
//! **Float weights** (F32, F16, BF16) meet f32 activations: 16 accumulators start at +0.0; number j takes the
//! k with k mod 16 = j in order, `acc = fma(w, x, acc)`; a row that is no multiple of 16 long goes on
//! with zeros. The accumulators are added pairwise: j and j+8, then j+4, j+2, j+1.
//!
//! **Coarse** products ([`Weight::coarse`]) are the same with other weights: only the high bits of an integer count, and it
//! becomes the middle of those that have these bits. To be whole it is doubled, and `a` is halved.
//!
//! With [`Weight::times`] a result is then multiplied by a number of the matrix, rounded once.
//!
//! With [`Mode::Add`] the result is added to what stands in the output, rounded once.

mod acts;
mod float;
pub(crate) mod format;
mod out;
mod packed;
mod pairs;
mod scalar;
mod vector;

pub use acts::{ActGroup, GROUP, QuantRows, QuantRowsWriter};
pub use out::{Mode, OutMatrix, OutStripe};
pub use packed::{HighBits, Packable, Packed, PackedForm, PackedMemory, PerHighBits, Planes, split::Split};

use super::simd::Isa;
use crate::quant::{GgmlType, for_block};

/// A matrix of weights, `[rows, cols]`, row by row as in the file, or packed.
#[derive(Clone, Copy)]
pub struct Weight<'a> {
    ty: GgmlType,
    bytes: &'a [u8],
    packed: Option<&'a Packed>,
    coarse: bool,
    factor: f32,
    rows: usize,
    cols: usize,
    row_bytes: usize,
}

impl<'a> Weight<'a> {
    /// Panics unless `ty` is readable and `bytes` are exactly `rows` rows of whole blocks: both are checked
    /// when a model is loaded.
    pub fn new(ty: GgmlType, bytes: &'a [u8], rows: usize, cols: usize) -> Self {
        assert!(ty.readable(), "{ty} weights have no kernel");
        let row_bytes = ty.row_bytes(cols).expect("a row is whole blocks");
        assert_eq!(Some(bytes.len()), row_bytes.checked_mul(rows), "{ty} [{rows}, {cols}]");
        Weight { ty, bytes, packed: None, coarse: false, factor: 1.0, rows, cols, row_bytes }
    }

    pub fn packed(packed: &'a Packed) -> Self {
        Weight {
            ty: packed.ty(),
            bytes: &[],
            packed: Some(packed),
            coarse: false,
            factor: 1.0,
            rows: packed.rows(),
            cols: packed.cols(),
            row_bytes: 0,
        }
    }

    /// If it is packed.
    pub fn as_packed(&self) -> Option<&'a Packed> {
        self.packed
    }

    /// The same by the high bits alone, where they lie apart; else in full.
    pub fn coarse(self, coarse: bool) -> Self {
        Weight { coarse, ..self }
    }

    /// The same with results that are so many times as large.
    pub fn times(self, factor: f32) -> Self {
        Weight { factor, ..self }
    }

    /// By how much results are larger.
    pub fn factor(&self) -> f32 {
        self.factor
    }

    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    /// As in the file; packed weights have none.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// As in the file.
    pub fn row(&self, r: usize) -> &'a [u8] {
        &self.bytes[r * self.row_bytes..][..self.row_bytes]
    }

    /// Whether products of this type take much longer while it lies as in the file, many columns too.
    pub fn is_slow_in_file(ty: GgmlType) -> bool {
        for_block!(ty, B => <B as vector::Format>::ROW_BY_ROW, else false)
    }

    /// True if [`matmul`] wants the activations of this matrix as [`Acts::Quantized`].
    pub fn wants_quantized(&self) -> bool {
        !matches!(self.ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16)
    }
}

/// The columns: m rows of k activations.
#[derive(Clone, Copy)]
pub enum Acts<'a> {
    /// For quantized weights.
    Quantized(&'a QuantRows),
    /// For float weights: `[m, k]`.
    Float(&'a [f32]),
}

/// Computes the weight rows of `out` for every column. Panics if the shapes do not fit, if `x` is of the wrong
/// kind for `w` (see [`Weight::wants_quantized`]), or if the machine lacks `isa`.
pub fn matmul(isa: Isa, w: &Weight, x: Acts, out: &mut OutStripe) {
    assert!(isa.is_available(), "this machine has no {isa}");
    assert_eq!(w.rows, out.matrix_rows(), "rows of the weights and of the output");
    out.set_factor(w.factor);
    match x {
        Acts::Float(x) => {
            assert_eq!(x.len(), out.columns() * w.cols, "activations are [{}, {}]", out.columns(), w.cols);
            float::matmul(isa, w, x, out);
        }
        Acts::Quantized(x) => {
            assert_eq!((x.rows(), x.k()), (out.columns(), w.cols), "shape of the activations");
            quantized(isa, w, x, out);
        }
    }
}

fn quantized(isa: Isa, w: &Weight, x: &QuantRows, out: &mut OutStripe) {
    if let Some(packed) = w.packed {
        return self::packed(isa, packed, w.coarse, x, out);
    }
    for_block!(
        w.ty,
        B => match isa {
            Isa::Scalar => scalar::rows::<B>(w, x, out),
            _ => vector::rows::<B>(isa, w, x, out),
        },
        else panic!("{} weights take float activations", w.ty)
    )
}

fn packed(isa: Isa, w: &Packed, coarse: bool, x: &QuantRows, out: &mut OutStripe) {
    let coarse = coarse && w.has_coarse();
    packed::for_packed!(w.ty(), w.layout(), (B, S) => match isa {
        Isa::Scalar => packed::scalar_rows::<B, S>(w, coarse, x, out),
        _ => vector::packed_rows::<B, S>(isa, w, coarse, x, out),
    })
}
