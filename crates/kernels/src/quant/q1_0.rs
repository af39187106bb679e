//! Q1_0: a bit says whether a weight is `d` or `-d`.

use super::{
    Block, F16, GgmlType,
    weights::{Weights, ints},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ1_0 {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Block for BlockQ1_0 {
    const TYPE: GgmlType = GgmlType::Q1_0;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let bit = |i: usize| self.qs[4 * b + i / 8] >> (i % 8) & 1;
        Weights::plain(self.d.to_f32(), ints(|i| 2 * bit(i) as i8 - 1))
    }
}
