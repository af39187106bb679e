//! IQ4_XS: sub-blocks of 32: `w = d·(scale - 32)·KVALUES[nibble]`.

use super::{
    Block, F16, GgmlType,
    weights::{Weights, levels},
};

pub use super::iq4_nl::KVALUES;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq4Xs {
    pub d: F16,
    pub scales_h: [u8; 2],
    pub scales_l: [u8; 4],
    pub qs: [u8; 128],
}

impl BlockIq4Xs {
    /// From the scales of its sub-blocks, 32 above what they stand for, and the numbers of the levels.
    pub fn pack(d: F16, scales: &[u8; 8], q: &[u8; 256]) -> Self {
        let high = |i: usize| (0..4).fold(0, |byte, part| byte | scales[4 * i + part] >> 4 << (2 * part));
        Self {
            d,
            scales_h: std::array::from_fn(high),
            scales_l: std::array::from_fn(|i| scales[2 * i] & 15 | scales[2 * i + 1] << 4),
            qs: std::array::from_fn(|i| {
                let at = i / 16 * 32 + i % 16;
                q[at] | q[at + 16] << 4
            }),
        }
    }

    /// Signed scale, -32..=31, of the 32 weights from `32 * sub`.
    #[inline(always)]
    pub fn scale(&self, sub: usize) -> i8 {
        let low = self.scales_l[sub / 2] >> (sub % 2 * 4) & 15;
        let high = self.scales_h[sub / 4] >> (sub % 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    }
}

impl Block for BlockIq4Xs {
    const TYPE: GgmlType = GgmlType::IQ4_XS;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let qs = &self.qs[16 * b..][..16];
        let scale = self.d.to_f32() * f32::from(self.scale(b));
        Weights::plain(scale, levels(qs, &KVALUES))
    }
}
