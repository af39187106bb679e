//! Unpacking: from the bytes of a block, of all rows of a group at once, into a panel.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use super::{kinds::Kind, lanes::Lanes, panel::Panel, rows::Rows};
use crate::{
    matmul::GROUP,
    quant::{Block, Weights},
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
pub fn nibbles<L: Lanes>(l: L, v: [L::V; 4]) -> [L::V; 8] {
    let mut out = [v[0]; 8];
    for j in 0..4 {
        out[j] = bits(l, v[j], 0, 15);
        out[4 + j] = bits(l, v[j], 4, 15);
    }
    out
}

/// `nibbles` with a fifth bit: bit i of a lane of `fifth` belongs to weight i.
#[inline(always)]
pub fn nibbles_with_fifth_bits<L: Lanes>(l: L, v: [L::V; 4], fifth: L::V) -> [L::V; 8] {
    let mut out = nibbles(l, v);
    for (j, out) in out.iter_mut().enumerate() {
        let one_bit_per_byte = l.splat(if j % 2 == 0 { 0x0804_0201 } else { 0x8040_2010 });
        let bit = l.and(l.spread_byte(fifth, j / 2), one_bit_per_byte);
        *out = l.or(*out, l.shl(l.min_bytes(bit, l.splat(0x0101_0101)), 4));
    }
    out
}

#[inline(always)]
pub fn put_all<L: Lanes>(l: L, to: &mut Panel, b: usize, ints: [L::V; 8]) {
    for (j, v) in ints.into_iter().enumerate() {
        to.put_ints(l, b, j, v);
    }
}

/// Signed bytes of any value, in the form that the tier's products take.
#[inline(always)]
pub fn put_wide<L: Lanes>(l: L, to: &mut Panel, b: usize, ints: [L::V; 8]) {
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

/// In the [`Format`] of one that is unpacked one row after the other, from what a block means: slowly.
macro_rules! row_by_row {
    ($Kind:ty) => {
        type Kind = $Kind;
        const ROW_BY_ROW: bool = true;

        #[inline(always)]
        unsafe fn unpack<L: Lanes>(_: L, rows: Rows, to: &mut Panel, b: usize) {
            // SAFETY: the caller's.
            unsafe { $crate::matmul::format::vectors::unpack_row_by_row::<Self>(L::ROWS, rows, to, b) }
        }
    };
}
pub(crate) use row_by_row;

/// # Safety
/// `rows` stand for so many whole blocks of the format.
pub unsafe fn unpack_row_by_row<B: Format>(n: usize, rows: Rows, to: &mut Panel, b: usize) {
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
