//! Q1_0: a bit says whether a weight is `d` or `-d`.
//!
//! In [products](crate::matmul): w = 2·q-1, a = d.

use super::{
    Block, F16, GgmlType,
    weights::{Weights, ints},
};
use crate::matmul::format::*;

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

impl Format for BlockQ1_0 {
    row_by_row!(kinds::Plain<1, 3>);
}

impl Packable for BlockQ1_0 {
    layout!(Ones);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        words::with_fifth_bits([0; 8], word(&self.qs, b)).map(|bits| bits >> 4)
    }
    fn int(u: u8) -> i16 {
        2 * i16::from(u) - 1
    }
}

impl PackedFormat for BlockQ1_0 {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        put_one_scale::<L, Self>(l, unsafe { l.load_halves(head) }, to, b);
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        let mut out = bits;
        for v in &mut out {
            *v = l.add(*v, *v);
        }
        out
    }
}
