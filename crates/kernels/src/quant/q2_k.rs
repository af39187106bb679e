//! Q2_K: sub-blocks of 16: `w = d·scale·q - dmin·min`. A run of 32 bytes holds 128 weights: those of
//! bits 0-1 first, then those of bits 2-3, and so on.
//!
//! In [products](crate::matmul): w = q, a = d, s = scales, n = -(dmin·min) per half.

use super::{
    Block, F16, GgmlType,
    weights::{Minimum, Weights, ints},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    pub scales: [u8; 16],
    pub qs: [u8; 64],
    pub d: F16,
    pub dmin: F16,
}

/// Two bits of each of 256 levels, as Q2_K and Q3_K lay them.
pub(super) fn pack_pairs_of_bits(q: &[u8; 256]) -> [u8; 64] {
    std::array::from_fn(|i| {
        let at = i / 32 * 128 + i % 32;
        (0..4).fold(0, |byte, quarter| byte | (q[at + 32 * quarter] & 3) << (2 * quarter))
    })
}

impl BlockQ2K {
    /// From the scales, minima and levels of its sub-blocks.
    pub fn pack(d: F16, dmin: F16, scales: &[u8; 16], mins: &[u8; 16], q: &[u8; 256]) -> Self {
        let scales = std::array::from_fn(|sub| scales[sub] | mins[sub] << 4);
        Self { scales, qs: pack_pairs_of_bits(q), d, dmin }
    }

    /// Scale and minimum, 4 bits each, of the 16 weights from `16 * sub`.
    #[inline(always)]
    pub fn scale_min(&self, sub: usize) -> (u8, u8) {
        (self.scales[sub] & 15, self.scales[sub] >> 4)
    }
}

impl Block for BlockQ2K {
    const TYPE: GgmlType = GgmlType::Q2_K;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let halves = [self.scale_min(2 * b), self.scale_min(2 * b + 1)];
        let qs = &self.qs[b / 4 * 32..];
        Weights {
            sub: halves.map(|(scale, _)| i32::from(scale)),
            minimum: Minimum::Halves(halves.map(|(_, min)| -(self.dmin.to_f32() * f32::from(min)))),
            ..Weights::plain(self.d.to_f32(), ints(|i| (qs[i] >> (b % 4 * 2) & 3) as i8))
        }
    }
}

/// Q2_K's 16 scales and minimums of four bits, and those above them.
#[inline(always)]
fn put_q2_k_scales<L: Lanes>(l: L, scales: [L::V; 4], d_and_dmin: L::V, to: &mut Scales) {
    let (d, dmin) = two_halves(l, d_and_dmin);
    let minus_dmin = l.neg_f32(dmin);
    for b in 0..8 {
        to.put_scale(l, b, d);
        let mut subs = [scales[0]; 2];
        for half in 0..2 {
            let sub = byte(l, scales[b / 2], b % 2 * 2 + half);
            subs[half] = l.and(sub, l.splat(15));
            to.put_minimum(l, b, half, l.mul_f32(minus_dmin, l.to_f32(l.shr(sub, 4))));
        }
        to.put_sub_scales(l, b, subs);
    }
}

/// The 32 pairs of bits of group `b`, of which four share 32 bytes.
pub(super) fn k_twos(qs: &[u8], b: usize) -> [u32; 8] {
    std::array::from_fn(|j| word(qs, b / 4 * 8 + j).shr(b as u32 % 4 * 2).bits(3))
}

impl Format for BlockQ2K {
    type Kind = kinds::SubScalesAndMinimums<3>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let [.., d_and_dmin] = rows.bytes_16(l, size_of::<Self>() - 16);
            put_q2_k_scales(l, rows.bytes_16(l, 0), d_and_dmin, &mut to.scales);
            for half in 0..2 {
                let qs = rows.bytes_32(l, offset_of!(Self, qs) + 32 * half);
                for (j, qs) in qs.into_iter().enumerate() {
                    for quarter in 0..4 {
                        to.put_ints(l, 4 * half + quarter, j, bits(l, qs, 2 * quarter as u32, 3));
                    }
                }
            }
        }
    }
}

impl Packable for BlockQ2K {
    layout!(Twos);
    const HEAD: &'static [Range<usize>] = &[0..16, 80..84];

    fn bits(&self, b: usize) -> [u32; 8] {
        k_twos(&self.qs, b)
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl PackedFormat for BlockQ2K {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe { put_q2_k_scales(l, head_words(l, head), head_word(l, head, 4), to) }
    }
}
