//! Matrices from GGUF blocks, read straight from the map, times a few or many rows of activations.
//!
//! # The contract is the bits
//!
//! An output is the same f32 bits on every instruction set, for any number of activation rows and any split of
//! the weight rows over threads. Every kernel, also one over another layout of the weights, keeps to this:
//!
//! - Activations for quantized weights: per 32 of a row `d = max|x| / 127` and `q = round_ties_even(x · 127/max|x|)`
//!   as i8, `d = 0` and `q = 0` where all are zero. `xs = d · Σq`, as one f32 product; per half of 16 likewise.
//! - A format is seen as blocks of 32 weights: integers `w`, a scale `a` (f32), for formats with scales per 16 two
//!   integer scales `s`, and for formats with minima a negated minimum `m` (f32) per 32 or per 16.
//! - One accumulator per output, starting at +0. For each block in order of k:
//!   `acc = fma(a·d, Σ(s·w·q), acc)`, the sum in exact integers, and then, where there are minima,
//!   `acc = fma(m, xs, acc)`, per half where they are per half.
//! - Float weights and f32 activations: lane j of sixteen adds up k ≡ j (mod 16) by fma, in order of k, a short
//!   tail filled with zeros; then the halving tree of [`Simd::reduce_add`](super::simd::Simd::reduce_add).

mod acts;
mod blocks;
mod codec;
mod float;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

pub use acts::QuantRows;

use super::{rows::SharedRows, simd::Isa};
use crate::quant::{
    GgmlType, iq4_nl::BlockIq4Nl, iq4_xs::BlockIq4Xs, mxfp4::BlockMxfp4, q2_k::BlockQ2K, q3_k::BlockQ3K,
    q4_0::BlockQ4_0, q4_1::BlockQ4_1, q4_k::BlockQ4K, q5_0::BlockQ5_0, q5_1::BlockQ5_1, q5_k::BlockQ5K,
    q6_k::BlockQ6K, q8_0::BlockQ8_0,
};

/// A matrix as it lies in the file: `rows` rows of `cols` weights.
#[derive(Clone, Copy)]
pub struct Weight<'a> {
    ty: GgmlType,
    bytes: &'a [u8],
    rows: usize,
    cols: usize,
}

impl<'a> Weight<'a> {
    pub fn new(ty: GgmlType, bytes: &'a [u8], rows: usize, cols: usize) -> Self {
        assert_eq!(ty.row_bytes(cols).and_then(|row| row.checked_mul(rows)), Some(bytes.len()));
        Weight { ty, bytes, rows, cols }
    }
}

/// What a matrix is multiplied with: int8 rows for quantized weights, f32 rows `[rows, cols]` for float ones.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    Int8(&'a QuantRows),
    F32(&'a [f32]),
}

/// Where results go: `[rows, stride]`, of which a thread writes the columns of its own weight rows.
#[derive(Clone, Copy)]
pub struct OutStripe {
    ptr: *mut f32,
    len: usize,
    stride: usize,
    add: bool,
}

impl OutStripe {
    /// # Safety
    /// The memory outlives the stripe, and until the next barrier nobody else touches the columns that are
    /// written through it.
    pub unsafe fn new(ptr: *mut f32, len: usize, stride: usize) -> Self {
        OutStripe { ptr, len, stride, add: false }
    }

    /// With `add`, results are added to what is there.
    ///
    /// # Safety
    /// As for `new`.
    pub unsafe fn of(rows: &SharedRows, add: bool) -> Self {
        OutStripe { ptr: rows.as_ptr(), len: rows.len(), stride: rows.width(), add }
    }

    #[inline(always)]
    fn put(&self, row: usize, column: usize, value: f32) {
        let at = row * self.stride + column;
        assert!(column < self.stride && at < self.len);
        // SAFETY: inside the memory that `new` was promised, in a column of this thread's own.
        unsafe {
            let out = self.ptr.add(at);
            *out = if self.add { *out + value } else { value };
        }
    }
}

/// `out[m][r] = weight[r] · input[m]` for the given weight rows and the first `m` rows of the input.
pub fn matmul(isa: Isa, weight: &Weight, rows: Range<usize>, input: Input, m: usize, out: OutStripe) {
    use GgmlType as T;
    assert!(rows.end <= weight.rows);
    match (weight.ty, input) {
        (T::F32 | T::F16 | T::BF16, Input::F32(x)) => float::matmul(isa, weight, rows, &x[..m * weight.cols], m, out),
        (T::Q4_0, Input::Int8(x)) => blocks::matmul::<BlockQ4_0>(isa, weight, rows, x, m, out),
        (T::Q4_1, Input::Int8(x)) => blocks::matmul::<BlockQ4_1>(isa, weight, rows, x, m, out),
        (T::Q5_0, Input::Int8(x)) => blocks::matmul::<BlockQ5_0>(isa, weight, rows, x, m, out),
        (T::Q5_1, Input::Int8(x)) => blocks::matmul::<BlockQ5_1>(isa, weight, rows, x, m, out),
        (T::Q8_0, Input::Int8(x)) => blocks::matmul::<BlockQ8_0>(isa, weight, rows, x, m, out),
        (T::Q2_K, Input::Int8(x)) => blocks::matmul::<BlockQ2K>(isa, weight, rows, x, m, out),
        (T::Q3_K, Input::Int8(x)) => blocks::matmul::<BlockQ3K>(isa, weight, rows, x, m, out),
        (T::Q4_K, Input::Int8(x)) => blocks::matmul::<BlockQ4K>(isa, weight, rows, x, m, out),
        (T::Q5_K, Input::Int8(x)) => blocks::matmul::<BlockQ5K>(isa, weight, rows, x, m, out),
        (T::Q6_K, Input::Int8(x)) => blocks::matmul::<BlockQ6K>(isa, weight, rows, x, m, out),
        (T::IQ4_NL, Input::Int8(x)) => blocks::matmul::<BlockIq4Nl>(isa, weight, rows, x, m, out),
        (T::IQ4_XS, Input::Int8(x)) => blocks::matmul::<BlockIq4Xs>(isa, weight, rows, x, m, out),
        (T::MXFP4, Input::Int8(x)) => blocks::matmul::<BlockMxfp4>(isa, weight, rows, x, m, out),
        (ty, Input::Int8(_)) => unreachable!("{ty} is not multiplied in int8"),
        (ty, Input::F32(_)) => unreachable!("{ty} is not multiplied in f32"),
    }
}
