//! Q8_0: `w = d·q`.

use super::rounding::{farthest_from_zero, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    pub d: F16,
    pub qs: [i8; 32],
}

impl Block for BlockQ8_0 {
    const TYPE: GgmlType = GgmlType::Q8_0;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        Weights::plain(self.d.to_f32(), ints(|i| self.qs[i]))
    }
}

impl Quantize for BlockQ8_0 {
    fn quantize(x: &[f32]) -> Self {
        let d = farthest_from_zero(x).abs() / 127.0;
        let inverse = reciprocal(d);
        // f32::round: halves away from zero.
        Self { d: F16::from_f32(d), qs: std::array::from_fn(|j| (x[j] * inverse).round() as i8) }
    }
}
