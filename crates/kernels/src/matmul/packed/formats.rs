//! The parts of each block format that packing needs: which bytes are its scales, and its integers' bits.

use std::ops::Range;

use super::split::{
    Bytes, Nibbles, NibblesAndNibbles, NibblesAndOne, NibblesAndTwo, Ones, Opaque, Split, TwoAndOne,
    TwoAndTwo, Twos, Word,
};
use crate::quant::{Block, Weights, blocks::*, iq4_nl::KVALUES, mxfp4::VALUES};

/// A format that can be packed.
pub trait Packable: Block {
    /// The layout that is fastest to read whole, and the one that can also be read by its high bits alone.
    type Whole: Split;
    type Planes: Split;
    /// Its low plane by itself, where that can be multiplied without the high one; else the format again. The second is
    /// what a high plane of two bits leaves.
    type Low: Packable;
    type LowOfTwo: Packable;
    /// Whether it is such a plane, which means another thing than the whole.
    const IS_LOW: bool = false;

    /// The bytes of a block that are kept as they are, its scales and minimums: one range behind the other.
    const HEAD: &'static [Range<usize>];
    const HEAD_BYTES: usize = bytes_in(Self::HEAD);

    /// What the splits are given of the `b`-th 32 weights. Mostly their bits as unsigned numbers: word j holds columns
    /// `4·j..4·j+4`, a byte each.
    fn bits(&self, b: usize) -> [u32; 8];

    /// The integer of the contract that such a number stands for, where it is a number.
    fn int(_: u8) -> i16 {
        unreachable!("{} has no number for each weight", Self::TYPE)
    }

    /// The `b`-th 32 weights, of a block that has nothing but its head, and of their bits.
    fn weights_of(self, b: usize, bits: [u32; 8]) -> Weights {
        let mut weights = self.weights(b);
        weights.ints = std::array::from_fn(|i| Self::int(bits[i / 4].shr(8 * (i as u32 % 4)) as u8));
        weights
    }
}

/// The layouts of a format, in its [`Packable`]: of one that can lie in one way only, and of one whose low planes can be
/// multiplied by themselves.
macro_rules! layout {
    ($Split:ty) => {
        type Whole = $Split;
        type Planes = $Split;
        type Low = Self;
        type LowOfTwo = Self;
    };
    (whole: $Whole:ty, planes: $Planes:ty, low: $Low:ty, low_of_two: $LowOfTwo:ty) => {
        type Whole = $Whole;
        type Planes = $Planes;
        type Low = $crate::matmul::packed::Low<Self, $Low>;
        type LowOfTwo = $crate::matmul::packed::Low<Self, $LowOfTwo>;
    };
}
pub(super) use layout;

const fn bytes_in(ranges: &[Range<usize>]) -> usize {
    let (mut bytes, mut i) = (0, 0);
    while i < ranges.len() {
        bytes += ranges[i].end - ranges[i].start;
        i += 1;
    }
    bytes
}

pub(super) fn word(bytes: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * i..][..4].try_into().expect("four bytes"))
}

/// 16 bytes hold 32 nibbles: the low ones first.
fn nibbles(qs: &[u8]) -> [u32; 8] {
    std::array::from_fn(|j| word(qs, j % 4).shr(if j < 4 { 0 } else { 4 }).bits(15))
}

/// Bit i of `fifth` belongs to weight i.
fn with_fifth_bits(nibbles: [u32; 8], fifth: u32) -> [u32; 8] {
    std::array::from_fn(|j| {
        let four = fifth >> (4 * j) & 15;
        // One bit to each byte: the factor puts copies 7 bits apart, so that bit i of one lies at bit 8·i.
        nibbles[j] | (four.wrapping_mul(0x0020_4081) & 0x0101_0101) << 4
    })
}

/// The 32 nibbles of sub-block `b`, of which two share 32 bytes.
fn k_nibbles(qs: &[u8], b: usize) -> [u32; 8] {
    std::array::from_fn(|j| word(qs, b / 2 * 8 + j).shr(b as u32 % 2 * 4).bits(15))
}

impl Packable for BlockQ4_0 {
    layout!(whole: Nibbles, planes: TwoAndTwo, low: Twos, low_of_two: Twos);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, _: usize) -> [u32; 8] {
        nibbles(&self.qs)
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 8
    }
}

impl Packable for BlockQ4_1 {
    layout!(whole: Nibbles, planes: TwoAndTwo, low: Twos, low_of_two: Twos);
    const HEAD: &'static [Range<usize>] = &[0..4];

    fn bits(&self, _: usize) -> [u32; 8] {
        nibbles(&self.qs)
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl Packable for BlockQ5_0 {
    layout!(NibblesAndOne);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, _: usize) -> [u32; 8] {
        with_fifth_bits(nibbles(&self.qs), u32::from_le_bytes(self.qh))
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 16
    }
}

impl Packable for BlockQ5_1 {
    layout!(NibblesAndOne);
    const HEAD: &'static [Range<usize>] = &[0..4];

    fn bits(&self, _: usize) -> [u32; 8] {
        with_fifth_bits(nibbles(&self.qs), u32::from_le_bytes(self.qh))
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl Packable for BlockQ8_0 {
    layout!(whole: Bytes, planes: NibblesAndNibbles, low: Nibbles, low_of_two: NibblesAndTwo);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, _: usize) -> [u32; 8] {
        let qs: &[u8] = bytemuck::cast_slice(&self.qs);
        std::array::from_fn(|j| word(qs, j) ^ 0x8080_8080)
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 128
    }
}

impl Packable for BlockIq4Nl {
    layout!(Nibbles);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, _: usize) -> [u32; 8] {
        nibbles(&self.qs)
    }
    fn int(u: u8) -> i16 {
        i16::from(KVALUES[usize::from(u)])
    }
}

impl Packable for BlockMxfp4 {
    layout!(Nibbles);
    const HEAD: &'static [Range<usize>] = &[0..1];

    fn bits(&self, _: usize) -> [u32; 8] {
        nibbles(&self.qs)
    }
    fn int(u: u8) -> i16 {
        i16::from(VALUES[usize::from(u)])
    }
}

impl Packable for BlockNvfp4 {
    layout!(Nibbles);
    const HEAD: &'static [Range<usize>] = &[0..4];

    fn bits(&self, b: usize) -> [u32; 8] {
        let nibbles = self.nibbles(b);
        std::array::from_fn(|j| word(&nibbles, j))
    }
    fn int(u: u8) -> i16 {
        i16::from(VALUES[usize::from(u)])
    }
}

impl Packable for BlockQ4K {
    layout!(whole: Nibbles, planes: TwoAndTwo, low: Twos, low_of_two: Twos);
    const HEAD: &'static [Range<usize>] = &[0..16];

    fn bits(&self, b: usize) -> [u32; 8] {
        k_nibbles(&self.qs, b)
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl Packable for BlockQ5K {
    layout!(whole: NibblesAndOne, planes: NibblesAndOne, low: Ones, low_of_two: TwoAndOne);
    const HEAD: &'static [Range<usize>] = &[0..16];

    fn bits(&self, b: usize) -> [u32; 8] {
        let low = k_nibbles(&self.qs, b);
        std::array::from_fn(|j| low[j] | word(&self.qh, j).shr(b as u32).bits(1) << 4)
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl Packable for BlockQ6K {
    layout!(whole: NibblesAndTwo, planes: NibblesAndTwo, low: Twos, low_of_two: Nibbles);
    const HEAD: &'static [Range<usize>] = &[192..210];

    fn bits(&self, b: usize) -> [u32; 8] {
        let (half, quarter) = (b / 4, b % 4);
        let (low, high) = (&self.ql[half * 64 + quarter % 2 * 32..], &self.qh[half * 32..]);
        std::array::from_fn(|j| {
            let four = word(low, j).shr(quarter as u32 / 2 * 4).bits(15);
            four | word(high, j).shr(quarter as u32 * 2).bits(3) << 4
        })
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 32
    }
}

/// The 32 pairs of bits of group `b`, of which four share 32 bytes.
fn k_twos(qs: &[u8], b: usize) -> [u32; 8] {
    std::array::from_fn(|j| word(qs, b / 4 * 8 + j).shr(b as u32 % 4 * 2).bits(3))
}

impl Packable for BlockQ2K {
    layout!(Twos);
    const HEAD: &'static [Range<usize>] = &[0..16, 80..84];

    fn bits(&self, b: usize) -> [u32; 8] {
        k_twos(&self.qs, b)
    }
    fn int(u: u8) -> i16 {
        i16::from(u)
    }
}

impl Packable for BlockQ3K {
    layout!(TwoAndOne);
    const HEAD: &'static [Range<usize>] = &[96..110];

    fn bits(&self, b: usize) -> [u32; 8] {
        let low = k_twos(&self.qs, b);
        std::array::from_fn(|j| low[j] | word(&self.hmask, j).shr(b as u32).bits(1) << 2)
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 4
    }
}

impl Packable for BlockIq4Xs {
    layout!(Nibbles);
    const HEAD: &'static [Range<usize>] = &[0..8];

    fn bits(&self, b: usize) -> [u32; 8] {
        nibbles(&self.qs[16 * b..][..16])
    }
    fn int(u: u8) -> i16 {
        i16::from(KVALUES[usize::from(u)])
    }
}

impl Packable for BlockTq2 {
    layout!(Twos);
    const HEAD: &'static [Range<usize>] = &[64..66];

    fn bits(&self, b: usize) -> [u32; 8] {
        k_twos(&self.qs, b)
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 1
    }
}

impl Packable for BlockQ2_0 {
    layout!(Twos);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        // Four weights in each byte; the multiples put them six bits apart, so that each lands in a byte of its own.
        std::array::from_fn(|j| {
            let four = u32::from(self.qs[8 * b + j]);
            (four | four << 6 | four << 12 | four << 18).bits(3)
        })
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - 1
    }
}

impl Packable for BlockQ1_0 {
    layout!(Ones);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        with_fifth_bits([0; 8], word(&self.qs, b)).map(|bits| bits >> 4)
    }
    fn int(u: u8) -> i16 {
        2 * i16::from(u) - 1
    }
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
