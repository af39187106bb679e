//! Q5_K: sub-blocks of 32: `w = d·scale·q - dmin·min`. Scales and nibbles lie as in Q4_K; the fifth bit
//! of weight `32·i + j` is bit i of `qh[j]`.
//!
//! In [products](crate::matmul): w = q, a = d·scale, n = -(dmin·min).

use super::affine::{Affine, fit};
use super::{
    Block, F16, GgmlType, Quantize,
    q4_k::{self, k_nibbles, put_k_scales},
    weights::{Weights, ints},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ5K {
    pub d: F16,
    pub dmin: F16,
    pub scales: [u8; 12],
    pub qh: [u8; 32],
    pub qs: [u8; 128],
}

impl BlockQ5K {
    /// From the scales, minima and levels of its sub-blocks.
    pub fn pack(d: F16, dmin: F16, scales: &[u8; 8], mins: &[u8; 8], q: &[u8; 256]) -> Self {
        let fifth_bits = |j: usize| (0..8).fold(0, |byte, sub| byte | (q[32 * sub + j] >> 4) << sub);
        Self {
            d,
            dmin,
            scales: q4_k::pack_scale_mins(scales, mins),
            qh: std::array::from_fn(fifth_bits),
            qs: q4_k::pack_nibbles(q),
        }
    }

    /// `d·scale` and `dmin·min` of the 32 weights from `32 * sub`.
    #[inline(always)]
    pub fn step_and_minimum(&self, sub: usize) -> (f32, f32) {
        q4_k::step_and_minimum(self.d, self.dmin, &self.scales, sub)
    }
}

impl Block for BlockQ5K {
    const TYPE: GgmlType = GgmlType::Q5_K;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let (scale, min) = self.step_and_minimum(b);
        let qs = &self.qs[b / 2 * 32..];
        let q = ints(|i| (qs[i] >> (b % 2 * 4) & 15 | (self.qh[i] >> b & 1) << 4) as i8);
        Weights::with_minimum(scale, -min, q)
    }
}

impl Format for BlockQ5K {
    type Kind = kinds::Minimum<31>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            put_k_scales(l, rows.bytes_16(l, 0), &mut to.scales);
            let fifth = rows.bytes_32(l, offset_of!(Self, qh));
            for pair in 0..4 {
                let qs = rows.bytes_32(l, offset_of!(Self, qs) + 32 * pair);
                for (j, qs) in qs.into_iter().enumerate() {
                    for half in 0..2 {
                        let bit = l.shl(bits(l, fifth[j], (2 * pair + half) as u32, 1), 4);
                        to.put_ints(l, 2 * pair + half, j, l.or(bits(l, qs, 4 * half as u32, 15), bit));
                    }
                }
            }
        }
    }
}

impl Packable for BlockQ5K {
    layout!(whole: NibblesAndOne, planes: NibblesAndOne, low: Ones, low_of_two: TwoAndOne);
    const HEAD: &'static [Range<usize>] = &[0..16];

    fn bits(&self, b: usize) -> [u32; 8] {
        let low = k_nibbles(&self.qs, b);
        std::array::from_fn(|j| low[j] | word(&self.qh, j).shr(b as u32).bits(1) << 4)
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl PackedFormat for BlockQ5K {
    const FEW: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        put_k_scales(l, unsafe { head_words(l, head) }, to);
    }
}

impl LowFormat<Ones> for BlockQ5K {
    type LowKind = kinds::Plain<1, 1>;
}

impl LowFormat<TwoAndOne> for BlockQ5K {
    type LowKind = kinds::Plain<4, 7>;
}

/// As for Q4_K: a bounded error, not llama.cpp's bytes.
impl Quantize for BlockQ5K {
    fn quantize(x: &[f32]) -> Self {
        let Affine { d, dmin, scales, mins, q } = fit::<31>(x);
        Self::pack(d, dmin, &scales, &mins, &q)
    }
}
