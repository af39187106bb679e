//! How heads and bits of packed formats become scales and what the products take.

use super::{
    formats::{
        Format, MXFP4_FROM_ZERO, levels, mxfp4_scale, put_iq4_xs_scales, put_k_scales, put_nvfp4_scales,
        put_q2_k_scales, put_q3_k_scales, put_q6_k_scales, two_halves,
    },
    kinds::{Kind, Plain, SubScales},
    lanes::Lanes,
    panel::{Panel, Scales},
    rows::Rows,
};
use crate::{
    matmul::{
        GROUP,
        packed::{
            Low, Packable,
            split::{Nibbles, NibblesAndTwo, Ones, Split, TwoAndOne, Twos},
        },
    },
    quant::{blocks::*, iq4_nl::KVALUES},
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

macro_rules! low_planes {
    ($($B:ty, $S:ty: $Kind:ty;)*) => {$(
        impl LowFormat<$S> for $B {
            type LowKind = $Kind;
        }
    )*};
}
low_planes! {
    BlockQ8_0, Nibbles: Plain<8, 15>;
    BlockQ8_0, NibblesAndTwo: Plain<32, 63>;
    BlockQ4_0, Twos: Plain<2, 3>;
    BlockQ4_1, Twos: Plain<2, 3>;
    BlockQ4K, Twos: Plain<2, 3>;
    BlockQ5K, Ones: Plain<1, 1>;
    BlockQ5K, TwoAndOne: Plain<4, 7>;
    BlockQ6K, Twos: SubScales<2, 3>;
    BlockQ6K, Nibbles: SubScales<8, 15>;
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

macro_rules! one_half {
    ($FEW:literal: $($B:ty),*) => {$(
        impl PackedFormat for $B {
            const FEW: bool = $FEW;

            #[inline(always)]
            unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
                // SAFETY: the caller's.
                put_one_scale::<L, Self>(l, unsafe { l.load_halves(head) }, to, b);
            }
        }
    )*};
}
one_half!(true: BlockQ4_0, BlockQ5_0, BlockQ8_0);
one_half!(false: BlockQ2_0, BlockTq2);

macro_rules! two_halves {
    ($($B:ty),*) => {$(
        impl PackedFormat for $B {
            const FEW: bool = true;

            #[inline(always)]
            unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
                // SAFETY: the caller's.
                let (d, m) = two_halves(l, unsafe { head_word(l, head, 0) });
                to.put_scale(l, b, d);
                to.put_minimum(l, b, 0, m);
            }
        }
    )*};
}
two_halves!(BlockQ4_1, BlockQ5_1);

macro_rules! k_scales {
    ($($B:ty),*) => {$(
        impl PackedFormat for $B {
            const FEW: bool = true;

            #[inline(always)]
            unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
                // SAFETY: the caller's.
                put_k_scales(l, unsafe { head_words(l, head) }, to);
            }
        }
    )*};
}
k_scales!(BlockQ4K, BlockQ5K);

impl PackedFormat for BlockQ6K {
    const FEW: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            let d = l.load_halves(head.add(16 * L::ROWS));
            put_q6_k_scales(l, head_words(l, head), d, to);
        }
    }
}

impl PackedFormat for BlockIq4Nl {
    const FEW: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        to.put_scale(l, b, unsafe { l.load_halves(head) });
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        let mut table = l.table(bytemuck::cast_ref(&KVALUES));
        if !L::SIGNED_BYTES {
            table = l.xor(table, l.splat(0x8080_8080));
        }
        levels(l, table, bits)
    }
}

impl PackedFormat for BlockMxfp4 {
    const FEW: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        to.put_scale(l, b, mxfp4_scale(l, unsafe { l.load_bytes(head) }));
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        levels(l, l.table(&MXFP4_FROM_ZERO), bits)
    }
}

impl PackedFormat for BlockNvfp4 {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        put_nvfp4_scales(l, unsafe { head_word(l, head, 0) }, to, b);
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        BlockMxfp4::ints(l, bits)
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

impl PackedFormat for BlockQ2K {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe { put_q2_k_scales(l, head_words(l, head), head_word(l, head, 4), to) }
    }
}

impl PackedFormat for BlockQ3K {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, _: usize) {
        // SAFETY: the caller's.
        unsafe {
            let scales = [head_word(l, head, 0), head_word(l, head, 1), head_word(l, head, 2)];
            put_q3_k_scales(l, scales, l.load_halves(head.add(12 * L::ROWS)), to);
        }
    }
}

impl PackedFormat for BlockQ1_0 {
    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        put_one_scale::<L, Self>(l, unsafe { l.load_halves(head) }, to, b);
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        let mut out = bits;
        for v in &mut out {
            *v = l.add(*v, *v);
        }
        out
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

/// One scale for all weights of a block, the first of which are the `b`-th 32.
#[inline(always)]
pub fn put_one_scale<L: Lanes, B: Format>(l: L, d: L::F, to: &mut Scales, b: usize) {
    for b in b..b + B::TYPE.block_len() / GROUP {
        to.put_scale(l, b, d);
    }
}
