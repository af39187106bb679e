//! Q2_0: `w = d·(q - 1)`, two bits each.
//!
//! In [products](crate::matmul): w = q-1, a = d.

use super::{
    Block, F16, GgmlType,
    weights::{Weights, eights},
};
use crate::matmul::format::*;

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

impl Format for BlockQ2_0 {
    row_by_row!(kinds::Plain<1, 3>);
}

impl Packable for BlockQ2_0 {
    layout!(Twos);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        // Four weights in each byte; the multiples put them six bits apart, so that each lands in a byte of its own.
        std::array::from_fn(|j| {
            let four = u32::from(self.qs[8 * b + j]);
            (four | four << 6 | four << 12 | four << 18).bits(3)
        })
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 1
    }
}

impl PackedFormat for BlockQ2_0 {
    head_of_one_half!();
}
