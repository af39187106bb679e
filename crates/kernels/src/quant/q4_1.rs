//! Q4_1: `w = d·nibble + m`.
//!
//! In [products](crate::matmul): w = q, a = d, n = m.

use super::rounding::{min_max, nibbles, reciprocal};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints, nibble},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    pub d: F16,
    pub m: F16,
    pub qs: [u8; 16],
}

impl Block for BlockQ4_1 {
    const TYPE: GgmlType = GgmlType::Q4_1;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        Weights::with_minimum(self.d.to_f32(), self.m.to_f32(), ints(|i| nibble(&self.qs, i) as i8))
    }
}

impl Format for BlockQ4_1 {
    type Kind = kinds::Minimum<15>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let (d, m) = two_halves(l, rows.first_4_bytes(l));
            to.scales.put_scale(l, b, d);
            to.scales.put_minimum(l, b, 0, m);
            put_all(l, to, b, vectors::nibbles(l, rows.bytes_16(l, offset_of!(Self, qs))));
        }
    }
}

impl Packable for BlockQ4_1 {
    layout!(whole: Nibbles, planes: TwoAndTwo, low: Twos, low_of_two: Twos);
    const HEAD: &'static [Range<usize>] = &[0..4];

    fn bits(&self, _: usize) -> [u32; 8] {
        words::nibbles(&self.qs)
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl PackedFormat for BlockQ4_1 {
    const FEW: bool = true;
    head_of_two_halves!();
}

impl LowFormat<Twos> for BlockQ4_1 {
    type LowKind = kinds::Plain<2, 3>;
}

impl Quantize for BlockQ4_1 {
    fn quantize(x: &[f32]) -> Self {
        let (min, max) = min_max(x);
        let d = (max - min) / 15.0;
        let inverse = reciprocal(d);
        let q = std::array::from_fn(|j| (((x[j] - min) * inverse + 0.5) as u8).min(15));
        Self { d: F16::from_f32(d), m: F16::from_f32(min), qs: nibbles(&q) }
    }
}
