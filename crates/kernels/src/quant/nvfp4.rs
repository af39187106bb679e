//! NVFP4: `w = d·VALUES[nibble]` with MXFP4's levels, and a scale of eight bits for each 16 weights.

use super::{
    Block, F16, GgmlType, Quantize,
    mxfp4::VALUES,
    weights::{Weights, ints},
};

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
