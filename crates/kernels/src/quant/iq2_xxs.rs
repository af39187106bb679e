//! IQ2_XXS: of each 32 weights, four points of eight, their signs by seven bits each, and a scale of four bits:
//! `w = d·(scale + 1/2)/4·magnitude`.
//!
//! In [products](crate::matmul): w = ± point, a = d/8, s = 2·scales+1.

use super::{
    Block, F16, GgmlType,
    grids::{IQ2_XXS, eight, even_signs, signed},
    points::*,
    weights::{Weights, eights},
};
use crate::matmul::format::*;

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

impl Format for BlockIq2Xxs {
    row_by_row!(kinds::SubScale<IQ2_OFFSET, 107>);
}

impl Packable for BlockIq2Xxs {
    layout!(Opaque<2>);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        let signs_and_scale = word(&self.qs[b], 1);
        padded([word(&self.qs[b], 0), with_spare_bits(signs_and_scale & 0xfff_ffff, signs_and_scale >> 28)])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        let (signs, scale) = from_spare_bits(bits[1]);
        put_word(&mut self.qs[b], 0, bits[0]);
        put_word(&mut self.qs[b], 1, signs | scale << 28);
        self.weights(b)
    }
}

pub(crate) static POINTS: Eights<256> = Eights::new(&IQ2_XXS, LEVELS_2);

impl PackedFormat for BlockIq2Xxs {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe { put_scale_behind::<L, Self>(l, head, 0, 0.125, to) };
    }

    #[inline(always)]
    unsafe fn unpacked<L: Lanes>(
        l: L,
        [numbers, signs, ..]: [L::V; 8],
        _: *const u8,
        to: &mut Scales,
        b: usize,
    ) -> [L::V; 8] {
        let (signs, scale) = signs_and_spare_bits(l, signs);
        to.put_sub_scale(l, b, odd_from_spare_bits(l, scale));
        all_with_signs(l, l.eights(&POINTS, numbers, l.splat(0)), signs, IQ2_OFFSET)
    }
}
