//! Q4_K: sub-blocks of 32: `w = d·scale·q - dmin·min`. A run of 32 bytes holds two of them: the low
//! nibbles are the first, the high ones the second.

use super::affine::{Affine, fit};
use super::{
    Block, F16, GgmlType, Quantize,
    weights::{Weights, ints},
};

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

/// Not the bytes of llama.cpp's quantizer, which searches for better scales; the error is at most that
/// which `fit` states.
impl Quantize for BlockQ4K {
    fn quantize(x: &[f32]) -> Self {
        let Affine { d, dmin, scales, mins, q } = fit::<15>(x);
        Self::pack(d, dmin, &scales, &mins, &q)
    }
}
