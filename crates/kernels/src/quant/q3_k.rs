//! Q3_K: sub-blocks of 16: `w = d·(scale - 32)·(q - 4)`. The low two bits lie as in Q2_K; the third bit
//! of weight `32·i + j` is bit i of `hmask[j]`.

use super::{
    Block, F16, GgmlType,
    q2_k::pack_pairs_of_bits,
    weights::{Weights, ints},
};

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
