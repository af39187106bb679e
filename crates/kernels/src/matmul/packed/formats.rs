//! The parts of a block format that packing needs: which bytes are its scales, and its integers' bits.

use std::ops::Range;

use super::split::{Split, Word};
use crate::quant::{Block, Weights};

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

/// In the [`Packable`] of a format, its layouts: of one that can lie in one way only, and of one whose low planes can be
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
        type Low = $crate::matmul::format::Low<Self, $Low>;
        type LowOfTwo = $crate::matmul::format::Low<Self, $LowOfTwo>;
    };
}
pub(crate) use layout;

const fn bytes_in(ranges: &[Range<usize>]) -> usize {
    let (mut bytes, mut i) = (0, 0);
    while i < ranges.len() {
        bytes += ranges[i].end - ranges[i].start;
        i += 1;
    }
    bytes
}

pub fn word(bytes: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * i..][..4].try_into().expect("four bytes"))
}

/// 16 bytes hold 32 nibbles: the low ones first.
pub fn nibbles(qs: &[u8]) -> [u32; 8] {
    std::array::from_fn(|j| word(qs, j % 4).shr(if j < 4 { 0 } else { 4 }).bits(15))
}

/// Bit i of `fifth` belongs to weight i.
pub fn with_fifth_bits(nibbles: [u32; 8], fifth: u32) -> [u32; 8] {
    std::array::from_fn(|j| {
        let four = fifth >> (4 * j) & 15;
        // One bit to each byte: the factor puts copies 7 bits apart, so that bit i of one lies at bit 8·i.
        nibbles[j] | (four.wrapping_mul(0x0020_4081) & 0x0101_0101) << 4
    })
}
