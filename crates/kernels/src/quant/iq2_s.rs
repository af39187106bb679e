//! IQ2_S: points of eight weights with ten bits each, a sign for each weight, a scale of four bits for each 16:
//! `w = d·(scale + 1/2)/4·magnitude`.
//!
//! In [products](crate::matmul): w = ± point, a = d/8, s = 2·scales+1.

use super::{
    Block, F16, GgmlType,
    grids::{IQ2_S, eight, signed},
    points::*,
    weights::{Weights, eights},
};
use crate::matmul::format::*;

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

impl Format for BlockIq2S {
    row_by_row!(kinds::SubScales<IQ2_OFFSET, 107>);
}

impl Packable for BlockIq2S {
    layout!(Opaque<2>);
    const HEAD: &'static [Range<usize>] = &[66..82, 0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        padded([word(&self.qs, b), in_place(word(&self.signs, b))])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        put_word(&mut self.qs, b, bits[0]);
        put_word(&mut self.signs, b, in_order(bits[1]));
        self.weights(b)
    }
}

pub(crate) static POINTS: Eights<1024> = Eights::new(&IQ2_S, LEVELS_2);

impl PackedFormat for BlockIq2S {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            put_scale_behind::<L, Self>(l, head, 4, 0.125, to);
            put_nibbles(l, head, 2, to);
        }
    }

    #[inline(always)]
    unsafe fn unpacked<L: Lanes>(
        l: L,
        [numbers, signs, ..]: [L::V; 8],
        head: *const u8,
        _: &mut Scales,
        b: usize,
    ) -> [L::V; 8] {
        // Two bits to each byte.
        // SAFETY: the caller's.
        let high = unsafe { head_byte(l, head, 0, b) };
        let high = l.or(high, l.shl(high, 12));
        let high = bits(l, l.or(high, l.shl(high, 6)), 0, 3);
        all_with_signs(l, l.eights(&POINTS, numbers, high), signs, IQ2_OFFSET)
    }
}
