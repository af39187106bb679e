//! Low planes by themselves: the high plane is somewhere else, and whoever has it adds both products.
//!
//! Of a number's bits the high ones stand for the least number that has them and `2^(bits - 1)` more, `bits` being those of the
//! low plane, and the low ones for what is then left: themselves less as much. So the low plane's weights lie around zero, and
//! what a minimum adds is the high plane's. By the high plane alone, a number is half of one less: the middle of those that it
//! leaves open.

use std::{marker::PhantomData, ops::Range};

use bytemuck::{Pod, Zeroable};

use super::{
    Packable,
    formats::layout,
    split::{Split, Word},
};
use crate::quant::{
    Block, GgmlType,
    weights::{Minimum, Weights},
};

/// How many bits of a weight are in a high plane whose low plane lies elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HighBits {
    /// The upper four, or two of four.
    #[default]
    Most,
    /// The upper two.
    Two,
}

impl HighBits {
    pub const ALL: [HighBits; 2] = [HighBits::Most, HighBits::Two];
}

/// Something that is another one for other high planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerHighBits<T> {
    pub most: T,
    pub two: T,
}

impl<T: Copy> PerHighBits<T> {
    /// The same for all.
    pub const fn same(of: T) -> Self {
        PerHighBits { most: of, two: of }
    }

    pub fn of(self, high: HighBits) -> T {
        match high {
            HighBits::Most => self.most,
            HighBits::Two => self.two,
        }
    }
}

/// The low plane of a format, whose bits lie as `S` has them, with the format's scales.
#[repr(transparent)]
pub struct Low<B, S>(B, PhantomData<S>);

impl<B: Copy, S> Clone for Low<B, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Copy, S> Copy for Low<B, S> {}

// SAFETY: it is a block, and nothing else.
unsafe impl<B: Zeroable, S> Zeroable for Low<B, S> {}
// SAFETY: as above.
unsafe impl<B: Pod, S: 'static> Pod for Low<B, S> {}

impl<B: Packable, S: Split> Block for Low<B, S> {
    const TYPE: GgmlType = B::TYPE;

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

impl<B: Packable, S: Split> Packable for Low<B, S> {
    layout!(S);
    const IS_LOW: bool = true;
    const HEAD: &'static [Range<usize>] = B::HEAD;

    fn bits(&self, b: usize) -> [u32; 8] {
        self.0.bits(b).map(|word| word.bits((1 << S::BITS) - 1))
    }
    fn int(u: u8) -> i16 {
        i16::from(u) - (1 << (S::BITS - 1))
    }
}
