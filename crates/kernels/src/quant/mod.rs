//! Block formats of GGUF tensors, one file each: the block as it lies in the file, what its weights are, how vectors read it,
//! and how it is packed. The scalar meaning is the oracle that every faster kernel is tested against. Ten of them, and
//! the floats, can also be written at once; `quantize` searches for better scales, and writes more of them.

#![allow(clippy::needless_range_loop, reason = "indices keep several arrays in step")]
#![allow(clippy::single_range_in_vec_init, reason = "most blocks have their scales in one place")]

mod affine;
mod f16;
pub(crate) mod ggml_type;
pub mod grids;
pub(crate) mod iq1_m;
pub(crate) mod iq1_s;
pub(crate) mod iq2_s;
pub(crate) mod iq2_xs;
pub(crate) mod iq2_xxs;
pub(crate) mod iq3_s;
pub(crate) mod iq3_xxs;
pub mod iq4_nl;
pub(crate) mod iq4_xs;
pub mod mxfp4;
pub(crate) mod nvfp4;
mod points;
pub(crate) mod q1_0;
pub(crate) mod q2_0;
pub(crate) mod q2_k;
pub(crate) mod q3_k;
pub(crate) mod q4_0;
pub(crate) mod q4_1;
pub mod q4_k;
pub(crate) mod q5_0;
pub(crate) mod q5_1;
pub(crate) mod q5_k;
pub(crate) mod q6_k;
pub(crate) mod q8_0;
pub mod rounding;
pub(crate) mod tq1_0;
pub(crate) mod tq2_0;
pub mod weights;

pub use f16::F16;
pub use ggml_type::{GgmlType, blocks};
pub(crate) use ggml_type::{for_block, for_written_block};
pub use weights::Weights;

/// Hands the table of all types to another macro, behind `$args`. A row has a type's number, the weights of a block and its
/// bytes. A type that products take has its block too; the compiler then asks for the traits of
/// [`format`](crate::matmul::format), and for [`Quantize`] where the row says so.
///
/// Numbers and sizes are llama.cpp's. The gguf package (0.19) differs in two places: it gives Q8_1 40 bytes,
/// where llama.cpp's two scales are halves, and it is older than Q2_0. Missing numbers are withdrawn types.
macro_rules! types {
    ($then:ident $args:tt) => {
        $crate::quant::ggml_type::$then! {
            $args
            F32 = 0, 1, 4;
            F16 = 1, 1, 2;
            Q4_0 = 2, 32, 18, q4_0::BlockQ4_0: Quantize;
            Q4_1 = 3, 32, 20, q4_1::BlockQ4_1: Quantize;
            Q5_0 = 6, 32, 22, q5_0::BlockQ5_0: Quantize;
            Q5_1 = 7, 32, 24, q5_1::BlockQ5_1: Quantize;
            Q8_0 = 8, 32, 34, q8_0::BlockQ8_0: Quantize;
            Q8_1 = 9, 32, 36;
            Q2_K = 10, 256, 84, q2_k::BlockQ2K;
            Q3_K = 11, 256, 110, q3_k::BlockQ3K;
            Q4_K = 12, 256, 144, q4_k::BlockQ4K: Quantize;
            Q5_K = 13, 256, 176, q5_k::BlockQ5K: Quantize;
            Q6_K = 14, 256, 210, q6_k::BlockQ6K: Quantize;
            Q8_K = 15, 256, 292;
            IQ2_XXS = 16, 256, 66, iq2_xxs::BlockIq2Xxs;
            IQ2_XS = 17, 256, 74, iq2_xs::BlockIq2Xs;
            IQ3_XXS = 18, 256, 98, iq3_xxs::BlockIq3Xxs;
            IQ1_S = 19, 256, 50, iq1_s::BlockIq1S;
            IQ4_NL = 20, 32, 18, iq4_nl::BlockIq4Nl;
            IQ3_S = 21, 256, 110, iq3_s::BlockIq3S;
            IQ2_S = 22, 256, 82, iq2_s::BlockIq2S;
            IQ4_XS = 23, 256, 136, iq4_xs::BlockIq4Xs;
            I8 = 24, 1, 1;
            I16 = 25, 1, 2;
            I32 = 26, 1, 4;
            I64 = 27, 1, 8;
            F64 = 28, 1, 8;
            IQ1_M = 29, 256, 56, iq1_m::BlockIq1M;
            BF16 = 30, 1, 2;
            TQ1_0 = 34, 256, 54, tq1_0::BlockTq1;
            TQ2_0 = 35, 256, 66, tq2_0::BlockTq2;
            MXFP4 = 39, 32, 17, mxfp4::BlockMxfp4: Quantize;
            NVFP4 = 40, 64, 36, nvfp4::BlockNvfp4: Quantize;
            Q1_0 = 41, 128, 18, q1_0::BlockQ1_0;
            Q2_0 = 42, 64, 18, q2_0::BlockQ2_0;
        }
    };
}
pub(crate) use types;

/// One block of a quantized row. All fields are bytes, so a block may lie at any address.
pub trait Block: bytemuck::Pod {
    const TYPE: GgmlType;

    /// The `b`-th 32 weights. It is inlined, so that [`dequantize`](Self::dequantize) makes none of what a format has not.
    fn weights(&self, b: usize) -> Weights;

    /// Writes `TYPE.block_len()` weights.
    fn dequantize(&self, out: &mut [f32]) {
        for (b, out) in out.chunks_exact_mut(32).enumerate() {
            self.weights(b).to_floats(out);
        }
    }
}

/// A block format that can be written. `x` has `TYPE.block_len()` finite values.
pub trait Quantize: Block {
    fn quantize(x: &[f32]) -> Self;
}

/// Turns whole blocks of `ty` into numbers; `out` has exactly as many as `bytes` hold.
/// Panics if `ty` is not readable or the lengths do not fit: both are checked when a model is loaded.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    fn run<B: Block>(bytes: &[u8], out: &mut [f32]) {
        let blocks: &[B] = bytemuck::cast_slice(bytes);
        let n = B::TYPE.block_len();
        assert_eq!(blocks.len() * n, out.len());
        for (block, out) in blocks.iter().zip(out.chunks_exact_mut(n)) {
            block.dequantize(out);
        }
    }
    fn floats<const N: usize>(bytes: &[u8], out: &mut [f32], f: impl Fn([u8; N]) -> f32) {
        assert_eq!(bytes.len(), out.len() * N);
        for (b, o) in bytes.chunks_exact(N).zip(out) {
            *o = f(b.try_into().expect("chunk of N"));
        }
    }
    match ty {
        GgmlType::F32 => floats(bytes, out, f32::from_le_bytes),
        GgmlType::F16 => floats(bytes, out, |b| F16(b).to_f32()),
        GgmlType::BF16 => floats(bytes, out, |b| f32::from_bits((u16::from_le_bytes(b) as u32) << 16)),
        _ => for_block!(ty, B => run::<B>(bytes, out), else panic!("{ty} has no dequantizer")),
    }
}

/// Appends `x` to `out` as whole blocks of `ty`: blocks of 32 and 64 are the same bytes as llama.cpp's own reference
/// quantizers give, blocks of 256 a plain rounding with a bounded error. None, with `out` as it was, if `ty` is not
/// [`GgmlType::writable`] or `x` is not whole blocks of it.
#[must_use]
pub fn quantize(ty: GgmlType, x: &[f32], out: &mut Vec<u8>) -> Option<()> {
    fn blocks<B: Quantize>(x: &[f32], out: &mut Vec<u8>) {
        for x in x.chunks_exact(B::TYPE.block_len()) {
            out.extend_from_slice(bytemuck::bytes_of(&B::quantize(x)));
        }
    }
    out.reserve(ty.row_bytes(x.len())?);
    match ty {
        GgmlType::F32 => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
        GgmlType::F16 => out.extend(x.iter().flat_map(|&x| F16::from_f32(x).0)),
        GgmlType::BF16 => out.extend(x.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes())),
        _ => for_written_block!(ty, B => blocks::<B>(x, out), else return None),
    }
    Some(())
}
