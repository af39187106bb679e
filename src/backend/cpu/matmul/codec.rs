//! What a block format is to a kernel: runs of 32 integers with their scales. Portable; the unpacking of the
//! integers is done again with vector instructions in files of their own.

use crate::quant::{
    Block, iq4_nl::BlockIq4Nl, iq4_nl::KVALUES, iq4_xs::BlockIq4Xs, mxfp4::BlockMxfp4, mxfp4::VALUES, q2_k::BlockQ2K,
    q3_k::BlockQ3K, q4_0::BlockQ4_0, q4_1::BlockQ4_1, q4_k::BlockQ4K, q5_0::BlockQ5_0, q5_1::BlockQ5_1,
    q5_k::BlockQ5K, q6_k::BlockQ6K, q8_0::BlockQ8_0,
};

/// Which minima a format has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Minima {
    None,
    Per32,
    Per16,
}

/// Scales of the 32 weights of a run.
#[derive(Clone, Copy, Default)]
pub struct Scales {
    /// Of the whole run.
    pub a: f32,
    /// Integer scales of the halves, where the format has them.
    pub halves: [i32; 2],
    /// Negated minima: of the run in the first, or of each half.
    pub minima: [f32; 2],
}

pub trait Codec: Block {
    const MINIMA: Minima = Minima::None;
    const HALF_SCALES: bool = false;

    /// Run `sub` of the block.
    fn scales(&self, sub: usize) -> Scales;
    fn integers(&self, sub: usize) -> [i8; 32];
}

fn plain(a: f32) -> Scales {
    Scales { a, ..Scales::default() }
}

fn with_minimum(a: f32, minimum: f32) -> Scales {
    Scales { a, minima: [minimum, 0.0], ..Scales::default() }
}

fn half_scaled(a: f32, halves: [i8; 2]) -> Scales {
    Scales { a, halves: halves.map(i32::from), ..Scales::default() }
}

/// Low nibbles first, then the high ones.
fn nibbles(qs: &[u8; 16], f: impl Fn(u8, usize) -> i8) -> [i8; 32] {
    std::array::from_fn(|i| f(qs[i % 16] >> (i / 16 * 4) & 15, i))
}

impl Codec for BlockQ4_0 {
    #[inline(always)]
    fn scales(&self, _: usize) -> Scales {
        plain(self.d.to_f32())
    }

    fn integers(&self, _: usize) -> [i8; 32] {
        nibbles(&self.qs, |q, _| q as i8 - 8)
    }
}

impl Codec for BlockQ4_1 {
    const MINIMA: Minima = Minima::Per32;

    #[inline(always)]
    fn scales(&self, _: usize) -> Scales {
        with_minimum(self.d.to_f32(), self.m.to_f32())
    }

    fn integers(&self, _: usize) -> [i8; 32] {
        nibbles(&self.qs, |q, _| q as i8)
    }
}

impl Codec for BlockQ5_0 {
    #[inline(always)]
    fn scales(&self, _: usize) -> Scales {
        plain(self.d.to_f32())
    }

    fn integers(&self, _: usize) -> [i8; 32] {
        let fifth = self.fifth_bits();
        nibbles(&self.qs, |q, i| (q | ((fifth >> i & 1) << 4) as u8) as i8 - 16)
    }
}

impl Codec for BlockQ5_1 {
    const MINIMA: Minima = Minima::Per32;

    #[inline(always)]
    fn scales(&self, _: usize) -> Scales {
        with_minimum(self.d.to_f32(), self.m.to_f32())
    }

    fn integers(&self, _: usize) -> [i8; 32] {
        let fifth = self.fifth_bits();
        nibbles(&self.qs, |q, i| (q | ((fifth >> i & 1) << 4) as u8) as i8)
    }
}

impl Codec for BlockQ8_0 {
    #[inline(always)]
    fn scales(&self, _: usize) -> Scales {
        plain(self.d.to_f32())
    }

    fn integers(&self, _: usize) -> [i8; 32] {
        self.qs
    }
}

impl Codec for BlockQ2K {
    const MINIMA: Minima = Minima::Per16;
    const HALF_SCALES: bool = true;

    #[inline(always)]
    fn scales(&self, sub: usize) -> Scales {
        let [(s0, m0), (s1, m1)] = [self.scale_min(2 * sub), self.scale_min(2 * sub + 1)];
        let dmin = self.dmin.to_f32();
        Scales {
            a: self.d.to_f32(),
            halves: [s0, s1].map(i32::from),
            minima: [m0, m1].map(|m| -(dmin * f32::from(m))),
        }
    }

    fn integers(&self, sub: usize) -> [i8; 32] {
        std::array::from_fn(|i| (self.qs[sub / 4 * 32 + i] >> (sub % 4 * 2) & 3) as i8)
    }
}

impl Codec for BlockQ3K {
    const HALF_SCALES: bool = true;

    #[inline(always)]
    fn scales(&self, sub: usize) -> Scales {
        half_scaled(self.d.to_f32(), [self.scale(2 * sub), self.scale(2 * sub + 1)])
    }

    fn integers(&self, sub: usize) -> [i8; 32] {
        std::array::from_fn(|i| {
            let low = self.qs[sub / 4 * 32 + i] >> (sub % 4 * 2) & 3;
            (low | (self.hmask[i] >> sub & 1) << 2) as i8 - 4
        })
    }
}

impl Codec for BlockQ4K {
    const MINIMA: Minima = Minima::Per32;

    #[inline(always)]
    fn scales(&self, sub: usize) -> Scales {
        let (scale, min) = self.scale_min(sub);
        with_minimum(self.d.to_f32() * f32::from(scale), -(self.dmin.to_f32() * f32::from(min)))
    }

    fn integers(&self, sub: usize) -> [i8; 32] {
        std::array::from_fn(|i| (self.qs[sub / 2 * 32 + i] >> (sub % 2 * 4) & 15) as i8)
    }
}

impl Codec for BlockQ5K {
    const MINIMA: Minima = Minima::Per32;

    #[inline(always)]
    fn scales(&self, sub: usize) -> Scales {
        let (scale, min) = self.scale_min(sub);
        with_minimum(self.d.to_f32() * f32::from(scale), -(self.dmin.to_f32() * f32::from(min)))
    }

    fn integers(&self, sub: usize) -> [i8; 32] {
        std::array::from_fn(|i| {
            let low = self.qs[sub / 2 * 32 + i] >> (sub % 2 * 4) & 15;
            (low | (self.qh[i] >> sub & 1) << 4) as i8
        })
    }
}

impl Codec for BlockQ6K {
    const HALF_SCALES: bool = true;

    #[inline(always)]
    fn scales(&self, sub: usize) -> Scales {
        half_scaled(self.d.to_f32(), [self.scales[2 * sub], self.scales[2 * sub + 1]])
    }

    fn integers(&self, sub: usize) -> [i8; 32] {
        let (half, quarter) = (sub / 4, sub % 4);
        std::array::from_fn(|i| {
            let low = self.ql[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
            let high = self.qh[half * 32 + i] >> (quarter * 2) & 3;
            (low | high << 4) as i8 - 32
        })
    }
}

impl Codec for BlockIq4Nl {
    #[inline(always)]
    fn scales(&self, _: usize) -> Scales {
        plain(self.d.to_f32())
    }

    fn integers(&self, _: usize) -> [i8; 32] {
        nibbles(&self.qs, |q, _| KVALUES[q as usize])
    }
}

impl Codec for BlockIq4Xs {
    #[inline(always)]
    fn scales(&self, sub: usize) -> Scales {
        plain(self.d.to_f32() * f32::from(self.scale(sub)))
    }

    fn integers(&self, sub: usize) -> [i8; 32] {
        let qs = self.qs[16 * sub..][..16].try_into().expect("sixteen");
        nibbles(qs, |q, _| KVALUES[q as usize])
    }
}

impl Codec for BlockMxfp4 {
    #[inline(always)]
    fn scales(&self, _: usize) -> Scales {
        plain(self.scale())
    }

    fn integers(&self, _: usize) -> [i8; 32] {
        nibbles(&self.qs, |q, _| VALUES[q as usize])
    }
}
