//! Q5_0: `w = d·(q - 16)`, the fifth bits in `qh`.
//!
//! In [products](crate::matmul): w = q-16, a = d.

use super::rounding::{farthest_from_zero, fifth_bits, nibbles, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints, nibble},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    pub d: F16,
    pub qh: [u8; 4],
    pub qs: [u8; 16],
}

impl BlockQ5_0 {
    /// The 32 fifth bits: bit j belongs to weight j.
    #[inline(always)]
    pub fn fifth_bits(&self) -> u32 {
        u32::from_le_bytes(self.qh)
    }
}

impl Block for BlockQ5_0 {
    const TYPE: GgmlType = GgmlType::Q5_0;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        let fifth = |i| (self.fifth_bits() >> i & 1) as u8;
        Weights::plain(self.d.to_f32(), ints(|i| (nibble(&self.qs, i) | fifth(i) << 4) as i8 - 16))
    }
}

impl Format for BlockQ5_0 {
    type Kind = kinds::Plain<16, 31>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let [d_and_low, high, ..] = rows.bytes_16(l, 0);
            to.scales.put_scale(l, b, l.half_to_f32(d_and_low));
            let fifth = l.or(l.shr(d_and_low, 16), l.shl(high, 16));
            let qs = rows.bytes_16(l, offset_of!(Self, qs));
            put_all(l, to, b, vectors::nibbles_with_fifth_bits(l, qs, fifth));
        }
    }
}

impl Packable for BlockQ5_0 {
    layout!(NibblesAndOne);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, _: usize) -> [u32; 8] {
        words::with_fifth_bits(words::nibbles(&self.qs), u32::from_le_bytes(self.qh))
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 16
    }
}

impl PackedFormat for BlockQ5_0 {
    const FEW: bool = true;
    head_of_one_half!();
}

impl Quantize for BlockQ5_0 {
    fn quantize(x: &[f32]) -> Self {
        // The value farthest from zero becomes -16 exactly, whatever its sign.
        let d = farthest_from_zero(x) / -16.0;
        let inverse = reciprocal(d);
        let q = std::array::from_fn(|j| ((x[j] * inverse + 16.5) as u8).min(31));
        Self { d: F16::from_f32(d), qh: fifth_bits(&q), qs: nibbles(&q) }
    }
}
