//! Q5_1: `w = d·q + m`, the fifth bits in `qh`.

use super::rounding::{fifth_bits, min_max, nibbles, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints, nibble},
};

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

impl Quantize for BlockQ5_1 {
    fn quantize(x: &[f32]) -> Self {
        let (min, max) = min_max(x);
        let d = (max - min) / 31.0;
        let inverse = reciprocal(d);
        let q = std::array::from_fn(|j| (((x[j] - min) * inverse + 0.5) as u8).min(31));
        Self { d: F16::from_f32(d), m: F16::from_f32(min), qh: fifth_bits(&q), qs: nibbles(&q) }
    }
}
