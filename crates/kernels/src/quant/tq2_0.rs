//! TQ2_0: weights of -1, 0 and 1 in two bits, which could be 2 as well: `w = d·(q - 1)`. They lie as in Q2_K.
//!
//! In [products](crate::matmul): w = q-1, a = d.

use super::{
    Block, F16, GgmlType,
    q2_k::k_twos,
    weights::{Weights, ints},
};
use crate::matmul::format::*;

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

impl Format for BlockTq2 {
    row_by_row!(kinds::Plain<1, 3>);
}

impl Packable for BlockTq2 {
    layout!(Twos);
    const HEAD: &'static [Range<usize>] = &[64..66];

    fn bits(&self, b: usize) -> [u32; 8] {
        k_twos(&self.qs, b)
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 1
    }
}

impl PackedFormat for BlockTq2 {
    head_of_one_half!();
}
