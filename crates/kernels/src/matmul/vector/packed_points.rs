//! Packed formats whose weights are points of grids. Words of numbers and of signs come from the splits, further bits of
//! numbers from the heads.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use super::{
    formats::{Format, bits, byte},
    lanes::Lanes,
    packed_formats::{PackedFormat, head_word, put_one_scale},
    panel::Scales,
    points::*,
};
use crate::quant::blocks::*;

/// Of a word with the signs of four times seven weights: all signs, of which an even number of eight is set, and the word's
/// other four bits, as bits 0, 2, 4 and 6.
#[inline(always)]
fn signs_and_spare_bits<L: Lanes>(l: L, word: L::V) -> (L::V, L::V) {
    let told = l.and(word, l.splat(0x55ff_ffff));
    let halves = l.xor(told, l.shr(told, 16));
    let bytes = l.xor(halves, l.shr(halves, 8));
    let odd = l.and(l.xor(bytes, l.shr(bytes, 1)), l.splat(0x55));
    (l.or(told, l.shl(odd, 25)), l.and(l.shr(word, 25), l.splat(0x55)))
}

/// `2·scale + 1` for a scale of which the bits stand apart: 0, 2, 4 and 6.
#[inline(always)]
fn odd_from_spare_bits<L: Lanes>(l: L, spare: L::V) -> L::V {
    let pairs = l.and(l.or(spare, l.shr(spare, 1)), l.splat(0x33));
    odd(l, l.and(l.or(pairs, l.shr(pairs, 2)), l.splat(15)))
}

/// `2·x + 1`
#[inline(always)]
fn odd<L: Lanes>(l: L, x: L::V) -> L::V {
    l.add(l.add(x, x), l.splat(1))
}

#[inline(always)]
fn all_with_signs<L: Lanes>(l: L, weights: [L::V; 8], signs: L::V, offset: i16) -> [L::V; 8] {
    let mut out = weights;
    for (j, out) in out.iter_mut().enumerate() {
        *out = l.with_signs(*out, signs, j, offset as u8);
    }
    out
}

/// The `b`-th byte of the words of a head from the `first` on.
///
/// # Safety
/// The head is readable.
#[inline(always)]
unsafe fn head_byte<L: Lanes>(l: L, head: *const u8, first: usize, b: usize) -> L::V {
    // SAFETY: the caller's.
    byte(l, unsafe { head_word(l, head, first + b / 4) }, b % 4)
}

/// The `b`-th 16 bits, and maybe more above them.
///
/// # Safety
/// As [`head_byte`].
#[inline(always)]
unsafe fn head_half<L: Lanes>(l: L, head: *const u8, first: usize, b: usize) -> L::V {
    // SAFETY: the caller's.
    l.shr(unsafe { head_word(l, head, first + b / 2) }, b as u32 % 2 * 16)
}

/// A half behind so many words of a head, times `factor`, as the scale of 256 weights.
///
/// # Safety
/// As [`head_byte`].
#[inline(always)]
unsafe fn put_scale_behind<L: Lanes, B: Format>(
    l: L,
    head: *const u8,
    words: usize,
    factor: f32,
    to: &mut Scales,
) {
    // SAFETY: the caller's.
    let d = unsafe { l.load_halves(head.add(4 * L::ROWS * words)) };
    put_one_scale::<L, B>(l, l.mul_f32(d, l.splat_f32(factor)), to, 0);
}

/// Eight bytes of two scales of four bits each.
///
/// # Safety
/// As [`head_byte`].
#[inline(always)]
unsafe fn put_nibbles<L: Lanes>(l: L, head: *const u8, first: usize, to: &mut Scales) {
    for b in 0..8 {
        // SAFETY: the caller's.
        let both = unsafe { head_byte(l, head, first, b) };
        to.put_sub_scales(l, b, [odd(l, l.and(both, l.splat(15))), odd(l, l.shr(both, 4))]);
    }
}

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
        all_with_signs(l, l.eights(&IQ2_XXS, numbers, l.splat(0)), signs, IQ2_OFFSET)
    }
}

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
        all_with_signs(l, l.eights(&IQ2_XS, numbers, ninths), signs, IQ2_OFFSET)
    }
}

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
        all_with_signs(l, l.eights(&IQ2_S, numbers, high), signs, IQ2_OFFSET)
    }
}

#[inline(always)]
fn two_fours<L: Lanes, const N: usize>(
    l: L,
    table: &Fours<N>,
    numbers: [L::V; 2],
    high: [L::V; 2],
) -> [L::V; 8] {
    let [a, b, c, d] = l.fours(table, numbers[0], high[0]);
    let [e, f, g, h] = l.fours(table, numbers[1], high[1]);
    [a, b, c, d, e, f, g, h]
}

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
        let weights = two_fours(l, &IQ3_XXS, [first, second], [l.splat(0); 2]);
        all_with_signs(l, weights, signs, IQ3_OFFSET)
    }
}

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
        let weights = two_fours(l, &IQ3_S, [first, second], [ninths(0x0804_0201), ninths(0x8040_2010)]);
        all_with_signs(l, weights, signs, IQ3_OFFSET)
    }
}

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
        let mut weights = l.eights(&IQ1, numbers, numbers_above);
        // The levels are those of eighths taken away.
        let added = l.sub(l.splat(2), l.and(l.shr(high, 14), l.splat(2)));
        let added = l.spread_byte(added, 0);
        for weights in &mut weights {
            *weights = l.add(*weights, added);
        }
        weights
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
        let mut weights = l.eights(&IQ1, numbers, bits(l, four, 0, 7));
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
