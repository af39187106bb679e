//! Block formats of GGUF tensors, one file each: the block as it lies in the file and its scalar
//! dequantization, which is the oracle that every faster kernel is tested against. Ten of them, and
//! the floats, can also be written at once; `quantize` searches for better scales, and writes more of them.

mod affine;
pub(crate) mod formats;
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

pub use formats::blocks;
pub(crate) use formats::{for_block, for_packed_block, for_written_block};
pub use ggml_type::GgmlType;
pub use weights::Weights;

/// An IEEE half as it lies in the file: little-endian, at any address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F16(pub [u8; 2]);

impl F16 {
    /// The nearest half.
    pub fn from_f32(x: f32) -> Self {
        F16(half::f16::from_f32(x).to_le_bytes())
    }

    /// Sign, exponent and mantissa.
    pub fn bits(self) -> u16 {
        u16::from_le_bytes(self.0)
    }

    /// Exact, with selects in place of branches, so that loops over it become SIMD on any target.
    /// A NaN comes out quiet with its payload kept, as from the conversion instructions.
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        const REBIAS: u32 = (127 - 15) << 23;
        const SMALLEST_NORMAL: f32 = f32::from_bits(REBIAS + (1 << 23));
        let bits = u16::from_le_bytes(self.0) as u32;
        let magnitude = (bits & 0x7fff) << 13;
        let finite = if magnitude < 1 << 23 {
            // The mantissa under the exponent of the smallest normal half, less that half.
            (f32::from_bits(magnitude + REBIAS + (1 << 23)) - SMALLEST_NORMAL).to_bits()
        } else {
            magnitude + REBIAS
        };
        let top = if magnitude >= 31 << 23 { 255 << 23 } else { 0 };
        let quiet = if magnitude > 31 << 23 { 1 << 22 } else { 0 };
        f32::from_bits((bits & 0x8000) << 16 | finite | top | quiet)
    }
}

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

impl GgmlType {
    /// True if this build can turn it into numbers.
    pub fn readable(self) -> bool {
        self.is_float() || for_block!(self, B => true, else false)
    }

    /// True if [`quantize`] can write it.
    pub fn writable(self) -> bool {
        self.is_float() || for_written_block!(self, B => true, else false)
    }

    /// True for the floats that weights may be.
    fn is_float(self) -> bool {
        matches!(self, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_converts_as_ieee_says() {
        for bits in 0..=u16::MAX {
            let ours = F16(bits.to_le_bytes()).to_f32();
            let theirs = half::f16::from_bits(bits).to_f32_const();
            assert_eq!(ours.to_bits(), theirs.to_bits(), "half {bits:#06x}");
        }
    }
}
