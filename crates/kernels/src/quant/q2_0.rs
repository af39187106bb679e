//! Q2_0: `w = d·(q - 1)`, two bits each.

use super::{
    Block, F16, GgmlType,
    weights::{Weights, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ2_0 {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Block for BlockQ2_0 {
    const TYPE: GgmlType = GgmlType::Q2_0;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let bits = |i: usize| self.qs[8 * b + i / 4] >> (i % 4 * 2) & 3;
        Weights::plain(self.d.to_f32(), eights(|l| std::array::from_fn(|i| bits(8 * l + i) as i8 - 1)))
    }
}
