//! Q5_1: `w = d·q + m`, the fifth bits in `qh`.
//!
//! In [products](crate::matmul): w = q, a = d, n = m.

use super::rounding::{fifth_bits, min_max, nibbles, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints, nibble},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ5_1 {
    pub d: F16,
    pub m: F16,
    pub qh: [u8; 4],
    pub qs: [u8; 16],
}

impl BlockQ5_1 {
    /// The 32 fifth bits: bit j belongs to weight j.
    #[inline(always)]
    pub fn fifth_bits(&self) -> u32 {
        u32::from_le_bytes(self.qh)
    }
}

impl Block for BlockQ5_1 {
    const TYPE: GgmlType = GgmlType::Q5_1;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        let fifth = |i| (self.fifth_bits() >> i & 1) as u8;
        let q = ints(|i| (nibble(&self.qs, i) | fifth(i) << 4) as i8);
        Weights::with_minimum(self.d.to_f32(), self.m.to_f32(), q)
    }
}

impl Format for BlockQ5_1 {
    type Kind = kinds::Minimum<31>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let [d_and_m, fifth, ..] = rows.bytes_16(l, 0);
            let (d, m) = two_halves(l, d_and_m);
            to.scales.put_scale(l, b, d);
            to.scales.put_minimum(l, b, 0, m);
            let qs = rows.bytes_16(l, offset_of!(Self, qs));
            put_all(l, to, b, vectors::nibbles_with_fifth_bits(l, qs, fifth));
        }
    }
}

impl Packable for BlockQ5_1 {
    layout!(NibblesAndOne);
    const HEAD: &'static [Range<usize>] = &[0..4];

    fn bits(&self, _: usize) -> [u32; 8] {
        words::with_fifth_bits(words::nibbles(&self.qs), u32::from_le_bytes(self.qh))
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl PackedFormat for BlockQ5_1 {
    const FEW: bool = true;
    head_of_two_halves!();
}

impl Quantize for BlockQ5_1 {
    fn quantize(x: &[f32]) -> Self {
        let (min, max) = min_max(x);
        let d = (max - min) / 31.0;
        let inverse = reciprocal(d);
        let q = std::array::from_fn(|j| (((x[j] - min) * inverse + 0.5) as u8).min(31));
        Self { d: F16::from_f32(d), m: F16::from_f32(min), qh: fifth_bits(&q), qs: nibbles(&q) }
    }
}
