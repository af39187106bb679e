//! Q3_K: sub-blocks of 16: `w = d·(scale - 32)·(q - 4)`. The low two bits lie as in Q2_K; the third bit
//! of weight `32·i + j` is bit i of `hmask[j]`.

use super::{Block, F16, GgmlType, q2_k::pack_pairs_of_bits};

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

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for (sub, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = d * self.scale(sub) as f32;
            let (half, shift, first) = (sub / 8, sub / 2 % 4 * 2, sub % 2 * 16);
            let low = self.qs[half * 32 + first..].iter();
            let third = self.hmask[first..].iter();
            for ((low, third), out) in low.zip(third).zip(out) {
                let q = low >> shift & 3 | (third >> (sub / 2) & 1) << 2;
                *out = scale * (q as i8 - 4) as f32;
            }
        }
    }
}
