//! MXFP4: `w = 2^(e-128)·VALUES[nibble]`, values doubled to be integers.

use super::{
    Block, GgmlType, Quantize,
    rounding::nibbles,
    weights::{Weights, levels},
};

/// E2M1 times two.
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Halfway between neighbours of the first eight; what lies there is rounded down.
const MIDDLES: [f32; 7] = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0];

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockMxfp4 {
    pub e: u8,
    pub qs: [u8; 16],
}

/// `2^(e-128)`: half of what an E8M0 exponent means, to go with the doubled [`VALUES`]. The two smallest
/// are subnormal; e = 255, NaN in the OCP standard, is read as 2^127, as llama.cpp does.
#[inline(always)]
pub fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e as u32 - 1) << 23 })
}

impl BlockMxfp4 {
    #[inline(always)]
    pub fn scale(&self) -> f32 {
        e8m0_half(self.e)
    }
}

impl Block for BlockMxfp4 {
    const TYPE: GgmlType = GgmlType::MXFP4;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        Weights::plain(self.scale(), levels(&self.qs, &VALUES))
    }
}

impl Quantize for BlockMxfp4 {
    fn quantize(x: &[f32]) -> Self {
        let amax = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        // The power of two below the largest magnitude, over 4: the largest level then means 1.5 of it.
        let e = ((amax.to_bits() >> 23) as u8).saturating_sub(2);
        let d = e8m0_half(e);
        let q = std::array::from_fn(|j| {
            let level = MIDDLES.iter().filter(|&&middle| x[j].abs() > middle * d).count() as u8;
            // There are two zeros; the first is written.
            if x[j] < 0.0 && level > 0 { level + 8 } else { level }
        });
        Self { e, qs: nibbles(&q) }
    }
}
