//! Unpacking: from the bytes of a block, of all rows of a group at once, into a panel.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use std::mem::offset_of;

use super::{
    kinds::*,
    lanes::Lanes,
    panel::{Panel, Scales},
    points::{IQ1_OFFSET, IQ2_OFFSET, IQ3_OFFSET},
    rows::Rows,
};
use crate::{
    matmul::GROUP,
    quant::{Block, Weights, blocks::*, iq4_nl::KVALUES, mxfp4::VALUES},
};

/// A block format, as vectors see it.
pub trait Format: Block {
    type Kind: Kind;
    /// Whether it is unpacked one row after the other, slowly.
    const ROW_BY_ROW: bool = false;

    /// Unpacks one block of every row into the panel, from its `b`-th block of 32 on.
    ///
    /// # Safety
    /// `rows` stand for whole blocks of the format.
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize);
}

/// Bits `shift..` of every byte under `mask`.
#[inline(always)]
pub fn bits<L: Lanes>(l: L, v: L::V, shift: u32, mask: u8) -> L::V {
    l.and(l.shr(v, shift), l.splat(u32::from_ne_bytes([mask; 4])))
}

/// Byte `i` of every lane, as an integer.
#[inline(always)]
pub fn byte<L: Lanes>(l: L, v: L::V, i: usize) -> L::V {
    l.and(l.shr(v, 8 * i as u32), l.splat(255))
}

/// Two halves in a lane.
#[inline(always)]
pub fn two_halves<L: Lanes>(l: L, v: L::V) -> (L::F, L::F) {
    (l.half_to_f32(v), l.half_to_f32(l.shr(v, 16)))
}

/// 16 bytes of every row hold 32 nibbles: the low ones first.
#[inline(always)]
fn nibbles<L: Lanes>(l: L, v: [L::V; 4]) -> [L::V; 8] {
    let mut out = [v[0]; 8];
    for j in 0..4 {
        out[j] = bits(l, v[j], 0, 15);
        out[4 + j] = bits(l, v[j], 4, 15);
    }
    out
}

/// `nibbles` with a fifth bit: bit i of a lane of `fifth` belongs to weight i.
#[inline(always)]
fn nibbles_with_fifth_bits<L: Lanes>(l: L, v: [L::V; 4], fifth: L::V) -> [L::V; 8] {
    let mut out = nibbles(l, v);
    for (j, out) in out.iter_mut().enumerate() {
        let one_bit_per_byte = l.splat(if j % 2 == 0 { 0x0804_0201 } else { 0x8040_2010 });
        let bit = l.and(l.spread_byte(fifth, j / 2), one_bit_per_byte);
        *out = l.or(*out, l.shl(l.min_bytes(bit, l.splat(0x0101_0101)), 4));
    }
    out
}

#[inline(always)]
fn put_all<L: Lanes>(l: L, to: &mut Panel, b: usize, ints: [L::V; 8]) {
    for (j, v) in ints.into_iter().enumerate() {
        to.put_ints(l, b, j, v);
    }
}

/// Signed bytes of any value, in the form that the tier's products take.
#[inline(always)]
fn put_wide<L: Lanes>(l: L, to: &mut Panel, b: usize, ints: [L::V; 8]) {
    for (j, v) in ints.into_iter().enumerate() {
        to.put_ints(l, b, j, if L::SIGNED_BYTES { v } else { l.xor(v, l.splat(0x8080_8080)) });
    }
}

/// Replaces every nibble by its level.
#[inline(always)]
pub fn levels<L: Lanes>(l: L, table: L::V, nibbles: [L::V; 8]) -> [L::V; 8] {
    let mut out = nibbles;
    for v in &mut out {
        *v = l.look_up(table, *v);
    }
    out
}

impl Format for BlockQ4_0 {
    type Kind = Plain<8, 15>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            to.scales.put_scale(l, b, l.half_to_f32(rows.first_4_bytes(l)));
            put_all(l, to, b, nibbles(l, rows.bytes_16(l, offset_of!(Self, qs))));
        }
    }
}

impl Format for BlockQ4_1 {
    type Kind = Minimum<15>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let (d, m) = two_halves(l, rows.first_4_bytes(l));
            to.scales.put_scale(l, b, d);
            to.scales.put_minimum(l, b, 0, m);
            put_all(l, to, b, nibbles(l, rows.bytes_16(l, offset_of!(Self, qs))));
        }
    }
}

impl Format for BlockQ5_0 {
    type Kind = Plain<16, 31>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let [d_and_low, high, ..] = rows.bytes_16(l, 0);
            to.scales.put_scale(l, b, l.half_to_f32(d_and_low));
            let fifth = l.or(l.shr(d_and_low, 16), l.shl(high, 16));
            let qs = rows.bytes_16(l, offset_of!(Self, qs));
            put_all(l, to, b, nibbles_with_fifth_bits(l, qs, fifth));
        }
    }
}

impl Format for BlockQ5_1 {
    type Kind = Minimum<31>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let [d_and_m, fifth, ..] = rows.bytes_16(l, 0);
            let (d, m) = two_halves(l, d_and_m);
            to.scales.put_scale(l, b, d);
            to.scales.put_minimum(l, b, 0, m);
            let qs = rows.bytes_16(l, offset_of!(Self, qs));
            put_all(l, to, b, nibbles_with_fifth_bits(l, qs, fifth));
        }
    }
}

impl Format for BlockQ8_0 {
    type Kind = Wide;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            to.scales.put_scale(l, b, l.half_to_f32(rows.first_4_bytes(l)));
            put_wide(l, to, b, rows.bytes_32(l, offset_of!(Self, qs)));
        }
    }
}

impl Format for BlockIq4Nl {
    type Kind = Wide;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            to.scales.put_scale(l, b, l.half_to_f32(rows.first_4_bytes(l)));
            let qs = nibbles(l, rows.bytes_16(l, offset_of!(Self, qs)));
            put_wide(l, to, b, levels(l, l.table(bytemuck::cast_ref(&KVALUES)), qs));
        }
    }
}

/// `2^(e-64)` for 0 <= e < 190.
#[inline(always)]
fn power_of_two<L: Lanes>(l: L, e: L::V) -> L::F {
    l.as_f32(l.shl(l.add(e, l.splat(63)), 23))
}

/// 2^(e-128) may be subnormal, so it is the product of two powers that are not.
#[inline(always)]
pub fn mxfp4_scale<L: Lanes>(l: L, e: L::V) -> L::F {
    let half = l.shr(e, 1);
    l.mul_f32(power_of_two(l, half), power_of_two(l, l.sub(e, half)))
}

/// MXFP4's levels, too large by its offset.
pub const MXFP4_FROM_ZERO: [u8; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = (VALUES[i] + <BlockMxfp4 as Format>::Kind::OFFSET as i8) as u8;
        i += 1;
    }
    table
};

impl Format for BlockMxfp4 {
    type Kind = Plain<12, 24>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            to.scales.put_scale(l, b, mxfp4_scale(l, byte(l, rows.first_4_bytes(l), 0)));
            let qs = nibbles(l, rows.bytes_16(l, offset_of!(Self, qs)));
            put_all(l, to, b, levels(l, l.table(&MXFP4_FROM_ZERO), qs));
        }
    }
}

/// IQ4_XS's eight scales of six bits: the four lower ones stand together, the others behind the half above them all.
#[inline(always)]
pub fn put_iq4_xs_scales<L: Lanes>(l: L, d_and_high: L::V, low: L::V, to: &mut Scales) {
    let d = l.half_to_f32(d_and_high);
    for b in 0..8 {
        let low = l.and(l.shr(low, 4 * b as u32), l.splat(15));
        let high = l.and(l.shr(d_and_high, 16 + 2 * b as u32), l.splat(3));
        let scale = l.sub(l.or(low, l.shl(high, 4)), l.splat(32));
        to.put_scale(l, b, l.mul_f32(d, l.to_f32(scale)));
    }
}

/// NVFP4's scales of 64 weights, four codes in a lane: see [`ue4m3_half`](crate::quant::nvfp4::ue4m3_half).
#[inline(always)]
pub fn put_nvfp4_scales<L: Lanes>(l: L, codes: L::V, to: &mut Scales, b: usize) {
    let unsigned = l.and(codes, l.splat(0x7f7f_7f7f));
    // The top bits of those that are 0x7f: one more has it, and the code itself has not.
    let is_zero = l.and(l.add(unsigned, l.splat(0x0101_0101)), l.xor(codes, l.splat(!0)));
    let is_zero = l.and(is_zero, l.splat(0x8080_8080));
    let codes = l.xor(unsigned, l.sub(is_zero, l.shr(is_zero, 7)));
    let scale = |i| l.mul_f32(l.half_to_f32(l.shl(byte(l, codes, i), 7)), l.splat_f32(128.0));
    to.put_half_scales(l, b, [scale(0), scale(1)]);
    to.put_half_scales(l, b + 1, [scale(2), scale(3)]);
}

impl Format for BlockNvfp4 {
    type Kind = HalfScales<12, 24>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            put_nvfp4_scales(l, rows.first_4_bytes(l), &mut to.scales, b);
            for half in 0..2 {
                // Eight bytes hold sixteen weights: the low ones first.
                let qs = nibbles(l, rows.bytes_16(l, offset_of!(Self, qs) + 16 * half));
                let qs = [qs[0], qs[1], qs[4], qs[5], qs[2], qs[3], qs[6], qs[7]];
                put_all(l, to, b + half, levels(l, l.table(&MXFP4_FROM_ZERO), qs));
            }
        }
    }
}

impl Format for BlockIq4Xs {
    type Kind = Wide;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let table = l.table(bytemuck::cast_ref(&KVALUES));
            let [d_and_high, low, ..] = rows.bytes_16(l, 0);
            put_iq4_xs_scales(l, d_and_high, low, &mut to.scales);
            for b in 0..8 {
                let qs = rows.bytes_16(l, offset_of!(Self, qs) + 16 * b);
                put_wide(l, to, b, levels(l, table, nibbles(l, qs)));
            }
        }
    }
}

/// The head of Q4_K and Q5_K: 16 bytes of two halves and 6-bit scales and minimums, all unpacked by
/// [`crate::quant::q4_k::scale_min`]'s rules, four sub-blocks at a time.
#[inline(always)]
pub fn put_k_scales<L: Lanes>(l: L, head: [L::V; 4], to: &mut Scales) {
    let [d_and_dmin, s0, s4, s8] = head;
    let (d, dmin) = two_halves(l, d_and_dmin);
    let minus_dmin = l.neg_f32(dmin);
    let (top0, top4) = (l.shl(bits(l, s0, 6, 3), 4), l.shl(bits(l, s4, 6, 3), 4));
    let scales = [bits(l, s0, 0, 63), l.or(bits(l, s8, 0, 15), top0)];
    let minimums = [bits(l, s4, 0, 63), l.or(bits(l, s8, 4, 15), top4)];
    for b in 0..8 {
        to.put_scale(l, b, l.mul_f32(d, l.to_f32(byte(l, scales[b / 4], b % 4))));
        to.put_minimum(l, b, 0, l.mul_f32(minus_dmin, l.to_f32(byte(l, minimums[b / 4], b % 4))));
    }
}

/// Q6_K's 16 signed scales, and the one above them.
#[inline(always)]
pub fn put_q6_k_scales<L: Lanes>(l: L, scales: [L::V; 4], d: L::F, to: &mut Scales) {
    for b in 0..8 {
        to.put_scale(l, b, d);
        let i = b as u32 % 2 * 2;
        let first = l.sar(l.shl(scales[b / 2], 24 - 8 * i), 24);
        let second = l.sar(l.shl(scales[b / 2], 16 - 8 * i), 24);
        to.put_sub_scales(l, b, [first, second]);
    }
}

impl Format for BlockQ4K {
    type Kind = Minimum<15>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            put_k_scales(l, rows.bytes_16(l, 0), &mut to.scales);
            for pair in 0..4 {
                let qs = rows.bytes_32(l, offset_of!(Self, qs) + 32 * pair);
                for (j, qs) in qs.into_iter().enumerate() {
                    to.put_ints(l, 2 * pair, j, bits(l, qs, 0, 15));
                    to.put_ints(l, 2 * pair + 1, j, bits(l, qs, 4, 15));
                }
            }
        }
    }
}

impl Format for BlockQ5K {
    type Kind = Minimum<31>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            put_k_scales(l, rows.bytes_16(l, 0), &mut to.scales);
            let fifth = rows.bytes_32(l, offset_of!(Self, qh));
            for pair in 0..4 {
                let qs = rows.bytes_32(l, offset_of!(Self, qs) + 32 * pair);
                for (j, qs) in qs.into_iter().enumerate() {
                    for half in 0..2 {
                        let bit = l.shl(bits(l, fifth[j], (2 * pair + half) as u32, 1), 4);
                        to.put_ints(l, 2 * pair + half, j, l.or(bits(l, qs, 4 * half as u32, 15), bit));
                    }
                }
            }
        }
    }
}

/// Q2_K's 16 scales and minimums of four bits, and those above them.
#[inline(always)]
pub fn put_q2_k_scales<L: Lanes>(l: L, scales: [L::V; 4], d_and_dmin: L::V, to: &mut Scales) {
    let (d, dmin) = two_halves(l, d_and_dmin);
    let minus_dmin = l.neg_f32(dmin);
    for b in 0..8 {
        to.put_scale(l, b, d);
        let mut subs = [scales[0]; 2];
        for half in 0..2 {
            let sub = byte(l, scales[b / 2], b % 2 * 2 + half);
            subs[half] = l.and(sub, l.splat(15));
            to.put_minimum(l, b, half, l.mul_f32(minus_dmin, l.to_f32(l.shr(sub, 4))));
        }
        to.put_sub_scales(l, b, subs);
    }
}

impl Format for BlockQ2K {
    type Kind = SubScalesAndMinimums<3>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let [.., d_and_dmin] = rows.bytes_16(l, size_of::<Self>() - 16);
            put_q2_k_scales(l, rows.bytes_16(l, 0), d_and_dmin, &mut to.scales);
            for half in 0..2 {
                let qs = rows.bytes_32(l, offset_of!(Self, qs) + 32 * half);
                for (j, qs) in qs.into_iter().enumerate() {
                    for quarter in 0..4 {
                        to.put_ints(l, 4 * half + quarter, j, bits(l, qs, 2 * quarter as u32, 3));
                    }
                }
            }
        }
    }
}

/// Q3_K's 16 scales of six bits, and the one above them.
#[inline(always)]
pub fn put_q3_k_scales<L: Lanes>(l: L, [low0, low1, high]: [L::V; 3], d: L::F, to: &mut Scales) {
    for four in 0..4 {
        let low = bits(l, if four % 2 == 0 { low0 } else { low1 }, four as u32 / 2 * 4, 15);
        let scales = l.or(low, l.shl(bits(l, high, 2 * four as u32, 3), 4));
        for two in 0..2 {
            let first = l.sub(byte(l, scales, 2 * two), l.splat(32));
            let second = l.sub(byte(l, scales, 2 * two + 1), l.splat(32));
            to.put_scale(l, 2 * four + two, d);
            to.put_sub_scales(l, 2 * four + two, [first, second]);
        }
    }
}

impl Format for BlockQ3K {
    type Kind = SubScales<4, 7>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            // Reads end with what they are for, so as not to reach behind the block.
            let d = l.shr(rows.bytes_16(l, size_of::<Self>() - 16)[3], 16);
            let d = l.half_to_f32(d);
            let [_, scales @ ..] = rows.bytes_16(l, offset_of!(Self, d) - 16);
            put_q3_k_scales(l, scales, d, &mut to.scales);
            let third = rows.bytes_32(l, offset_of!(Self, hmask));
            for half in 0..2 {
                let qs = rows.bytes_32(l, offset_of!(Self, qs) + 32 * half);
                for (j, qs) in qs.into_iter().enumerate() {
                    for quarter in 0..4 {
                        let b = 4 * half + quarter;
                        let bit = l.shl(bits(l, third[j], b as u32, 1), 2);
                        to.put_ints(l, b, j, l.or(bits(l, qs, 2 * quarter as u32, 3), bit));
                    }
                }
            }
        }
    }
}

impl Format for BlockQ6K {
    type Kind = SubScales<32, 63>;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, _: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            let d = l.shr(rows.bytes_16(l, size_of::<Self>() - 16)[3], 16);
            let d = l.half_to_f32(d);
            put_q6_k_scales(l, rows.bytes_16(l, offset_of!(Self, scales)), d, &mut to.scales);
            for half in 0..2 {
                let high = rows.bytes_32(l, offset_of!(Self, qh) + 32 * half);
                for odd in 0..2 {
                    let low = rows.bytes_32(l, offset_of!(Self, ql) + 64 * half + 32 * odd);
                    for j in 0..8 {
                        for top in 0..2 {
                            let quarter = 2 * top + odd;
                            let two = l.shl(bits(l, high[j], 2 * quarter as u32, 3), 4);
                            let q = l.or(bits(l, low[j], 4 * top as u32, 15), two);
                            to.put_ints(l, 4 * half + quarter, j, q);
                        }
                    }
                }
            }
        }
    }
}

/// Formats that are unpacked one row after the other, from what a block means: slowly.
macro_rules! row_by_row {
    ($($B:ty: $Kind:ty;)*) => {$(
        impl Format for $B {
            type Kind = $Kind;
            const ROW_BY_ROW: bool = true;

            #[inline(always)]
            unsafe fn unpack<L: Lanes>(_: L, rows: Rows, to: &mut Panel, b: usize) {
                // SAFETY: the caller's.
                unsafe { unpack_row_by_row::<Self>(L::ROWS, rows, to, b) }
            }
        }
    )*};
}
row_by_row! {
    BlockIq1S: SubScale<IQ1_OFFSET, 63>;
    BlockIq1M: SubScales<IQ1_OFFSET, 63>;
    BlockIq2Xxs: SubScale<IQ2_OFFSET, 107>;
    BlockIq2Xs: SubScales<IQ2_OFFSET, 107>;
    BlockIq2S: SubScales<IQ2_OFFSET, 107>;
    BlockIq3Xxs: SubScale<IQ3_OFFSET, 63>;
    BlockIq3S: SubScale<IQ3_OFFSET, 63>;
    BlockTq1: Plain<1, 3>;
    BlockTq2: Plain<1, 3>;
    BlockQ1_0: Plain<1, 3>;
    BlockQ2_0: Plain<1, 3>;
}

/// # Safety
/// `rows` stand for so many whole blocks of the format.
unsafe fn unpack_row_by_row<B: Format>(n: usize, rows: Rows, to: &mut Panel, b: usize) {
    for row in 0..n {
        // SAFETY: the caller's.
        let block: &B = unsafe { rows.block_of(row) };
        for group in 0..B::TYPE.block_len() / GROUP {
            let Weights { scale, sub, ints, .. } = block.weights(group);
            to.put_row_ints(b + group, row, ints.map(|int| (int + B::Kind::OFFSET) as u8));
            to.scales.put_of_row(b + group, row, scale, sub);
        }
    }
}
