//! IQ3_S: points of four weights with nine bits each, a sign for each weight, a scale of four bits for each 32:
//! `w = d·(2·scale + 1)·magnitude`.
//!
//! In [products](crate::matmul): w = ± point, a = d, s = 2·scales+1.

use super::{
    Block, F16, GgmlType,
    grids::{IQ3_S, LEVELS_3_S, four, signed},
    points::*,
    weights::{Weights, eights},
};
use crate::matmul::format::*;

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

impl Format for BlockIq3S {
    row_by_row!(kinds::SubScale<IQ3_OFFSET, 63>);
}

impl Packable for BlockIq3S {
    layout!(Opaque<3>);
    const HEAD: &'static [Range<usize>] = &[66..74, 106..110, 0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        padded([word(&self.qs, 2 * b), word(&self.qs, 2 * b + 1), in_place(word(&self.signs, b))])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        put_word(&mut self.qs, 2 * b, bits[0]);
        put_word(&mut self.qs, 2 * b + 1, bits[1]);
        put_word(&mut self.signs, b, in_order(bits[2]));
        self.weights(b)
    }
}

pub(crate) static POINTS: Fours<512> = Fours::new(&IQ3_S, &LEVELS_3_S, IQ3_OFFSET as u8);

impl PackedFormat for BlockIq3S {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            put_scale_behind::<L, Self>(l, head, 3, 1.0, to);
            let scales = head_word(l, head, 2);
            for b in 0..8 {
                to.put_sub_scale(l, b, odd(l, l.and(l.shr(scales, 4 * b as u32), l.splat(15))));
            }
        }
    }

    #[inline(always)]
    unsafe fn unpacked<L: Lanes>(
        l: L,
        [first, second, signs, ..]: [L::V; 8],
        head: *const u8,
        _: &mut Scales,
        b: usize,
    ) -> [L::V; 8] {
        // A bit to each byte.
        // SAFETY: the caller's.
        let eight = l.spread_byte(unsafe { head_byte(l, head, 0, b) }, 0);
        let ninths = |of: u32| l.min_bytes(l.and(eight, l.splat(of)), l.splat(0x0101_0101));
        let weights = two_fours(l, &POINTS, [first, second], [ninths(0x0804_0201), ninths(0x8040_2010)]);
        all_with_signs(l, weights, signs, IQ3_OFFSET)
    }
}
