//! Low planes by themselves: the high plane is somewhere else, and whoever has it adds both products.
//!
//! Of a number's bits the high ones stand for the least number that has them and `2^(LOW_BITS-1)` more, and the low ones for
//! what is then left: themselves less as much. So the low plane's weights lie around zero, and what a minimum adds is the high
//! plane's. By the high plane alone, a number is half of one less: the middle of those that it leaves open.

use std::ops::Range;

use super::{
    Packable,
    split::{Split, Word},
};
use crate::{
    matmul::codec::{Codec, Minimum, Weights},
    quant::{Block, GgmlType},
};

/// A format whose planes can lie apart.
pub trait Apart: Packable {
    /// How the low bits lie where they are alone.
    type LowSplit: Split;

    const LOW_BITS: u32 = <Self::Planes as Split>::LOW_BITS;
}

/// The low plane of a format, with the format's scales.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Low<B>(B);

impl<B: Apart> Block for Low<B> {
    const TYPE: GgmlType = B::TYPE;

    fn dequantize(&self, out: &mut [f32]) {
        for (b, out) in out.chunks_exact_mut(32).enumerate() {
            let Weights { ints, scale, sub, .. } = self.weights(b);
            for (i, out) in out.iter_mut().enumerate() {
                *out = scale * (sub[i / 16] * i32::from(ints[i])) as f32;
            }
        }
    }
}

impl<B: Apart> Codec for Low<B> {
    fn weights(&self, b: usize) -> Weights {
        let bits = self.bits(b);
        let byte = |i: usize| bits[i / 4].shr(8 * (i as u32 % 4)) as u8;
        Weights {
            ints: std::array::from_fn(|i| Self::int(byte(i))),
            minimum: Minimum::None,
            ..self.0.weights(b)
        }
    }
}

impl<B: Apart> Packable for Low<B> {
    type Whole = B::LowSplit;
    type Planes = B::LowSplit;
    type Low = Self;
    const IS_LOW: bool = true;
    const HEAD: &'static [Range<usize>] = B::HEAD;

    fn bits(&self, b: usize) -> [u32; 8] {
        self.0.bits(b).map(|word| word.bits((1 << B::LOW_BITS) - 1))
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - (1 << (B::LOW_BITS - 1))
    }
}
