//! Q2_K: sub-blocks of 16: `w = d·scale·q - dmin·min`. A run of 32 bytes holds 128 weights: those of
//! bits 0-1 first, then those of bits 2-3, and so on.

use super::{
    Block, F16, GgmlType,
    weights::{Minimum, Weights, ints},
};

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
