//! Q2_K: sub-blocks of 16: `w = d·scale·q - dmin·min`. A run of 32 bytes holds 128 weights: those of
//! bits 0-1 first, then those of bits 2-3, and so on.

use super::{Block, F16, GgmlType};

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

    fn dequantize(&self, out: &mut [f32]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (sub, out) in out.chunks_exact_mut(16).enumerate() {
            let (scale, min) = self.scale_min(sub);
            let (scale, min) = (d * scale as f32, dmin * min as f32);
            let (half, shift, first) = (sub / 8, sub / 2 % 4 * 2, sub % 2 * 16);
            for (q, out) in self.qs[half * 32 + first..].iter().zip(out) {
                *out = scale * (q >> shift & 3) as f32 - min;
            }
        }
    }
}
