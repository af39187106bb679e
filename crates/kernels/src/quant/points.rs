//! What the formats share whose weights are points of grids. Packed they are words of the points' numbers, eight bits of each,
//! and of signs; further bits of numbers are in the heads. A sign is where vectors find it: bit j of byte i is that of
//! weight `4·j + i`.

use super::grids::{self, even_signs};
use crate::matmul::format::*;

/// From the order of the weights.
pub fn in_place(signs: u32) -> u32 {
    let every_fourth = |signs: u32| {
        let ones = signs & 0x1111_1111;
        let twos = (ones | ones >> 3) & 0x0303_0303;
        let fours = (twos | twos >> 6) & 0x000f_000f;
        (fours | fours >> 12) as u8
    };
    u32::from_le_bytes([0, 1, 2, 3].map(|i| every_fourth(signs >> i)))
}

/// To the order of the weights.
pub fn in_order(signs: u32) -> u32 {
    (0..32).fold(0, |to, n| to | (signs >> (8 * (n % 4) + n / 4) & 1) << n)
}

/// The places of the signs that follow from seven others.
const SPARE: [u32; 4] = [25, 27, 29, 31];

/// Four times seven signs, and four other bits in the places of those that are not told.
pub fn with_spare_bits(sevens: u32, four: u32) -> u32 {
    let signs: [u8; 4] = std::array::from_fn(|l| even_signs((sevens >> (7 * l)) as u8));
    let told = in_place(u32::from_le_bytes(signs)) & !SPARE.iter().fold(0, |mask, at| mask | 1 << at);
    (0..4).fold(told, |to, l| to | (four >> l & 1) << SPARE[l])
}

/// What [`with_spare_bits`] was given.
pub fn from_spare_bits(word: u32) -> (u32, u32) {
    let signs = in_order(word);
    let sevens = (0..4).fold(0, |to, l| to | (signs >> (8 * l) & 127) << (7 * l));
    (sevens, (0..4).fold(0, |to, l| to | (word >> SPARE[l] & 1) << l))
}

pub fn padded<const N: usize>(words: [u32; N]) -> [u32; 8] {
    let mut all = [0; 8];
    all[..N].copy_from_slice(&words);
    all
}

pub fn put_word(bytes: &mut [u8], i: usize, word: u32) {
    bytes[4 * i..][..4].copy_from_slice(&word.to_le_bytes());
}

/// What weights are too large by. Those of IQ1 are eight times a number from -1 to 1, and one more or less.
pub const IQ1_OFFSET: i16 = 32;
pub const IQ2_OFFSET: i16 = 64;
pub const IQ3_OFFSET: i16 = 32;

/// The magnitudes of IQ2, with its offset.
pub const LEVELS_2: [u8; 4] = {
    let mut levels = grids::LEVELS_2;
    let mut i = 0;
    while i < 4 {
        levels[i] += IQ2_OFFSET as u8;
        i += 1;
    }
    levels
};

/// The lower ones of the two weights that a point of IQ1 may mean.
pub const LEVELS_1: [u8; 4] = {
    let zero = IQ1_OFFSET as u8 - 1;
    [zero - 8, zero, zero + 8, 0]
};

/// Of a word with the signs of four times seven weights: all signs, of which an even number of eight is set, and the word's
/// other four bits, as bits 0, 2, 4 and 6.
#[inline(always)]
pub fn signs_and_spare_bits<L: Lanes>(l: L, word: L::V) -> (L::V, L::V) {
    let told = l.and(word, l.splat(0x55ff_ffff));
    let halves = l.xor(told, l.shr(told, 16));
    let bytes = l.xor(halves, l.shr(halves, 8));
    let odd = l.and(l.xor(bytes, l.shr(bytes, 1)), l.splat(0x55));
    (l.or(told, l.shl(odd, 25)), l.and(l.shr(word, 25), l.splat(0x55)))
}

/// `2·scale + 1` for a scale of which the bits stand apart: 0, 2, 4 and 6.
#[inline(always)]
pub fn odd_from_spare_bits<L: Lanes>(l: L, spare: L::V) -> L::V {
    let pairs = l.and(l.or(spare, l.shr(spare, 1)), l.splat(0x33));
    odd(l, l.and(l.or(pairs, l.shr(pairs, 2)), l.splat(15)))
}

/// `2·x + 1`
#[inline(always)]
pub fn odd<L: Lanes>(l: L, x: L::V) -> L::V {
    l.add(l.add(x, x), l.splat(1))
}

#[inline(always)]
pub fn all_with_signs<L: Lanes>(l: L, weights: [L::V; 8], signs: L::V, offset: i16) -> [L::V; 8] {
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
pub unsafe fn head_byte<L: Lanes>(l: L, head: *const u8, first: usize, b: usize) -> L::V {
    // SAFETY: the caller's.
    byte(l, unsafe { head_word(l, head, first + b / 4) }, b % 4)
}

/// The `b`-th 16 bits, and maybe more above them.
///
/// # Safety
/// As [`head_byte`].
#[inline(always)]
pub unsafe fn head_half<L: Lanes>(l: L, head: *const u8, first: usize, b: usize) -> L::V {
    // SAFETY: the caller's.
    l.shr(unsafe { head_word(l, head, first + b / 2) }, b as u32 % 2 * 16)
}

/// A half behind so many words of a head, times `factor`, as the scale of 256 weights.
///
/// # Safety
/// As [`head_byte`].
#[inline(always)]
pub unsafe fn put_scale_behind<L: Lanes, B: Format>(
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
pub unsafe fn put_nibbles<L: Lanes>(l: L, head: *const u8, first: usize, to: &mut Scales) {
    for b in 0..8 {
        // SAFETY: the caller's.
        let both = unsafe { head_byte(l, head, first, b) };
        to.put_sub_scales(l, b, [odd(l, l.and(both, l.splat(15))), odd(l, l.shr(both, 4))]);
    }
}

#[inline(always)]
pub fn two_fours<L: Lanes, const N: usize>(
    l: L,
    table: &Fours<N>,
    numbers: [L::V; 2],
    high: [L::V; 2],
) -> [L::V; 8] {
    let [a, b, c, d] = l.fours(table, numbers[0], high[0]);
    let [e, f, g, h] = l.fours(table, numbers[1], high[1]);
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_found_again() {
        for n in 0..32 {
            assert_eq!(in_place(1 << n), 1 << (8 * (n % 4) + n / 4), "sign {n}");
            assert_eq!(in_order(in_place(1 << n)), 1 << n, "sign {n}");
        }
        for seed in 0..1000u32 {
            let (sevens, four) = (seed.wrapping_mul(0x9e37_79b9) & 0xfff_ffff, seed % 16);
            assert_eq!(from_spare_bits(with_spare_bits(sevens, four)), (sevens, four));
        }
    }
}
