//! Q3_K: sub-blocks of 16: `w = d·(scale - 32)·(q - 4)`. The low two bits lie as in Q2_K; the third bit
//! of weight `32·i + j` is bit i of `hmask[j]`.
//!
//! In [products](crate::matmul): w = q-4, a = d, s = scales-32.

use super::{
    Block, F16, GgmlType,
    q2_k::{k_twos, pack_pairs_of_bits},
    weights::{Weights, ints},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    pub hmask: [u8; 32],
    pub qs: [u8; 64],
    pub scales: [u8; 12],
    pub d: F16,
}

impl BlockQ3K {
    /// From the scales of its sub-blocks, 32 above what they stand for, and the levels, 4 above.
    pub fn pack(d: F16, scales: &[u8; 16], q: &[u8; 256]) -> Self {
        let third_bits = |j: usize| (0..8).fold(0, |byte, i| byte | (q[32 * i + j] >> 2 & 1) << i);
        let packed = std::array::from_fn(|i| match i {
            0..8 => scales[i] & 15 | scales[i + 8] << 4,
            _ => (0..4).fold(0, |byte, part| byte | scales[i - 8 + 4 * part] >> 4 << (2 * part)),
        });
        Self { hmask: std::array::from_fn(third_bits), qs: pack_pairs_of_bits(q), scales: packed, d }
    }

    /// Signed scale, -32..=31, of the 16 weights from `16 * sub`.
    #[inline(always)]
    pub fn scale(&self, sub: usize) -> i8 {
        let low = self.scales[sub % 8] >> (sub / 8 * 4) & 15;
        let high = self.scales[8 + sub % 4] >> (sub / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    }
}

impl Block for BlockQ3K {
    const TYPE: GgmlType = GgmlType::Q3_K;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let sub = [self.scale(2 * b), self.scale(2 * b + 1)].map(i32::from);
        let qs = &self.qs[b / 4 * 32..];
        let q = ints(|i| (qs[i] >> (b % 4 * 2) & 3 | (self.hmask[i] >> b & 1) << 2) as i8 - 4);
        Weights::with_sub_scales(self.d.to_f32(), sub, q)
    }
}

/// Q3_K's 16 scales of six bits, and the one above them.
#[inline(always)]
fn put_q3_k_scales<L: Lanes>(l: L, [low0, low1, high]: [L::V; 3], d: L::F, to: &mut Scales) {
    for four in 0..4 {
        let low = bits(l, if four % 2 == 0 { low0 } else { low1 }, four as u32 / 2 * 4, 15);
        let scales = l.or(low, l.shl(bits(l, high, 2 * four as u32, 3), 4));
        for two in 0..2 {
            let first = l.sub(byte(l, scales, 2 * two), l.splat(32));
            let second = l.sub(byte(l, scales, 2 * two + 1), l.splat(32));
            to.put_scale(l, 2 * four + two, d);
            to.put_sub_scales(l, 2 * four + two, [first, second]);
        }
    }
}

impl Format for BlockQ3K {
    type Kind = kinds::SubScales<4, 7>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            // Reads end with what they are for, so as not to reach behind the block.
            let d = l.shr(rows.bytes_16(l, size_of::<Self>() - 16)[3], 16);
            let d = l.half_to_f32(d);
            let [_, scales @ ..] = rows.bytes_16(l, offset_of!(Self, d) - 16);
            put_q3_k_scales(l, scales, d, &mut to.scales);
            let third = rows.bytes_32(l, offset_of!(Self, hmask));
            for half in 0..2 {
                let qs = rows.bytes_32(l, offset_of!(Self, qs) + 32 * half);
                for (j, qs) in qs.into_iter().enumerate() {
                    for quarter in 0..4 {
                        let b = 4 * half + quarter;
                        let bit = l.shl(bits(l, third[j], b as u32, 1), 2);
                        to.put_ints(l, b, j, l.or(bits(l, qs, 2 * quarter as u32, 3), bit));
                    }
                }
            }
        }
    }
}

impl Packable for BlockQ3K {
    layout!(TwoAndOne);
    const HEAD: &'static [Range<usize>] = &[96..110];

    fn bits(&self, b: usize) -> [u32; 8] {
        let low = k_twos(&self.qs, b);
        std::array::from_fn(|j| low[j] | word(&self.hmask, j).shr(b as u32).bits(1) << 2)
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 4
    }
}

impl PackedFormat for BlockQ3K {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            let scales = [head_word(l, head, 0), head_word(l, head, 1), head_word(l, head, 2)];
            put_q3_k_scales(l, scales, l.load_halves(head.add(12 * L::ROWS)), to);
        }
    }
}
