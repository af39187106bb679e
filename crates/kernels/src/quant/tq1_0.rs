//! TQ1_0: weights of -1, 0 and 1, five to a byte as a number below 1 in base three: `w = d·(digit - 1)`.
//!
//! In [products](crate::matmul): w = q-1, a = d.

use super::{
    Block, F16, GgmlType,
    weights::{Weights, ints},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockTq1 {
    /// 32 bytes hold 160 weights, the first digits of all bytes first, then 16 bytes another 80.
    pub qs: [u8; 48],
    /// Four weights in each.
    pub qh: [u8; 4],
    pub d: F16,
}

impl Block for BlockTq1 {
    const TYPE: GgmlType = GgmlType::TQ1_0;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let ints = ints(|i| match 32 * b + i {
            at @ ..160 => digit(self.qs[at % 32], at / 32),
            at @ 160..240 => digit(self.qs[32 + at % 16], (at - 160) / 16),
            at => digit(self.qh[at % 4], (at - 240) / 4),
        });
        Weights::plain(self.d.to_f32(), ints)
    }
}

/// The `n`-th digit behind the point of each `byte / 256` in base three.
#[inline(always)]
fn ternary_digits<L: Lanes>(l: L, bytes: L::V, n: usize) -> L::V {
    const POWERS: [u32; 5] = [1, 3, 9, 27, 81];
    let every_other = l.splat(0x00ff_00ff);
    // In 16 bits each: what is behind the point comes before it, and the next digit is what three times as much has before it.
    let next = |bytes: L::V| {
        let behind = l.and(l.mul(l.and(bytes, every_other), l.splat(POWERS[n])), every_other);
        l.add(behind, l.add(behind, behind))
    };
    let (even, odd) = (next(bytes), next(l.shr(bytes, 8)));
    l.or(l.and(l.shr(even, 8), l.splat(0x0003_0003)), l.and(odd, l.splat(0x0300_0300)))
}

impl Format for BlockTq1 {
    row_by_row!(kinds::Plain<1, 3>);
}

/// Five weights to a byte do not part into groups of 32, so a block is kept whole.
impl Packable for BlockTq1 {
    layout!(Opaque<0>);
    const HEAD: &'static [Range<usize>] = &[0..54];

    fn bits(&self, _: usize) -> [u32; 8] {
        [0; 8]
    }
    fn weights_of(self, b: usize, _: [u32; 8]) -> Weights {
        self.weights(b)
    }
}

impl PackedFormat for BlockTq1 {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        put_one_scale::<L, Self>(l, unsafe { l.load_halves(head.add(52 * L::ROWS)) }, to, b);
    }

    #[inline(always)]
    unsafe fn unpacked<L: Lanes>(
        l: L,
        bits: [L::V; 8],
        head: *const u8,
        _: &mut Scales,
        b: usize,
    ) -> [L::V; 8] {
        let mut out = bits;
        for (j, out) in out.iter_mut().enumerate() {
            let (word, digit) = match 8 * b + j {
                at @ ..40 => (at % 8, at / 8),
                at @ 40..60 => (8 + at % 4, (at - 40) / 4),
                at => (12, at - 60),
            };
            // SAFETY: the caller's.
            *out = ternary_digits(l, unsafe { head_word(l, head, word) }, digit);
        }
        out
    }
}

/// The `n`-th digit behind the point of `byte / 256` in base three, less one.
fn digit(byte: u8, n: usize) -> i8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    ((u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8) as i8 - 1
}
