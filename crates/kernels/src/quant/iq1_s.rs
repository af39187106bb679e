//! IQ1_S: points of eight weights of -1, 0 or 1 with eleven bits each, and for each 32 a scale of three bits and an eighth that is
//! added or taken away: `w = d·(2·scale + 1)·(point ± 1/8)`.
//!
//! In [products](crate::matmul): w = 8·point ± 1, a = d/8, s = 2·scales+1.

use super::{
    Block, F16, GgmlType,
    grids::{IQ1, eight_ternary},
    points::*,
    weights::{Weights, eights},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq1S {
    pub d: F16,
    pub qs: [u8; 32],
    /// Of each 32 weights three upper bits of four points, the scale, and the sign of the eighth.
    pub qh: [[u8; 2]; 8],
}

impl Block for BlockIq1S {
    const TYPE: GgmlType = GgmlType::IQ1_S;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let high = u16::from_le_bytes(self.qh[b]);
        let eighth = if high >> 15 == 1 { -1 } else { 1 };
        let ints = eights(|l| {
            let at = u16::from(self.qs[4 * b + l]) | (high >> (3 * l) & 7) << 8;
            eight_ternary(IQ1[usize::from(at)]).map(|x| 8 * x + eighth)
        });
        let scale = i32::from(high >> 12 & 7);
        Weights::with_sub_scales(self.d.to_f32() * 0.125, [2 * scale + 1; 2], ints)
    }
}

impl Format for BlockIq1S {
    row_by_row!(kinds::SubScale<IQ1_OFFSET, 63>);
}

impl Packable for BlockIq1S {
    layout!(Opaque<1>);
    const HEAD: &'static [Range<usize>] = &[34..50, 0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        padded([word(&self.qs, b)])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        put_word(&mut self.qs, b, bits[0]);
        self.weights(b)
    }
}

pub(crate) static POINTS: Eights<2048> = Eights::new(&IQ1, LEVELS_1);

impl PackedFormat for BlockIq1S {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            put_scale_behind::<L, Self>(l, head, 4, 0.125, to);
            for b in 0..8 {
                let scale = l.and(l.shr(head_half(l, head, 0, b), 12), l.splat(7));
                to.put_sub_scale(l, b, odd(l, scale));
            }
        }
    }

    #[inline(always)]
    unsafe fn unpacked<L: Lanes>(
        l: L,
        [numbers, ..]: [L::V; 8],
        head: *const u8,
        _: &mut Scales,
        b: usize,
    ) -> [L::V; 8] {
        // SAFETY: the caller's.
        let high = unsafe { head_half(l, head, 0, b) };
        // Three bits to each byte.
        let pairs = l.or(l.and(high, l.splat(0x3f)), l.shl(l.and(high, l.splat(0xfc0)), 10));
        let numbers_above = bits(l, l.or(pairs, l.shl(pairs, 5)), 0, 7);
        let mut weights = l.eights(&POINTS, numbers, numbers_above);
        // The levels are those of eighths taken away.
        let added = l.sub(l.splat(2), l.and(l.shr(high, 14), l.splat(2)));
        let added = l.spread_byte(added, 0);
        for weights in &mut weights {
            *weights = l.add(*weights, added);
        }
        weights
    }
}
