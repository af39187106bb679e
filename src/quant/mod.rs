//! Block formats of GGUF tensors, one file each: the block as it lies in the file and its scalar
//! dequantization, which is the oracle that every faster kernel is tested against. Eight of them, and
//! the floats, can also be written.

mod affine;
pub mod ggml_type;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod quantize;

pub use ggml_type::GgmlType;
pub use quantize::quantize;

/// An IEEE half as it lies in the file: little-endian, at any address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F16(pub [u8; 2]);

impl F16 {
    pub fn from_f32(x: f32) -> Self {
        F16(half::f16::from_f32(x).to_le_bytes())
    }

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

    /// Writes `TYPE.block_len()` weights.
    fn dequantize(&self, out: &mut [f32]);
}

/// Ties each struct to the size that the type table gives.
const fn size_is_right<B: Block>() {
    let (size, align) = (size_of::<B>(), align_of::<B>());
    assert!(size == B::TYPE.block_bytes() && align == 1);
}

const _: () = {
    size_is_right::<q4_0::BlockQ4_0>();
    size_is_right::<q4_1::BlockQ4_1>();
    size_is_right::<q5_0::BlockQ5_0>();
    size_is_right::<q5_1::BlockQ5_1>();
    size_is_right::<q8_0::BlockQ8_0>();
    size_is_right::<q2_k::BlockQ2K>();
    size_is_right::<q3_k::BlockQ3K>();
    size_is_right::<q4_k::BlockQ4K>();
    size_is_right::<q5_k::BlockQ5K>();
    size_is_right::<q6_k::BlockQ6K>();
    size_is_right::<iq4_nl::BlockIq4Nl>();
    size_is_right::<iq4_xs::BlockIq4Xs>();
    size_is_right::<mxfp4::BlockMxfp4>();
};

/// Turns whole blocks of `ty` into numbers; `out` has exactly as many as `bytes` hold.
/// Panics if `ty` is not readable or the lengths do not fit: both are checked when a model is loaded.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    use GgmlType as T;
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
        T::F32 => floats(bytes, out, f32::from_le_bytes),
        T::F16 => floats(bytes, out, |b| F16(b).to_f32()),
        T::BF16 => floats(bytes, out, |b| f32::from_bits((u16::from_le_bytes(b) as u32) << 16)),
        T::Q4_0 => run::<q4_0::BlockQ4_0>(bytes, out),
        T::Q4_1 => run::<q4_1::BlockQ4_1>(bytes, out),
        T::Q5_0 => run::<q5_0::BlockQ5_0>(bytes, out),
        T::Q5_1 => run::<q5_1::BlockQ5_1>(bytes, out),
        T::Q8_0 => run::<q8_0::BlockQ8_0>(bytes, out),
        T::Q2_K => run::<q2_k::BlockQ2K>(bytes, out),
        T::Q3_K => run::<q3_k::BlockQ3K>(bytes, out),
        T::Q4_K => run::<q4_k::BlockQ4K>(bytes, out),
        T::Q5_K => run::<q5_k::BlockQ5K>(bytes, out),
        T::Q6_K => run::<q6_k::BlockQ6K>(bytes, out),
        T::IQ4_NL => run::<iq4_nl::BlockIq4Nl>(bytes, out),
        T::IQ4_XS => run::<iq4_xs::BlockIq4Xs>(bytes, out),
        T::MXFP4 => run::<mxfp4::BlockMxfp4>(bytes, out),
        other => panic!("{other} has no dequantizer"),
    }
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
