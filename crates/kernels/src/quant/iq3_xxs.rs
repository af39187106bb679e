//! IQ3_XXS: points of four weights, signs of eight by seven bits, and a scale of four bits for each 32:
//! `w = d·(scale + 1/2)·magnitude/2`.
//!
//! In [products](crate::matmul): w = ± point, a = d/2, s = 2·scales+1.

use super::{
    Block, F16, GgmlType,
    grids::{IQ3_XXS, LEVELS_3_XXS, even_signs, four, signed},
    points::*,
    weights::{Weights, eights},
};
use crate::matmul::format::*;

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

impl Format for BlockIq3Xxs {
    row_by_row!(kinds::SubScale<IQ3_OFFSET, 63>);
}

impl Packable for BlockIq3Xxs {
    layout!(Opaque<3>);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        let signs_and_scale = u32::from_le_bytes(self.signs_and_scales[b]);
        let signs = with_spare_bits(signs_and_scale & 0xfff_ffff, signs_and_scale >> 28);
        padded([word(&self.qs, 2 * b), word(&self.qs, 2 * b + 1), signs])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        let (signs, scale) = from_spare_bits(bits[2]);
        put_word(&mut self.qs, 2 * b, bits[0]);
        put_word(&mut self.qs, 2 * b + 1, bits[1]);
        self.signs_and_scales[b] = (signs | scale << 28).to_le_bytes();
        self.weights(b)
    }
}

pub(crate) static POINTS: Fours<256> = Fours::new(&IQ3_XXS, &LEVELS_3_XXS, IQ3_OFFSET as u8);

impl PackedFormat for BlockIq3Xxs {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe { put_scale_behind::<L, Self>(l, head, 0, 0.5, to) };
    }

    #[inline(always)]
    unsafe fn unpacked<L: Lanes>(
        l: L,
        [first, second, signs, ..]: [L::V; 8],
        _: *const u8,
        to: &mut Scales,
        b: usize,
    ) -> [L::V; 8] {
        let (signs, scale) = signs_and_spare_bits(l, signs);
        to.put_sub_scale(l, b, odd_from_spare_bits(l, scale));
        let weights = two_fours(l, &POINTS, [first, second], [l.splat(0); 2]);
        all_with_signs(l, weights, signs, IQ3_OFFSET)
    }
}
