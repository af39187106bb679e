//! IQ2_XS: points of eight weights with nine bits each and seven bits of signs; a scale of four bits for each 16 weights:
//! `w = d·(scale + 1/2)/4·magnitude`.

use super::{
    Block, F16, GgmlType,
    grids::{IQ2_XS, eight, even_signs, signed},
    weights::{Weights, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq2Xs {
    pub d: F16,
    pub qs: [[u8; 2]; 32],
    pub scales: [u8; 8],
}

impl Block for BlockIq2Xs {
    const TYPE: GgmlType = GgmlType::IQ2_XS;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let ints = eights(|l| {
            let q = u16::from_le_bytes(self.qs[4 * b + l]);
            let (point, signs) = (eight(IQ2_XS[usize::from(q & 511)]), even_signs((q >> 9) as u8));
            std::array::from_fn(|i| signed(point[i], signs, i))
        });
        let sub = [self.scales[b] & 15, self.scales[b] >> 4].map(|scale| 2 * i32::from(scale) + 1);
        Weights::with_sub_scales(self.d.to_f32() * 0.125, sub, ints)
    }
}
