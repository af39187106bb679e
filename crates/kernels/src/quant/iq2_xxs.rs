//! IQ2_XXS: of each 32 weights, four points of eight, their signs by seven bits each, and a scale of four bits:
//! `w = d·(scale + 1/2)/4·magnitude`.

use super::{
    Block, F16, GgmlType,
    grids::{IQ2_XXS, eight, even_signs, signed},
    groups::{Group, Grouped, dequantize, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq2Xxs {
    pub d: F16,
    /// Of each 32 weights four bytes of points, then a word of signs and the scale.
    pub qs: [[u8; 8]; 8],
}

impl Grouped for BlockIq2Xxs {
    fn group(&self, b: usize) -> Group {
        let [p0, p1, p2, p3, rest @ ..] = self.qs[b];
        let rest = u32::from_le_bytes(rest);
        let ints = eights(|l| {
            let signs = even_signs((rest >> (7 * l)) as u8);
            let point = eight(IQ2_XXS[usize::from([p0, p1, p2, p3][l])]);
            std::array::from_fn(|i| signed(point[i], signs, i))
        });
        Group { scale: self.d.to_f32() * 0.125, sub: [2 * (rest >> 28) as i32 + 1; 2], ints }
    }
}

impl Block for BlockIq2Xxs {
    const TYPE: GgmlType = GgmlType::IQ2_XXS;

    fn dequantize(&self, out: &mut [f32]) {
        dequantize(self, out);
    }
}
