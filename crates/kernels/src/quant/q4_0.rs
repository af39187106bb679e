//! Q4_0: `w = d·(nibble - 8)`; byte j holds weight j low and j+16 high.
//!
//! In [products](crate::matmul): w = q-8, a = d.

use super::rounding::{farthest_from_zero, nibbles, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints, nibble},
};
use crate::matmul::format::*;

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

impl Format for BlockQ4_0 {
    type Kind = kinds::Plain<8, 15>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            to.scales.put_scale(l, b, l.half_to_f32(rows.first_4_bytes(l)));
            put_all(l, to, b, vectors::nibbles(l, rows.bytes_16(l, offset_of!(Self, qs))));
        }
    }
}

impl Packable for BlockQ4_0 {
    layout!(whole: Nibbles, planes: TwoAndTwo, low: Twos, low_of_two: Twos);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, _: usize) -> [u32; 8] {
        words::nibbles(&self.qs)
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 8
    }
}

impl PackedFormat for BlockQ4_0 {
    const FEW: bool = true;
    head_of_one_half!();
}

impl LowFormat<Twos> for BlockQ4_0 {
    type LowKind = kinds::Plain<2, 3>;
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
