//! A panel times many columns by products of small matrices of bytes: two rows of weights times two columns, eight numbers of
//! each. One instruction makes as many products as two dot products do. Both sides must lie in its order: weights are put so
//! when a panel is full, for all columns, and activations when they are rounded ([`PairedGroup`]). Sums and scales stay in that
//! order too, `[row][column]`, so that nothing is exchanged within a block.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use std::{
    arch::{aarch64::*, asm},
    mem::MaybeUninit,
};

use super::{F, V};
use crate::{
    matmul::{
        pairs::PairedGroup,
        vector::{
            dot::Dot,
            kinds::{Kind, Shape},
            lanes::Lanes,
            panel::Panel,
        },
    },
    simd::neon::Neon,
};

/// Pairs of rows in a panel: 0 and 1, 2 and 3, and so on.
const PAIRS: usize = Neon::ROWS / 2;

/// A number for either row of each pair, twice: `[row][column]`.
type OfPairs<T> = [T; PAIRS];

/// A panel's block by pairs of rows. What a format does not have is not written.
#[repr(C, align(64))]
struct Block {
    // [pair][8 columns each]: eight weights of one row, and eight of the other, without an offset
    ints: OfPairs<[int8x16_t; 4]>,
    // [half]: where both have the same, the first
    scales: [OfPairs<float32x4_t>; 2],
    sub_scales: [OfPairs<int32x4_t>; 2],
    minimums: [OfPairs<float32x4_t>; 2],
}

impl Block {
    /// Puts block `b` of a panel in order.
    ///
    /// # Safety
    /// `to` may be written.
    #[inline(always)]
    unsafe fn put<K: Kind>(to: *mut Block, l: Neon, panel: &Panel, b: usize) {
        let offset = if K::WIDE { 0 } else { K::OFFSET as i8 };
        // SAFETY: the caller's; the architecture has the instructions.
        unsafe {
            for k in 0..4 {
                let V(low, high) = panel.int_vector(l, b, 2 * k);
                let V(next_low, next_high) = panel.int_vector(l, b, 2 * k + 1);
                let pairs = [
                    vzip1q_u32(low, next_low),
                    vzip2q_u32(low, next_low),
                    vzip1q_u32(high, next_high),
                    vzip2q_u32(high, next_high),
                ];
                for i in 0..PAIRS {
                    (*to).ints[i][k] = vsubq_s8(vreinterpretq_s8_u32(pairs[i]), vdupq_n_s8(offset));
                }
            }
            let scales = &panel.scales;
            (*to).scales[0] = twice(scales.scale(l, b));
            match K::SHAPE {
                Shape::Plain => {}
                Shape::Minimum => (*to).minimums[0] = twice(scales.minimum(l, b, 0)),
                Shape::SubScale => (*to).sub_scales[0] = twice_ints(scales.sub_scale(l, b, 0)),
                Shape::HalfScales => (*to).scales[1] = twice(scales.half_scales(l, b)[1]),
                Shape::SubScales | Shape::SubScalesAndMinimums => {
                    for half in 0..2 {
                        (*to).sub_scales[half] = twice_ints(scales.sub_scale(l, b, half));
                        if K::SHAPE == Shape::SubScalesAndMinimums {
                            (*to).minimums[half] = twice(scales.minimum(l, b, half));
                        }
                    }
                }
            }
        }
    }
}

/// The numbers of 8 rows, each twice.
#[inline(always)]
fn twice(F(low, high): F) -> OfPairs<float32x4_t> {
    // SAFETY: the architecture has the instructions.
    unsafe { [vzip1q_f32(low, low), vzip2q_f32(low, low), vzip1q_f32(high, high), vzip2q_f32(high, high)] }
}

#[inline(always)]
fn twice_ints(V(low, high): V) -> OfPairs<int32x4_t> {
    // SAFETY: the architecture has the instructions.
    unsafe {
        let (low, high) = (vreinterpretq_s32_u32(low), vreinterpretq_s32_u32(high));
        [vzip1q_s32(low, low), vzip2q_s32(low, low), vzip1q_s32(high, high), vzip2q_s32(high, high)]
    }
}

/// [`dot`](super::super::dot::dot) of so many columns that they are kept in pairs.
///
/// # Safety
/// As there, and the machine has the instruction.
#[target_feature(enable = "neon,dotprod,i8mm")]
pub unsafe fn dot<K: Kind>(l: Neon, products: &Dot<K>) {
    let Dot { panel, n, x, ref columns, first, mut acc, .. } = *products;
    assert!(columns.start.is_multiple_of(2), "pairs are not cut");
    assert!(n <= Panel::GROUPS, "{n} blocks in a panel");
    let mut blocks = [const { MaybeUninit::<Block>::uninit() }; Panel::GROUPS];
    // SAFETY: the caller's; tiles read what is written here, and stay within the columns.
    unsafe {
        for (b, block) in blocks[..n].iter_mut().enumerate() {
            Block::put::<K>(block.as_mut_ptr(), l, panel, b);
        }
        let weights = blocks.as_ptr().cast::<Block>();
        let mut column = columns.start;
        while column < columns.end {
            let left = columns.end - column;
            let at = |pair: usize| x.pair(column / 2 + pair)[first..].as_ptr();
            if left > 2 {
                tile::<K, 2>(weights, n, [at(0), at(1)], left.min(4), acc);
                (column, acc) = (column + 4, acc.wrapping_add(4 * Neon::ROWS));
            } else {
                tile::<K, 1>(weights, n, [at(0)], left, acc);
                (column, acc) = (column + 2, acc.wrapping_add(2 * Neon::ROWS));
            }
        }
    }
}

/// Adds `n` blocks times `P` pairs of columns to the sums of the first `columns` of these.
///
/// # Safety
/// The blocks have been written, the groups are readable, and `acc` is `[columns, 8]`.
#[target_feature(enable = "neon,dotprod,i8mm")]
#[inline]
unsafe fn tile<K: Kind, const P: usize>(
    weights: *const Block,
    n: usize,
    x: [*const PairedGroup; P],
    columns: usize,
    acc: *mut f32,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut sums = [[vdupq_n_f32(0.0); P]; PAIRS];
        for p in 0..P {
            for half in 0..2 {
                let mut of_columns = [vdupq_n_f32(0.0); 2];
                for (column, sum) in (2 * p..columns).zip(&mut of_columns) {
                    *sum = vld1q_f32(acc.add(column * Neon::ROWS + 4 * half));
                }
                let [even, odd] = of_columns;
                (sums[2 * half][p], sums[2 * half + 1][p]) = (vzip1q_f32(even, odd), vzip2q_f32(even, odd));
            }
        }
        for b in 0..n {
            let mut q = [[vdupq_n_s8(0); 4]; P];
            for p in 0..P {
                for k in 0..4 {
                    q[p][k] = vld1q_s8((&raw const (*x[p].add(b)).q[k]).cast());
                }
            }
            for i in 0..PAIRS {
                for p in 0..P {
                    sums[i][p] = step::<K>(weights.add(b), i, x[p].add(b), &q[p], sums[i][p]);
                }
            }
        }
        for p in 0..P {
            for half in 0..2 {
                let (a, b) = (sums[2 * half][p], sums[2 * half + 1][p]);
                for (column, sum) in (2 * p..columns).zip([vuzp1q_f32(a, b), vuzp2q_f32(a, b)]) {
                    vst1q_f32(acc.add(column * Neon::ROWS + 4 * half), sum);
                }
            }
        }
    }
}

/// One block of the contract, for a pair of rows and a pair of columns.
///
/// # Safety
/// The block has been written, and the group is readable.
#[target_feature(enable = "neon,dotprod,i8mm")]
#[inline]
unsafe fn step<K: Kind>(
    block: *const Block,
    pair: usize,
    x: *const PairedGroup,
    q: &[int8x16_t; 4],
    mut sum: float32x4_t,
) -> float32x4_t {
    // SAFETY: the caller's.
    unsafe {
        let w = (*block).ints[pair];
        let d = of_columns(&raw const (*x).d);
        let zero = vdupq_n_s32(0);
        let low = multiply(multiply(zero, w[0], q[0]), w[1], q[1]);
        match K::SHAPE {
            Shape::Plain | Shape::Minimum | Shape::SubScale => {
                let mut isum = multiply(multiply(low, w[2], q[2]), w[3], q[3]);
                if K::SHAPE == Shape::SubScale {
                    isum = vmulq_s32((*block).sub_scales[0][pair], isum);
                }
                sum = vfmaq_f32(sum, vmulq_f32((*block).scales[0][pair], d), vcvtq_f32_s32(isum));
                if K::SHAPE == Shape::Minimum {
                    sum = vfmaq_f32(sum, (*block).minimums[0][pair], of_columns(&raw const (*x).xs));
                }
            }
            Shape::SubScales | Shape::SubScalesAndMinimums => {
                let high = multiply(multiply(zero, w[2], q[2]), w[3], q[3]);
                let isum = vmlaq_s32(
                    vmulq_s32((*block).sub_scales[0][pair], low),
                    (*block).sub_scales[1][pair],
                    high,
                );
                sum = vfmaq_f32(sum, vmulq_f32((*block).scales[0][pair], d), vcvtq_f32_s32(isum));
                if K::SHAPE == Shape::SubScalesAndMinimums {
                    for half in 0..2 {
                        let xs = of_columns(&raw const (*x).half_xs[half]);
                        sum = vfmaq_f32(sum, (*block).minimums[half][pair], xs);
                    }
                }
            }
            Shape::HalfScales => {
                let high = multiply(multiply(zero, w[2], q[2]), w[3], q[3]);
                for (half, isum) in [low, high].into_iter().enumerate() {
                    sum = vfmaq_f32(sum, vmulq_f32((*block).scales[half][pair], d), vcvtq_f32_s32(isum));
                }
            }
        }
        sum
    }
}

/// A number for either column, for both rows.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn of_columns(numbers: *const [f32; 2]) -> float32x4_t {
    // SAFETY: the caller's; the architecture has the instruction.
    unsafe { vreinterpretq_f32_f64(vld1q_dup_f64(numbers.cast())) }
}

/// Adds to `sums[i][j]` the products of the i-th eight bytes of `a` with the j-th of `b`, all signed. The compiler's name for
/// the instruction is not stable.
#[target_feature(enable = "neon,i8mm")]
#[inline]
unsafe fn multiply(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the caller has the instruction, which touches registers only.
    unsafe {
        asm!(
            "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sums, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}
