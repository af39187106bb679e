//! Q5_K: sub-blocks of 32: `w = d·scale·q - dmin·min`. Scales and nibbles lie as in Q4_K; the fifth bit
//! of weight `32·i + j` is bit i of `qh[j]`.

use super::affine::{Affine, fit};
use super::{
    Block, F16, GgmlType, Quantize, q4_k,
    weights::{Weights, ints},
};

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

/// As for Q4_K: a bounded error, not llama.cpp's bytes.
impl Quantize for BlockQ5K {
    fn quantize(x: &[f32]) -> Self {
        let Affine { d, dmin, scales, mins, q } = fit::<31>(x);
        Self::pack(d, dmin, &scales, &mins, &q)
    }
}
