//! IQ4_XS: sub-blocks of 32: `w = d·(scale - 32)·KVALUES[nibble]`.
//!
//! In [products](crate::matmul): w = level, a = d·(scale-32).

use super::{
    Block, F16, GgmlType,
    iq4_nl::{BlockIq4Nl, KVALUES},
    weights::{Weights, levels},
};
use crate::matmul::format::*;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq4Xs {
    pub d: F16,
    pub scales_h: [u8; 2],
    pub scales_l: [u8; 4],
    pub qs: [u8; 128],
}

impl BlockIq4Xs {
    /// From the scales of its sub-blocks, 32 above what they stand for, and the numbers of the levels.
    pub fn pack(d: F16, scales: &[u8; 8], q: &[u8; 256]) -> Self {
        let high = |i: usize| (0..4).fold(0, |byte, part| byte | scales[4 * i + part] >> 4 << (2 * part));
        Self {
            d,
            scales_h: std::array::from_fn(high),
            scales_l: std::array::from_fn(|i| scales[2 * i] & 15 | scales[2 * i + 1] << 4),
            qs: std::array::from_fn(|i| {
                let at = i / 16 * 32 + i % 16;
                q[at] | q[at + 16] << 4
            }),
        }
    }

    /// Signed scale, -32..=31, of the 32 weights from `32 * sub`.
    #[inline(always)]
    pub fn scale(&self, sub: usize) -> i8 {
        let low = self.scales_l[sub / 2] >> (sub % 2 * 4) & 15;
        let high = self.scales_h[sub / 4] >> (sub % 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    }
}

impl Block for BlockIq4Xs {
    const TYPE: GgmlType = GgmlType::IQ4_XS;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let qs = &self.qs[16 * b..][..16];
        let scale = self.d.to_f32() * f32::from(self.scale(b));
        Weights::plain(scale, levels(qs, &KVALUES))
    }
}

/// IQ4_XS's eight scales of six bits: the four lower ones stand together, the others behind the half above them all.
#[inline(always)]
fn put_iq4_xs_scales<L: Lanes>(l: L, d_and_high: L::V, low: L::V, to: &mut Scales) {
    let d = l.half_to_f32(d_and_high);
    for b in 0..8 {
        let low = l.and(l.shr(low, 4 * b as u32), l.splat(15));
        let high = l.and(l.shr(d_and_high, 16 + 2 * b as u32), l.splat(3));
        let scale = l.sub(l.or(low, l.shl(high, 4)), l.splat(32));
        to.put_scale(l, b, l.mul_f32(d, l.to_f32(scale)));
    }
}

impl Format for BlockIq4Xs {
    type Kind = kinds::Wide;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let table = l.table(bytemuck::cast_ref(&KVALUES));
            let [d_and_high, low, ..] = rows.bytes_16(l, 0);
            put_iq4_xs_scales(l, d_and_high, low, &mut to.scales);
            for b in 0..8 {
                let qs = rows.bytes_16(l, offset_of!(Self, qs) + 16 * b);
                put_wide(l, to, b, vectors::levels(l, table, vectors::nibbles(l, qs)));
            }
        }
    }
}

impl Packable for BlockIq4Xs {
    layout!(Nibbles);
    const HEAD: &'static [Range<usize>] = &[0..8];

    fn bits(&self, b: usize) -> [u32; 8] {
        words::nibbles(&self.qs[16 * b..][..16])
    }
    fn int(u: u8) -> i16 {
        i16::from(KVALUES[usize::from(u)])
    }
}

impl PackedFormat for BlockIq4Xs {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe { put_iq4_xs_scales(l, head_word(l, head, 0), head_word(l, head, 1), to) }
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        BlockIq4Nl::ints(l, bits)
    }
}
