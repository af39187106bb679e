//! IQ3_S: points of four weights with nine bits each, a sign for each weight, a scale of four bits for each 32:
//! `w = d·(2·scale + 1)·magnitude`.

use super::{
    Block, F16, GgmlType,
    grids::{IQ3_S, LEVELS_3_S, four, signed},
    weights::{Weights, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq3S {
    pub d: F16,
    pub qs: [u8; 64],
    /// The ninth bits of eight points each.
    pub qh: [u8; 8],
    pub signs: [u8; 32],
    pub scales: [u8; 4],
}

impl Block for BlockIq3S {
    const TYPE: GgmlType = GgmlType::IQ3_S;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let ints = eights(|l| {
            let points = [0, 1].map(|half| {
                let at = 2 * l + half;
                let ninth = u16::from(self.qh[b] >> at & 1) << 8;
                four(IQ3_S[usize::from(u16::from(self.qs[8 * b + at]) | ninth)], &LEVELS_3_S)
            });
            std::array::from_fn(|i| signed(points[i / 4][i % 4], self.signs[4 * b + l], i))
        });
        let scale = i32::from(self.scales[b / 2] >> (b % 2 * 4) & 15);
        Weights::with_sub_scales(self.d.to_f32(), [2 * scale + 1; 2], ints)
    }
}
