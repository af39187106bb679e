//! Q6_K: sub-blocks of 16: `w = d·scale·(q - 32)`. Of each half of 128 weights, 64 bytes hold the low
//! four bits (low nibbles: the first 64), 32 bytes the high two (bits 0-1: the first 32).
//!
//! In [products](crate::matmul): w = q-32, a = d, s = scales.

use super::affine::{half_at_least, steps_to_reach};
use super::rounding::reciprocal;
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    pub ql: [u8; 128],
    pub qh: [u8; 64],
    pub scales: [i8; 16],
    pub d: F16,
}

impl BlockQ6K {
    /// From the scales of its sub-blocks and the levels, 32 above what they stand for.
    pub fn pack(d: F16, scales: &[i8; 16], q: &[u8; 256]) -> Self {
        let ql = std::array::from_fn(|i| {
            let at = i / 64 * 128 + i % 64;
            q[at] & 15 | q[at + 64] << 4
        });
        let qh = std::array::from_fn(|i| {
            let at = i / 32 * 128 + i % 32;
            (0..4).fold(0, |byte, quarter| byte | q[at + 32 * quarter] >> 4 << (2 * quarter))
        });
        Self { ql, qh, scales: *scales, d }
    }
}

impl Block for BlockQ6K {
    const TYPE: GgmlType = GgmlType::Q6_K;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let sub = [self.scales[2 * b], self.scales[2 * b + 1]].map(i32::from);
        let (half, quarter) = (b / 4, b % 4);
        let low = &self.ql[half * 64 + quarter % 2 * 32..];
        let high = &self.qh[half * 32..];
        let (low_shift, high_shift) = (quarter / 2 * 4, quarter * 2);
        let q = ints(|i| (low[i] >> low_shift & 15 | (high[i] >> high_shift & 3) << 4) as i8 - 32);
        Weights::with_sub_scales(self.d.to_f32(), sub, q)
    }
}

/// Q6_K's 16 signed scales, and the one above them.
#[inline(always)]
fn put_q6_k_scales<L: Lanes>(l: L, scales: [L::V; 4], d: L::F, to: &mut Scales) {
    for b in 0..8 {
        to.put_scale(l, b, d);
        let i = b as u32 % 2 * 2;
        let first = l.sar(l.shl(scales[b / 2], 24 - 8 * i), 24);
        let second = l.sar(l.shl(scales[b / 2], 16 - 8 * i), 24);
        to.put_sub_scales(l, b, [first, second]);
    }
}

impl Format for BlockQ6K {
    type Kind = kinds::SubScales<32, 63>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let d = l.shr(rows.bytes_16(l, size_of::<Self>() - 16)[3], 16);
            let d = l.half_to_f32(d);
            put_q6_k_scales(l, rows.bytes_16(l, offset_of!(Self, scales)), d, &mut to.scales);
            for half in 0..2 {
                let high = rows.bytes_32(l, offset_of!(Self, qh) + 32 * half);
                for odd in 0..2 {
                    let low = rows.bytes_32(l, offset_of!(Self, ql) + 64 * half + 32 * odd);
                    for j in 0..8 {
                        for top in 0..2 {
                            let quarter = 2 * top + odd;
                            let two = l.shl(bits(l, high[j], 2 * quarter as u32, 3), 4);
                            let q = l.or(bits(l, low[j], 4 * top as u32, 15), two);
                            to.put_ints(l, 4 * half + quarter, j, q);
                        }
                    }
                }
            }
        }
    }
}

impl Packable for BlockQ6K {
    layout!(whole: NibblesAndTwo, planes: NibblesAndTwo, low: Twos, low_of_two: Nibbles);
    const HEAD: &'static [Range<usize>] = &[192..210];

    fn bits(&self, b: usize) -> [u32; 8] {
        let (half, quarter) = (b / 4, b % 4);
        let (low, high) = (&self.ql[half * 64 + quarter % 2 * 32..], &self.qh[half * 32..]);
        std::array::from_fn(|j| {
            let four = word(low, j).shr(quarter as u32 / 2 * 4).bits(15);
            four | word(high, j).shr(quarter as u32 * 2).bits(3) << 4
        })
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 32
    }
}

impl PackedFormat for BlockQ6K {
    const FEW: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            let d = l.load_halves(head.add(16 * L::ROWS));
            put_q6_k_scales(l, head_words(l, head), d, to);
        }
    }
}

impl LowFormat<Twos> for BlockQ6K {
    type LowKind = kinds::SubScales<2, 3>;
}

impl LowFormat<Nibbles> for BlockQ6K {
    type LowKind = kinds::SubScales<8, 15>;
}

/// Not llama.cpp's bytes: quants span -31..=31 and scales are positive. The scale of a sub-block is its
/// largest magnitude over 31, rounded up to a multiple of `d`, so the error is at most half of
/// `(amax / 31 + d)`, with `d` the largest `amax` of the block over 31·127, rounded up to a half.
impl Quantize for BlockQ6K {
    fn quantize(x: &[f32]) -> Self {
        const FARTHEST: f32 = 31.0;
        const SCALES: f32 = 127.0;
        let mut amax = [0f32; 16];
        for (amax, x) in amax.iter_mut().zip(x.chunks_exact(16)) {
            *amax = x.iter().fold(0.0, |most: f32, x| if x.abs() > most { x.abs() } else { most });
        }
        let most = amax.iter().fold(0.0, |a: f32, &b| if b > a { b } else { a });
        let d = half_at_least(most / (FARTHEST * SCALES));
        let inverse_d = reciprocal(d.to_f32());
        let mut scales = [0i8; 16];
        let mut q = [0u8; 256];
        for (sub, x) in x.chunks_exact(16).enumerate() {
            let scale = steps_to_reach(amax[sub] / FARTHEST, inverse_d, SCALES);
            scales[sub] = scale as i8;
            let inverse = reciprocal(d.to_f32() * scale);
            for (q, x) in q[16 * sub..].iter_mut().zip(x) {
                // 1.5 · 2^23: adding it rounds to a whole number that stands in the lowest bits.
                let rounded = (x * inverse).clamp(-FARTHEST, FARTHEST) + 12_582_912.0;
                *q = (rounded.to_bits() as u8).wrapping_add(32);
            }
        }
        Self::pack(d, &scales, &q)
    }
}
