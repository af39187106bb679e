//! MXFP4: `w = 2^(e-128)·VALUES[nibble]`, values doubled to be integers.

use super::{Block, GgmlType};

/// E2M1 times two.
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

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

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.scale();
        let (low, high) = out.split_at_mut(16);
        for ((q, low), high) in self.qs.iter().zip(low).zip(high) {
            *low = d * VALUES[(q & 15) as usize] as f32;
            *high = d * VALUES[(q >> 4) as usize] as f32;
        }
    }
}
