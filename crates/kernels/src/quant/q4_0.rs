//! Q4_0: `w = d·(nibble - 8)`; byte j holds weight j low and j+16 high.

use super::rounding::{farthest_from_zero, nibbles, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints, nibble},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Block for BlockQ4_0 {
    const TYPE: GgmlType = GgmlType::Q4_0;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        Weights::plain(self.d.to_f32(), ints(|i| nibble(&self.qs, i) as i8 - 8))
    }
}

impl Quantize for BlockQ4_0 {
    fn quantize(x: &[f32]) -> Self {
        // The value farthest from zero becomes -8 exactly, whatever its sign.
        let d = farthest_from_zero(x) / -8.0;
        let inverse = reciprocal(d);
        let q = std::array::from_fn(|j| ((x[j] * inverse + 8.5) as u8).min(15));
        Self { d: F16::from_f32(d), qs: nibbles(&q) }
    }
}
