//! Q8_0: `w = d·q`.
//!
//! In [products](crate::matmul): w = q, a = d.

use super::rounding::{farthest_from_zero, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints},
};
use crate::matmul::format::*;

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

impl Format for BlockQ8_0 {
    type Kind = kinds::Wide;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            to.scales.put_scale(l, b, l.half_to_f32(rows.first_4_bytes(l)));
            put_wide(l, to, b, rows.bytes_32(l, offset_of!(Self, qs)));
        }
    }
}

impl Packable for BlockQ8_0 {
    layout!(whole: Bytes, planes: NibblesAndNibbles, low: Nibbles, low_of_two: NibblesAndTwo);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, _: usize) -> [u32; 8] {
        let qs: &[u8] = bytemuck::cast_slice(&self.qs);
        std::array::from_fn(|j| word(qs, j) ^ 0x8080_8080)
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 128
    }
}

impl PackedFormat for BlockQ8_0 {
    const FEW: bool = true;
    head_of_one_half!();
}

impl LowFormat<Nibbles> for BlockQ8_0 {
    type LowKind = kinds::Plain<8, 15>;
}

impl LowFormat<NibblesAndTwo> for BlockQ8_0 {
    type LowKind = kinds::Plain<32, 63>;
}

impl Quantize for BlockQ8_0 {
    fn quantize(x: &[f32]) -> Self {
        let d = farthest_from_zero(x).abs() / 127.0;
        let inverse = reciprocal(d);
        // f32::round: halves away from zero.
        Self { d: F16::from_f32(d), qs: std::array::from_fn(|j| (x[j] * inverse).round() as i8) }
    }
}
