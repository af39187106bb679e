//! Q4_1: `w = d·nibble + m`.

use super::rounding::{min_max, nibbles, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints, nibble},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    pub d: F16,
    pub m: F16,
    pub qs: [u8; 16],
}

impl Block for BlockQ4_1 {
    const TYPE: GgmlType = GgmlType::Q4_1;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        Weights::with_minimum(self.d.to_f32(), self.m.to_f32(), ints(|i| nibble(&self.qs, i) as i8))
    }
}

impl Quantize for BlockQ4_1 {
    fn quantize(x: &[f32]) -> Self {
        let (min, max) = min_max(x);
        let d = (max - min) / 15.0;
        let inverse = reciprocal(d);
        let q = std::array::from_fn(|j| (((x[j] - min) * inverse + 0.5) as u8).min(15));
        Self { d: F16::from_f32(d), m: F16::from_f32(min), qs: nibbles(&q) }
    }
}
