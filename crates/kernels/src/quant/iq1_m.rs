//! IQ1_M: points of eight weights of -1, 0 or 1 with eleven bits each, each with an eighth that is added or taken away, and a
//! scale of three bits for each 16: `w = d·(2·scale + 1)·(point ± 1/8)`.
//!
//! In [products](crate::matmul): w = 8·point ± 1, a = d/8, s = 2·scales+1.

use super::{
    Block, F16, GgmlType,
    grids::{IQ1, eight_ternary},
    iq1_s::POINTS,
    points::*,
    weights::{Weights, eights},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq1M {
    pub qs: [u8; 32],
    /// Of each point, in a nibble, three upper bits and the sign of its eighth.
    pub qh: [u8; 16],
    /// Four words of twelve bits of scales; the other four bits of each are a quarter of `d`, the lowest first.
    pub scales: [[u8; 2]; 4],
}

impl BlockIq1M {
    pub fn d(&self) -> F16 {
        let quarters = self.scales.iter().rev();
        F16(quarters.fold(0, |d, word| d << 4 | u16::from_le_bytes(*word) >> 12).to_le_bytes())
    }
}

impl Block for BlockIq1M {
    const TYPE: GgmlType = GgmlType::IQ1_M;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let ints = eights(|l| {
            let nibble = self.qh[2 * b + l / 2] >> (l % 2 * 4) & 15;
            let eighth = if nibble >> 3 == 1 { -1 } else { 1 };
            let at = u16::from(self.qs[4 * b + l]) | u16::from(nibble & 7) << 8;
            eight_ternary(IQ1[usize::from(at)]).map(|x| 8 * x + eighth)
        });
        let scales = u16::from_le_bytes(self.scales[b / 2]) >> (b % 2 * 6);
        let sub = [scales & 7, scales >> 3 & 7].map(|scale| 2 * i32::from(scale) + 1);
        Weights::with_sub_scales(self.d().to_f32() * 0.125, sub, ints)
    }
}

impl Format for BlockIq1M {
    row_by_row!(kinds::SubScales<IQ1_OFFSET, 63>);
}

impl Packable for BlockIq1M {
    layout!(Opaque<1>);
    const HEAD: &'static [Range<usize>] = &[32..56];

    fn bits(&self, b: usize) -> [u32; 8] {
        padded([word(&self.qs, b)])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        put_word(&mut self.qs, b, bits[0]);
        self.weights(b)
    }
}

impl PackedFormat for BlockIq1M {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            let [low, high] = [head_word(l, head, 4), head_word(l, head, 5)];
            // Four times four bits of the half above all scales.
            let of = |word, from: u32, to: u32| l.shl(l.and(l.shr(word, from), l.splat(15)), to);
            let d = l.or(l.or(of(low, 12, 0), of(low, 28, 4)), l.or(of(high, 12, 8), of(high, 28, 12)));
            put_one_scale::<L, Self>(l, l.mul_f32(l.half_to_f32(d), l.splat_f32(0.125)), to, 0);
            for b in 0..8 {
                let both = l.shr(head_half(l, head, 4, b / 2), b as u32 % 2 * 6);
                let [first, second] = [both, l.shr(both, 3)].map(|scale| odd(l, l.and(scale, l.splat(7))));
                to.put_sub_scales(l, b, [first, second]);
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
        // A nibble to each byte.
        // SAFETY: the caller's.
        let four = l.and(unsafe { head_half(l, head, 0, b) }, l.splat(0xffff));
        let four = l.and(l.or(four, l.shl(four, 8)), l.splat(0x00ff_00ff));
        let four = bits(l, l.or(four, l.shl(four, 4)), 0, 15);
        let mut weights = l.eights(&POINTS, numbers, bits(l, four, 0, 7));
        // The levels are those of eighths taken away.
        let added = l.sub(l.splat(0x0202_0202), l.shl(bits(l, four, 3, 1), 1));
        for k in 0..4 {
            let added = l.spread_byte(added, k);
            weights[2 * k] = l.add(weights[2 * k], added);
            weights[2 * k + 1] = l.add(weights[2 * k + 1], added);
        }
        weights
    }
}
