//! What a block of each format means, in the terms of the contract: the scalar view.

use crate::quant::{
    Block,
    blocks::*,
    groups::{Group, Grouped},
    iq4_nl, mxfp4,
};

/// 32 weights in a row: `w[i] = scale · sub[i / 16] · ints[i] + minimum`.
pub struct Weights {
    pub ints: [i16; 32],
    pub scale: f32,
    /// The scale of the second sixteen, where they have their own.
    pub second_scale: Option<f32>,
    pub sub: [i32; 2],
    pub minimum: Minimum,
}

/// The part of a weight that does not depend on its integer.
pub enum Minimum {
    None,
    Whole(f32),
    Halves([f32; 2]),
}

pub trait Codec: Block {
    /// The `b`-th 32 weights of the block.
    fn weights(&self, b: usize) -> Weights;
}

fn plain(scale: f32, ints: [i16; 32]) -> Weights {
    Weights { ints, scale, second_scale: None, sub: [1; 2], minimum: Minimum::None }
}

fn with_minimum(scale: f32, minimum: f32, ints: [i16; 32]) -> Weights {
    Weights { minimum: Minimum::Whole(minimum), ..plain(scale, ints) }
}

fn with_sub_scales(scale: f32, sub: [i32; 2], ints: [i16; 32]) -> Weights {
    Weights { sub, ..plain(scale, ints) }
}

/// 16 bytes hold 32 nibbles: the low ones first.
fn nibble(qs: &[u8], i: usize) -> u8 {
    if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 }
}

/// `from_fn` with the name of what it builds.
fn ints(f: impl Fn(usize) -> i8) -> [i16; 32] {
    std::array::from_fn(|i| i16::from(f(i)))
}

impl Codec for BlockQ4_0 {
    fn weights(&self, _: usize) -> Weights {
        plain(self.d.to_f32(), ints(|i| nibble(&self.qs, i) as i8 - 8))
    }
}

impl Codec for BlockQ4_1 {
    fn weights(&self, _: usize) -> Weights {
        with_minimum(self.d.to_f32(), self.m.to_f32(), ints(|i| nibble(&self.qs, i) as i8))
    }
}

impl Codec for BlockQ5_0 {
    fn weights(&self, _: usize) -> Weights {
        let fifth = |i| (u32::from_le_bytes(self.qh) >> i & 1) as u8;
        plain(self.d.to_f32(), ints(|i| (nibble(&self.qs, i) | fifth(i) << 4) as i8 - 16))
    }
}

impl Codec for BlockQ5_1 {
    fn weights(&self, _: usize) -> Weights {
        let fifth = |i| (u32::from_le_bytes(self.qh) >> i & 1) as u8;
        let q = ints(|i| (nibble(&self.qs, i) | fifth(i) << 4) as i8);
        with_minimum(self.d.to_f32(), self.m.to_f32(), q)
    }
}

impl Codec for BlockQ8_0 {
    fn weights(&self, _: usize) -> Weights {
        plain(self.d.to_f32(), ints(|i| self.qs[i]))
    }
}

impl Codec for BlockIq4Nl {
    fn weights(&self, _: usize) -> Weights {
        plain(self.d.to_f32(), ints(|i| iq4_nl::KVALUES[nibble(&self.qs, i) as usize]))
    }
}

impl Codec for BlockMxfp4 {
    fn weights(&self, _: usize) -> Weights {
        plain(self.scale(), ints(|i| mxfp4::VALUES[nibble(&self.qs, i) as usize]))
    }
}

impl Codec for BlockNvfp4 {
    fn weights(&self, b: usize) -> Weights {
        let ([first, second], nibbles) = (self.scales(b), self.nibbles(b));
        let levels = ints(|i| mxfp4::VALUES[usize::from(nibbles[i])]);
        Weights { second_scale: Some(second), ..plain(first, levels) }
    }
}

impl Codec for BlockIq4Xs {
    fn weights(&self, b: usize) -> Weights {
        let qs = &self.qs[16 * b..][..16];
        let scale = self.d.to_f32() * f32::from(self.scale(b));
        plain(scale, ints(|i| iq4_nl::KVALUES[nibble(qs, i) as usize]))
    }
}

impl Codec for BlockQ4K {
    fn weights(&self, b: usize) -> Weights {
        let (scale, min) = self.step_and_minimum(b);
        let qs = &self.qs[b / 2 * 32..];
        with_minimum(scale, -min, ints(|i| (qs[i] >> (b % 2 * 4) & 15) as i8))
    }
}

impl Codec for BlockQ5K {
    fn weights(&self, b: usize) -> Weights {
        let (scale, min) = self.step_and_minimum(b);
        let qs = &self.qs[b / 2 * 32..];
        let q = ints(|i| (qs[i] >> (b % 2 * 4) & 15 | (self.qh[i] >> b & 1) << 4) as i8);
        with_minimum(scale, -min, q)
    }
}

impl Codec for BlockQ2K {
    fn weights(&self, b: usize) -> Weights {
        let halves = [self.scale_min(2 * b), self.scale_min(2 * b + 1)];
        let qs = &self.qs[b / 4 * 32..];
        Weights {
            sub: halves.map(|(scale, _)| i32::from(scale)),
            minimum: Minimum::Halves(halves.map(|(_, min)| -(self.dmin.to_f32() * f32::from(min)))),
            ..plain(self.d.to_f32(), ints(|i| (qs[i] >> (b % 4 * 2) & 3) as i8))
        }
    }
}

impl Codec for BlockQ3K {
    fn weights(&self, b: usize) -> Weights {
        let sub = [self.scale(2 * b), self.scale(2 * b + 1)].map(i32::from);
        let qs = &self.qs[b / 4 * 32..];
        let q = ints(|i| (qs[i] >> (b % 4 * 2) & 3 | (self.hmask[i] >> b & 1) << 2) as i8 - 4);
        with_sub_scales(self.d.to_f32(), sub, q)
    }
}

impl Codec for BlockQ6K {
    fn weights(&self, b: usize) -> Weights {
        let sub = [self.scales[2 * b], self.scales[2 * b + 1]].map(i32::from);
        let (half, quarter) = (b / 4, b % 4);
        let low = &self.ql[half * 64 + quarter % 2 * 32..];
        let high = &self.qh[half * 32..];
        let (low_shift, high_shift) = (quarter / 2 * 4, quarter * 2);
        let q = ints(|i| (low[i] >> low_shift & 15 | (high[i] >> high_shift & 3) << 4) as i8 - 32);
        with_sub_scales(self.d.to_f32(), sub, q)
    }
}

macro_rules! grouped {
    ($($B:ty),*) => {$(
        impl Codec for $B {
            fn weights(&self, b: usize) -> Weights {
                let Group { scale, sub, ints } = self.group(b);
                with_sub_scales(scale, sub, ints.map(i16::from))
            }
        }
    )*};
}
grouped!(
    BlockIq1S,
    BlockIq1M,
    BlockIq2Xxs,
    BlockIq2Xs,
    BlockIq2S,
    BlockIq3Xxs,
    BlockIq3S,
    BlockTq1,
    BlockTq2,
    BlockQ1_0,
    BlockQ2_0
);
