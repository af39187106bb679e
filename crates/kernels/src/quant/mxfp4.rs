//! MXFP4: `w = 2^(e-128)·VALUES[nibble]`, values doubled to be integers.
//!
//! In [products](crate::matmul): w = doubled level, a = 2^(e-128).

use super::{
    Block, GgmlType, Quantize,
    rounding::nibbles,
    weights::{Weights, levels},
};
use crate::matmul::format::*;

/// E2M1 times two.
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Halfway between neighbours of the first eight; what lies there is rounded down.
const MIDDLES: [f32; 7] = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0];

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockMxfp4 {
    pub e: u8,
    pub qs: [u8; 16],
}

/// `2^(e-128)`: half of what an E8M0 exponent means, to go with the doubled [`VALUES`]. The two smallest
/// are subnormal; e = 255, NaN in the OCP standard, is read as 2^127, as llama.cpp does.
#[inline(always)]
pub fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e as u32 - 1) << 23 })
}

impl BlockMxfp4 {
    #[inline(always)]
    pub fn scale(&self) -> f32 {
        e8m0_half(self.e)
    }
}

impl Block for BlockMxfp4 {
    const TYPE: GgmlType = GgmlType::MXFP4;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        Weights::plain(self.scale(), levels(&self.qs, &VALUES))
    }
}

/// `2^(e-64)` for 0 <= e < 190.
#[inline(always)]
fn power_of_two<L: Lanes>(l: L, e: L::V) -> L::F {
    l.as_f32(l.shl(l.add(e, l.splat(63)), 23))
}

/// 2^(e-128) may be subnormal, so it is the product of two powers that are not.
#[inline(always)]
fn mxfp4_scale<L: Lanes>(l: L, e: L::V) -> L::F {
    let half = l.shr(e, 1);
    l.mul_f32(power_of_two(l, half), power_of_two(l, l.sub(e, half)))
}

/// MXFP4's levels, too large by its offset.
pub(super) const MXFP4_FROM_ZERO: [u8; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = (VALUES[i] + <BlockMxfp4 as Format>::Kind::OFFSET as i8) as u8;
        i += 1;
    }
    table
};

impl Format for BlockMxfp4 {
    type Kind = kinds::Plain<12, 24>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            to.scales.put_scale(l, b, mxfp4_scale(l, byte(l, rows.first_4_bytes(l), 0)));
            let qs = vectors::nibbles(l, rows.bytes_16(l, offset_of!(Self, qs)));
            put_all(l, to, b, vectors::levels(l, l.table(&MXFP4_FROM_ZERO), qs));
        }
    }
}

impl Packable for BlockMxfp4 {
    layout!(Nibbles);
    const HEAD: &'static [Range<usize>] = &[0..1];

    fn bits(&self, _: usize) -> [u32; 8] {
        words::nibbles(&self.qs)
    }
    fn int(u: u8) -> i16 {
        i16::from(VALUES[usize::from(u)])
    }
}

impl PackedFormat for BlockMxfp4 {
    const FEW: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        to.put_scale(l, b, mxfp4_scale(l, unsafe { l.load_bytes(head) }));
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        vectors::levels(l, l.table(&MXFP4_FROM_ZERO), bits)
    }
}

impl Quantize for BlockMxfp4 {
    fn quantize(x: &[f32]) -> Self {
        let amax = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        // The power of two below the largest magnitude, over 4: the largest level then means 1.5 of it.
        let e = ((amax.to_bits() >> 23) as u8).saturating_sub(2);
        let d = e8m0_half(e);
        let q = std::array::from_fn(|j| {
            let level = MIDDLES.iter().filter(|&&middle| x[j].abs() > middle * d).count() as u8;
            // There are two zeros; the first is written.
            if x[j] < 0.0 && level > 0 { level + 8 } else { level }
        });
        Self { e, qs: nibbles(&q) }
    }
}
