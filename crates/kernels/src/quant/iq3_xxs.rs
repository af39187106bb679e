//! IQ3_XXS: points of four weights, signs of eight by seven bits, and a scale of four bits for each 32:
//! `w = d·(scale + 1/2)·magnitude/2`.

use super::{
    Block, F16, GgmlType,
    grids::{IQ3_XXS, LEVELS_3_XXS, even_signs, four, signed},
    weights::{Weights, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq3Xxs {
    pub d: F16,
    pub qs: [u8; 64],
    /// A word for each 32 weights.
    pub signs_and_scales: [[u8; 4]; 8],
}

impl Block for BlockIq3Xxs {
    const TYPE: GgmlType = GgmlType::IQ3_XXS;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let word = u32::from_le_bytes(self.signs_and_scales[b]);
        let ints = eights(|l| {
            let signs = even_signs((word >> (7 * l)) as u8);
            let points =
                [0, 1].map(|half| four(IQ3_XXS[usize::from(self.qs[8 * b + 2 * l + half])], &LEVELS_3_XXS));
            std::array::from_fn(|i| signed(points[i / 4][i % 4], signs, i))
        });
        Weights::with_sub_scales(self.d.to_f32() * 0.5, [2 * (word >> 28) as i32 + 1; 2], ints)
    }
}
