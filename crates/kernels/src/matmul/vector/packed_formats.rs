//! How heads and bits of packed formats become scales and what the products take.

use super::{
    formats::Format,
    kinds::Kind,
    lanes::Lanes,
    panel::{Panel, Scales},
    rows::Rows,
};
use crate::matmul::{
    GROUP,
    packed::{Low, Packable, split::Split},
};

/// What the vectors need of a packed format.
pub trait PackedFormat: Format + Packable {
    /// Whether each number of columns that a tier has registers for has a function of its own, as one column has for all
    /// formats. More columns go by way of panels, in one function: the compiler takes long for each.
    const FEW: bool = false;

    /// Unpacks the head of one block, from the `b`-th 32 columns on.
    ///
    /// # Safety
    /// A whole head of `L::ROWS` rows is readable.
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize);

    /// From the bits of the `b`-th 32 weights of a block to what the products take.
    ///
    /// # Safety
    /// The head of their block is readable.
    #[inline(always)]
    unsafe fn unpacked<L: Lanes>(
        l: L,
        bits: [L::V; 8],
        _head: *const u8,
        _to: &mut Scales,
        _b: usize,
    ) -> [L::V; 8] {
        Self::ints(l, bits)
    }

    /// The same, where the bits say all.
    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        let mut out = bits;
        if Self::Kind::WIDE && L::SIGNED_BYTES {
            for v in &mut out {
                *v = l.xor(*v, l.splat(0x8080_8080));
            }
        }
        out
    }
}

/// What the vectors need of a format's low plane whose bits lie so.
pub trait LowFormat<S>: PackedFormat {
    type LowKind: Kind;
}

impl<B: LowFormat<S>, S: Split> Format for Low<B, S> {
    type Kind = B::LowKind;

    unsafe fn unpack<L: Lanes>(_: L, _: Rows, _: &mut Panel, _: usize) {
        unreachable!("a low plane lies in no file")
    }
}

impl<B: LowFormat<S>, S: Split> PackedFormat for Low<B, S> {
    const FEW: bool = B::FEW;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's; it has the format's scales.
        unsafe { B::head(l, head, to, b) }
    }
}

/// Word `i` of a head, of all rows.
#[inline(always)]
pub unsafe fn head_word<L: Lanes>(l: L, head: *const u8, i: usize) -> L::V {
    // SAFETY: the caller's.
    unsafe { l.load(head.add(4 * L::ROWS * i)) }
}

#[inline(always)]
pub unsafe fn head_words<L: Lanes>(l: L, head: *const u8) -> [L::V; 4] {
    // SAFETY: the caller's.
    unsafe { [head_word(l, head, 0), head_word(l, head, 1), head_word(l, head, 2), head_word(l, head, 3)] }
}

/// In the [`PackedFormat`] of one whose head begins with its scale.
macro_rules! head_of_one_half {
    () => {
        #[inline(always)]
        unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
            // SAFETY: the caller's.
            put_one_scale::<L, Self>(l, unsafe { l.load_halves(head) }, to, b);
        }
    };
}

/// In the [`PackedFormat`] of one whose head is a scale and a minimum.
macro_rules! head_of_two_halves {
    () => {
        #[inline(always)]
        unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
            // SAFETY: the caller's.
            let (d, m) = two_halves(l, unsafe { head_word(l, head, 0) });
            to.put_scale(l, b, d);
            to.put_minimum(l, b, 0, m);
        }
    };
}
pub(crate) use {head_of_one_half, head_of_two_halves};

/// One scale for all weights of a block, the first of which are the `b`-th 32.
#[inline(always)]
pub fn put_one_scale<L: Lanes, B: Format>(l: L, d: L::F, to: &mut Scales, b: usize) {
    for b in b..b + B::TYPE.block_len() / GROUP {
        to.put_scale(l, b, d);
    }
}
