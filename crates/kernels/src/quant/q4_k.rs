//! Q4_K: sub-blocks of 32: `w = d·scale·q - dmin·min`. A run of 32 bytes holds two of them: the low
//! nibbles are the first, the high ones the second.
//!
//! In [products](crate::matmul): w = q, a = d·scale, n = -(dmin·min).

use super::affine::{Affine, fit};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    pub d: F16,
    pub dmin: F16,
    pub scales: [u8; 12],
    pub qs: [u8; 128],
}

/// Unpacks the 6-bit scale and minimum of one of eight sub-blocks: those of the first four lie whole in
/// bytes 0-3 and 4-7; the others have their low nibbles in bytes 8-11, their high two bits above those.
#[inline(always)]
pub fn scale_min(scales: &[u8; 12], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (scales[sub] & 63, scales[sub + 4] & 63)
    } else {
        let low = scales[sub + 4];
        (low & 15 | scales[sub - 4] >> 6 << 4, low >> 4 | scales[sub] >> 6 << 4)
    }
}

/// The inverse of [`scale_min`] for all eight.
pub(super) fn pack_scale_mins(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    std::array::from_fn(|i| match i {
        0..4 => scales[i] | scales[i + 4] >> 4 << 6,
        4..8 => mins[i - 4] | mins[i] >> 4 << 6,
        _ => scales[i - 4] & 15 | mins[i - 4] << 4,
    })
}

/// Low nibbles of the even sub-blocks, high nibbles of the odd ones.
pub(super) fn pack_nibbles(q: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|i| {
        let at = i / 32 * 64 + i % 32;
        q[at] & 15 | q[at + 32] << 4
    })
}

/// `d·scale` and `dmin·min` of one of eight sub-blocks.
#[inline(always)]
pub(super) fn step_and_minimum(d: F16, dmin: F16, scales: &[u8; 12], sub: usize) -> (f32, f32) {
    let (scale, min) = scale_min(scales, sub);
    (d.to_f32() * f32::from(scale), dmin.to_f32() * f32::from(min))
}

impl BlockQ4K {
    /// From the scales, minima and levels of its sub-blocks.
    pub fn pack(d: F16, dmin: F16, scales: &[u8; 8], mins: &[u8; 8], q: &[u8; 256]) -> Self {
        Self { d, dmin, scales: pack_scale_mins(scales, mins), qs: pack_nibbles(q) }
    }

    /// `d·scale` and `dmin·min` of the 32 weights from `32 * sub`.
    #[inline(always)]
    pub fn step_and_minimum(&self, sub: usize) -> (f32, f32) {
        step_and_minimum(self.d, self.dmin, &self.scales, sub)
    }
}

impl Block for BlockQ4K {
    const TYPE: GgmlType = GgmlType::Q4_K;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let (scale, min) = self.step_and_minimum(b);
        let qs = &self.qs[b / 2 * 32..];
        Weights::with_minimum(scale, -min, ints(|i| (qs[i] >> (b % 2 * 4) & 15) as i8))
    }
}

/// The head of Q4_K and Q5_K: 16 bytes of two halves and 6-bit scales and minimums, all unpacked by
/// [`scale_min`]'s rules, four sub-blocks at a time.
#[inline(always)]
pub(super) fn put_k_scales<L: Lanes>(l: L, head: [L::V; 4], to: &mut Scales) {
    let [d_and_dmin, s0, s4, s8] = head;
    let (d, dmin) = two_halves(l, d_and_dmin);
    let minus_dmin = l.neg_f32(dmin);
    let (top0, top4) = (l.shl(bits(l, s0, 6, 3), 4), l.shl(bits(l, s4, 6, 3), 4));
    let scales = [bits(l, s0, 0, 63), l.or(bits(l, s8, 0, 15), top0)];
    let minimums = [bits(l, s4, 0, 63), l.or(bits(l, s8, 4, 15), top4)];
    for b in 0..8 {
        to.put_scale(l, b, l.mul_f32(d, l.to_f32(byte(l, scales[b / 4], b % 4))));
        to.put_minimum(l, b, 0, l.mul_f32(minus_dmin, l.to_f32(byte(l, minimums[b / 4], b % 4))));
    }
}

/// The 32 nibbles of sub-block `b`, of which two share 32 bytes.
pub(super) fn k_nibbles(qs: &[u8], b: usize) -> [u32; 8] {
    std::array::from_fn(|j| word(qs, b / 2 * 8 + j).shr(b as u32 % 2 * 4).bits(15))
}

impl Format for BlockQ4K {
    type Kind = kinds::Minimum<15>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            put_k_scales(l, rows.bytes_16(l, 0), &mut to.scales);
            for pair in 0..4 {
                let qs = rows.bytes_32(l, offset_of!(Self, qs) + 32 * pair);
                for (j, qs) in qs.into_iter().enumerate() {
                    to.put_ints(l, 2 * pair, j, bits(l, qs, 0, 15));
                    to.put_ints(l, 2 * pair + 1, j, bits(l, qs, 4, 15));
                }
            }
        }
    }
}

impl Packable for BlockQ4K {
    layout!(whole: Nibbles, planes: TwoAndTwo, low: Twos, low_of_two: Twos);
    const HEAD: &'static [Range<usize>] = &[0..16];

    fn bits(&self, b: usize) -> [u32; 8] {
        k_nibbles(&self.qs, b)
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl PackedFormat for BlockQ4K {
    const FEW: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        put_k_scales(l, unsafe { head_words(l, head) }, to);
    }
}

impl LowFormat<Twos> for BlockQ4K {
    type LowKind = kinds::Plain<2, 3>;
}

/// Not the bytes of llama.cpp's quantizer, which searches for better scales; the error is at most that
/// which `fit` states.
impl Quantize for BlockQ4K {
    fn quantize(x: &[f32]) -> Self {
        let Affine { d, dmin, scales, mins, q } = fit::<15>(x);
        Self::pack(d, dmin, &scales, &mins, &q)
    }
}
