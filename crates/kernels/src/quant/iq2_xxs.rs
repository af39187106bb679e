//! IQ2_XXS: of each 32 weights, four points of eight, their signs by seven bits each, and a scale of four bits:
//! `w = d·(scale + 1/2)/4·magnitude`.

use super::{
    Block, F16, GgmlType,
    grids::{IQ2_XXS, eight, even_signs, signed},
    weights::{Weights, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq2Xxs {
    pub d: F16,
    /// Of each 32 weights four bytes of points, then a word of signs and the scale.
    pub qs: [[u8; 8]; 8],
}

impl Block for BlockIq2Xxs {
    const TYPE: GgmlType = GgmlType::IQ2_XXS;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let [p0, p1, p2, p3, rest @ ..] = self.qs[b];
        let rest = u32::from_le_bytes(rest);
        let ints = eights(|l| {
            let signs = even_signs((rest >> (7 * l)) as u8);
            let point = eight(IQ2_XXS[usize::from([p0, p1, p2, p3][l])]);
            std::array::from_fn(|i| signed(point[i], signs, i))
        });
        Weights::with_sub_scales(self.d.to_f32() * 0.125, [2 * (rest >> 28) as i32 + 1; 2], ints)
    }
}
