//! IQ2_XS: points of eight weights with nine bits each and seven bits of signs; a scale of four bits for each 16 weights:
//! `w = d·(scale + 1/2)/4·magnitude`.
//!
//! In [products](crate::matmul): w = ± point, a = d/8, s = 2·scales+1.

use super::{
    Block, F16, GgmlType,
    grids::{IQ2_XS, eight, even_signs, signed},
    points::*,
    weights::{Weights, eights},
};
use crate::matmul::format::*;

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

impl Format for BlockIq2Xs {
    row_by_row!(kinds::SubScales<IQ2_OFFSET, 107>);
}

impl Packable for BlockIq2Xs {
    layout!(Opaque<2>);
    const HEAD: &'static [Range<usize>] = &[66..74, 0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        let [mut low, mut ninths, mut sevens] = [0; 3];
        for l in 0..4 {
            let q = u32::from(u16::from_le_bytes(self.qs[4 * b + l]));
            low |= (q & 255) << (8 * l);
            ninths |= (q >> 8 & 1) << l;
            sevens |= q >> 9 << (7 * l);
        }
        padded([low, with_spare_bits(sevens, ninths)])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        let (sevens, ninths) = from_spare_bits(bits[1]);
        for l in 0..4 {
            let q = bits[0] >> (8 * l) & 255 | (ninths >> l & 1) << 8 | (sevens >> (7 * l) & 127) << 9;
            self.qs[4 * b + l] = (q as u16).to_le_bytes();
        }
        self.weights(b)
    }
}

pub(crate) static POINTS: Eights<512> = Eights::new(&IQ2_XS, LEVELS_2);

impl PackedFormat for BlockIq2Xs {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            put_scale_behind::<L, Self>(l, head, 2, 0.125, to);
            put_nibbles(l, head, 0, to);
        }
    }

    #[inline(always)]
    unsafe fn unpacked<L: Lanes>(
        l: L,
        [numbers, signs, ..]: [L::V; 8],
        _: *const u8,
        _: &mut Scales,
        _: usize,
    ) -> [L::V; 8] {
        // The ninth bits stand where signs are not told.
        let ninths = l.and(l.spread_byte(signs, 3), l.splat(0x8020_0802));
        let ninths = l.min_bytes(ninths, l.splat(0x0101_0101));
        let (signs, _) = signs_and_spare_bits(l, signs);
        all_with_signs(l, l.eights(&POINTS, numbers, ninths), signs, IQ2_OFFSET)
    }
}
