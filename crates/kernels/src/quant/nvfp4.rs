//! NVFP4: `w = d·VALUES[nibble]` with MXFP4's levels, and a scale of eight bits for each 16 weights.
//!
//! In [products](crate::matmul): w = doubled level, a = half of what the code means, per half.

use super::{
    Block, F16, GgmlType, Quantize,
    mxfp4::{BlockMxfp4, MXFP4_FROM_ZERO, VALUES},
    weights::{Weights, ints},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockNvfp4 {
    pub d: [u8; 4],
    pub qs: [u8; 32],
}

/// Half of what a UE4M3 code means, to go with the doubled [`VALUES`]. The sign counts for nothing; 0x7f, NaN in the
/// standard, is read as zero, as llama.cpp does.
pub fn ue4m3_half(code: u8) -> f32 {
    if code == 0x7f {
        return 0.0;
    }
    // In the place of a half's exponent and mantissa it means 2^-8 of itself.
    F16((u16::from(code & 0x7f) << 7).to_le_bytes()).to_f32() * 128.0
}

/// The code nearest to a number, of halfway ones the upper; from 256 on the largest.
fn ue4m3(x: f32) -> u8 {
    const SMALLEST_NORMAL: f32 = 1.0 / 64.0;
    if x < SMALLEST_NORMAL {
        return ((x * 512.0 + 0.5) as u8).min(7);
    }
    // The exponent counts from 7 where an f32's does from 127, and three bits of the mantissa stay.
    let rounded = (x.min(256.0).to_bits() + (1 << 19)) >> 20;
    match rounded - ((127 - 7) << 3) {
        code @ ..0x78 => code as u8,
        _ => 0x7e,
    }
}

impl BlockNvfp4 {
    /// The nibbles of the `b`-th 32 weights. Eight bytes hold sixteen: the low ones first.
    pub fn nibbles(&self, b: usize) -> [u8; 32] {
        std::array::from_fn(|i| self.qs[16 * b + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15)
    }

    /// The scales of their halves.
    pub fn scales(&self, b: usize) -> [f32; 2] {
        [self.d[2 * b], self.d[2 * b + 1]].map(ue4m3_half)
    }
}

impl Block for BlockNvfp4 {
    const TYPE: GgmlType = GgmlType::NVFP4;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let ([first, second], nibbles) = (self.scales(b), self.nibbles(b));
        let levels = ints(|i| VALUES[usize::from(nibbles[i])]);
        Weights { second_scale: Some(second), ..Weights::plain(first, levels) }
    }
}

/// NVFP4's scales of 64 weights, four codes in a lane: see [`ue4m3_half`].
#[inline(always)]
fn put_nvfp4_scales<L: Lanes>(l: L, codes: L::V, to: &mut Scales, b: usize) {
    let unsigned = l.and(codes, l.splat(0x7f7f_7f7f));
    // The top bits of those that are 0x7f: one more has it, and the code itself has not.
    let is_zero = l.and(l.add(unsigned, l.splat(0x0101_0101)), l.xor(codes, l.splat(!0)));
    let is_zero = l.and(is_zero, l.splat(0x8080_8080));
    let codes = l.xor(unsigned, l.sub(is_zero, l.shr(is_zero, 7)));
    let scale = |i| l.mul_f32(l.half_to_f32(l.shl(byte(l, codes, i), 7)), l.splat_f32(128.0));
    to.put_half_scales(l, b, [scale(0), scale(1)]);
    to.put_half_scales(l, b + 1, [scale(2), scale(3)]);
}

impl Format for BlockNvfp4 {
    type Kind = kinds::HalfScales<12, 24>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            put_nvfp4_scales(l, rows.first_4_bytes(l), &mut to.scales, b);
            for half in 0..2 {
                // Eight bytes hold sixteen weights: the low ones first.
                let qs = vectors::nibbles(l, rows.bytes_16(l, offset_of!(Self, qs) + 16 * half));
                let qs = [qs[0], qs[1], qs[4], qs[5], qs[2], qs[3], qs[6], qs[7]];
                put_all(l, to, b + half, vectors::levels(l, l.table(&MXFP4_FROM_ZERO), qs));
            }
        }
    }
}

impl Packable for BlockNvfp4 {
    layout!(Nibbles);
    const HEAD: &'static [Range<usize>] = &[0..4];

    fn bits(&self, b: usize) -> [u32; 8] {
        let nibbles = self.nibbles(b);
        std::array::from_fn(|j| word(&nibbles, j))
    }
    fn int(u: u8) -> i16 {
        i16::from(VALUES[usize::from(u)])
    }
}

impl PackedFormat for BlockNvfp4 {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        put_nvfp4_scales(l, unsafe { head_word(l, head, 0) }, to, b);
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        BlockMxfp4::ints(l, bits)
    }
}

impl Quantize for BlockNvfp4 {
    fn quantize(x: &[f32]) -> Self {
        let mut block = BlockNvfp4 { d: [0; 4], qs: [0; 32] };
        for ((d, qs), x) in block.d.iter_mut().zip(block.qs.chunks_exact_mut(8)).zip(x.chunks_exact(16)) {
            let amax = x.iter().fold(0f32, |most, x| most.max(x.abs()));
            *d = ue4m3(amax / 6.0);
            let scale = ue4m3_half(*d);
            let nearest = |x: f32| {
                let off = |i: usize| (f32::from(VALUES[i]) * scale - x).abs();
                // Of equally near ones the first.
                (1..16).fold(0, |best, i| if off(i) < off(best) { i } else { best }) as u8
            };
            let (low, high) = x.split_at(8);
            for ((q, &low), &high) in qs.iter_mut().zip(low).zip(high) {
                *q = nearest(low) | nearest(high) << 4;
            }
        }
        block
    }
}
