//! TQ2_0: weights of -1, 0 and 1 in two bits, which could be 2 as well: `w = d·(q - 1)`. They lie as in Q2_K.

use super::{
    Block, F16, GgmlType,
    weights::{Weights, ints},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockTq2 {
    pub qs: [u8; 64],
    pub d: F16,
}

impl Block for BlockTq2 {
    const TYPE: GgmlType = GgmlType::TQ2_0;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let qs = &self.qs[b / 4 * 32..][..32];
        Weights::plain(self.d.to_f32(), ints(|i| (qs[i] >> (b % 4 * 2) & 3) as i8 - 1))
    }
}
