//! How stored keys and values are read, sixteen numbers at a time: bit for bit what the scalar formats say.

use std::marker::PhantomData;

use crate::quant::{
    Block, F16,
    blocks::{BlockIq4Nl, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0},
    iq4_nl::KVALUES,
};
use crate::simd::{LANES, Simd};

/// `for_stored!(ty, K => value)`: `value` with `K` how rows of a type are read. With `else => other`, `value` is made for
/// the types that most caches have, and the rest get `other`: every long kernel costs the compiler as much again.
macro_rules! for_stored {
    ($ty:expr, $K:ident => $value:expr, else => $other:expr) => {
        $crate::attention::stored::for_stored! { ($ty) $K ($value) (_ => $other,)
            F32 InF32, F16 InF16, Q8_0 InBlocks<BlockQ8_0>,
        }
    };
    ($ty:expr, $K:ident => $value:expr) => {
        $crate::attention::stored::for_stored! { ($ty) $K ($value) ()
            F32 InF32, F16 InF16, BF16 InBf16, Q8_0 InBlocks<BlockQ8_0>, Q4_0 InBlocks<BlockQ4_0>,
            Q4_1 InBlocks<BlockQ4_1>, Q5_0 InBlocks<BlockQ5_0>, Q5_1 InBlocks<BlockQ5_1>,
            IQ4_NL InBlocks<BlockIq4Nl>,
        }
    };
    (($ty:expr) $K:ident ($value:expr) ($($rest:tt)*) $($T:ident $Read:ident $(<$B:ident>)?,)*) => {
        match $ty {
            $($crate::kv_type::KvType::$T => {
                type $K = $crate::attention::stored::$Read $(<$crate::quant::blocks::$B>)?;
                $value
            })*
            $($rest)*
        }
    };
}
pub(super) use for_stored;

/// How a stored row is read.
pub trait Stored {
    /// Numbers `at..at + 16`.
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F;

    /// Those from `at` on, fewer than 16; zero behind them. Apart, because a call in a loop costs its registers.
    fn load_last<S: Simd>(s: S, row: &[u8], at: usize) -> S::F;
}

pub struct InF16;
pub struct InBf16;
pub struct InF32;

/// In blocks of 32.
pub struct InBlocks<B>(PhantomData<B>);

impl Stored for InF16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        s.load_f16(bytemuck::cast_slice(row)[at..].first_chunk().expect("a whole vector"))
    }

    #[inline(always)]
    fn load_last<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        s.load_f16_partial(&bytemuck::cast_slice(row)[at..])
    }
}

impl Stored for InBf16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        s.load_bf16(row.as_chunks().0[at..].first_chunk().expect("a whole vector"))
    }

    #[inline(always)]
    fn load_last<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        s.load_bf16_partial(&row.as_chunks().0[at..])
    }
}

impl Stored for InF32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let bytes: &[u8; 4 * LANES] = row[4 * at..].first_chunk().expect("a whole vector");
        let mut x = [0.0; LANES];
        for (x, bytes) in x.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *x = f32::from_le_bytes(*bytes);
        }
        s.load(&x)
    }

    #[inline(always)]
    fn load_last<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let mut x = [0.0; LANES];
        for (x, bytes) in x.iter_mut().zip(row[4 * at..].as_chunks::<4>().0) {
            *x = f32::from_le_bytes(*bytes);
        }
        s.load(&x)
    }
}

impl<B: Halved> Stored for InBlocks<B> {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let block = &row[at / B::TYPE.block_len() * size_of::<B>()..][..size_of::<B>()];
        bytemuck::from_bytes::<B>(block).half(s, at / LANES % 2)
    }

    fn load_last<S: Simd>(_: S, _: &[u8], _: usize) -> S::F {
        unreachable!("rows are whole blocks")
    }
}

/// A block of two times sixteen numbers.
pub trait Halved: Block {
    /// The first sixteen, or the second.
    fn half<S: Simd>(&self, s: S, second: usize) -> S::F;
}

/// What a nibble stands for.
const FROM_MINUS_8: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];
const FROM_MINUS_16: [i8; 16] = [-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1];
const FROM_0: [i8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Nibbles with a fifth bit.
#[inline(always)]
fn fives<S: Simd>(s: S, nibbles: &[u8; 16], fifth: [u8; 4], second: usize, levels: &[i8; 16]) -> S::F {
    let low = s.load_nibbles(nibbles, second, levels);
    let bits = u16::from_le_bytes([fifth[2 * second], fifth[2 * second + 1]]);
    s.add_where(low, bits, 16.0)
}

#[inline(always)]
fn scaled<S: Simd>(s: S, d: F16, q: S::F) -> S::F {
    s.mul(s.splat_f16(d), q)
}

impl Halved for BlockQ8_0 {
    #[inline(always)]
    fn half<S: Simd>(&self, s: S, second: usize) -> S::F {
        scaled(s, self.d, s.load_i8(self.qs[LANES * second..].first_chunk().expect("half a block")))
    }
}

impl Halved for BlockQ4_0 {
    #[inline(always)]
    fn half<S: Simd>(&self, s: S, second: usize) -> S::F {
        scaled(s, self.d, s.load_nibbles(&self.qs, second, &FROM_MINUS_8))
    }
}

impl Halved for BlockIq4Nl {
    #[inline(always)]
    fn half<S: Simd>(&self, s: S, second: usize) -> S::F {
        scaled(s, self.d, s.load_nibbles(&self.qs, second, &KVALUES))
    }
}

impl Halved for BlockQ4_1 {
    #[inline(always)]
    fn half<S: Simd>(&self, s: S, second: usize) -> S::F {
        s.add(scaled(s, self.d, s.load_nibbles(&self.qs, second, &FROM_0)), s.splat_f16(self.m))
    }
}

impl Halved for BlockQ5_0 {
    #[inline(always)]
    fn half<S: Simd>(&self, s: S, second: usize) -> S::F {
        scaled(s, self.d, fives(s, &self.qs, self.qh, second, &FROM_MINUS_16))
    }
}

impl Halved for BlockQ5_1 {
    #[inline(always)]
    fn half<S: Simd>(&self, s: S, second: usize) -> S::F {
        s.add(scaled(s, self.d, fives(s, &self.qs, self.qh, second, &FROM_0)), s.splat_f16(self.m))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kv_type::KvType,
        simd::{Isa, Kernel},
    };

    /// A row, sixteen numbers at a time.
    struct Loaded<'a>(KvType, &'a [u8], usize);

    impl Kernel for Loaded<'_> {
        type Out = Vec<u32>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Out {
            let Loaded(ty, row, len) = self;
            let loaded =
                (0..len).step_by(LANES).flat_map(|at| s.to_array(for_stored!(ty, K => K::load(s, row, at))));
            loaded.map(f32::to_bits).collect()
        }
    }

    #[test]
    fn rows_are_read_as_the_scalar_formats_say() {
        let x: Vec<f32> = (0..128).map(|i| ((i * 37 % 101) as f32 - 40.0) * 0.03).collect();
        for ty in KvType::ALL {
            let mut row = vec![0; ty.row_bytes(x.len())];
            ty.put(&x, &mut row);
            // Any bits but those of scales, which are in the first bytes of a block.
            let size = ty.format().block_bytes();
            for (i, byte) in row.iter_mut().enumerate().filter(|(i, _)| size > 4 && i % size >= 4) {
                *byte = (i * 167 + i / 16) as u8;
            }
            let mut expected = vec![0.0; x.len()];
            ty.take(&row, &mut expected);
            let expected: Vec<u32> = expected.into_iter().map(f32::to_bits).collect();
            for isa in Isa::available() {
                assert_eq!(isa.dispatch(Loaded(ty, &row, x.len())), expected, "{ty}, {isa}");
            }
        }
    }
}
