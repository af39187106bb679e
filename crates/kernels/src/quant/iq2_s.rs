//! IQ2_S: points of eight weights with ten bits each, a sign for each weight, a scale of four bits for each 16:
//! `w = d·(scale + 1/2)/4·magnitude`.

use super::{
    Block, F16, GgmlType,
    grids::{IQ2_S, eight, signed},
    weights::{Weights, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq2S {
    pub d: F16,
    pub qs: [u8; 32],
    pub signs: [u8; 32],
    /// The upper two bits of four points each.
    pub qh: [u8; 8],
    pub scales: [u8; 8],
}

impl Block for BlockIq2S {
    const TYPE: GgmlType = GgmlType::IQ2_S;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let ints = eights(|l| {
            let high = u16::from(self.qh[b] >> (2 * l) & 3);
            let point = eight(IQ2_S[usize::from(u16::from(self.qs[4 * b + l]) | high << 8)]);
            std::array::from_fn(|i| signed(point[i], self.signs[4 * b + l], i))
        });
        let sub = [self.scales[b] & 15, self.scales[b] >> 4].map(|scale| 2 * i32::from(scale) + 1);
        Weights::with_sub_scales(self.d.to_f32() * 0.125, sub, ints)
    }
}
