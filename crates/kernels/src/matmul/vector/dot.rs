//! Blocks of 32 weights times the columns: the arithmetic of the contract, for any format.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use std::{marker::PhantomData, ops::Range};

use super::{
    kinds::{Kind, Shape},
    lanes::Lanes,
    panel::{Panel, Scales},
};
use crate::{
    matmul::{QuantRows, acts::ActGroup},
    simd::Work,
};

/// Where the columns `first..first + C` stand, at their group `group`.
#[inline(always)]
pub fn columns<const C: usize>(x: &QuantRows, first: usize, group: usize) -> [*const ActGroup; C] {
    let mut at = [std::ptr::null(); C];
    for (c, at) in at.iter_mut().enumerate() {
        *at = x.row(first + c)[group..].as_ptr();
    }
    at
}

/// The same columns, `b` groups on.
#[inline(always)]
pub fn at_group<const C: usize>(x: &[*const ActGroup; C], b: usize) -> [*const ActGroup; C] {
    let mut at = *x;
    for at in &mut at {
        *at = at.wrapping_add(b);
    }
    at
}

/// Adds `n` blocks of a panel, which begin at group `first` of the columns, to `acc`: `[columns, L::ROWS]`.
///
/// # Safety
/// The columns exist, they have the groups `first..first + n`, and `acc` has room for them all.
#[inline(always)]
pub unsafe fn dot<L: Lanes, K: Kind>(
    l: L,
    panel: &Panel,
    n: usize,
    x: &QuantRows,
    columns: Range<usize>,
    first: usize,
    acc: *mut f32,
) {
    l.call(Dot::<K> { panel, n, x, columns, first, acc, format: PhantomData });
}

/// The arguments of [`dot`], and its promise.
pub struct Dot<'a, K> {
    pub panel: &'a Panel,
    pub n: usize,
    pub x: &'a QuantRows,
    pub columns: Range<usize>,
    pub first: usize,
    pub acc: *mut f32,
    format: PhantomData<K>,
}

impl<L: Lanes, K: Kind> Work<L> for Dot<'_, K> {
    type Out = ();

    #[inline(always)]
    fn run(self, l: L) {
        // SAFETY: who made the value has promised it.
        if unsafe { l.dot_panel(&self) } {
            return;
        }
        let Dot { panel, n, x, columns, first, mut acc, .. } = self;
        let mut c = columns.start;
        macro_rules! tile {
            ($C:literal) => {
                // SAFETY: who made the value has promised it; every tile stays within the columns.
                unsafe {
                    tile::<L, K, $C>(l, panel, n, x, c, first, acc);
                    acc = acc.add($C * L::ROWS);
                }
                c += $C;
            };
        }
        if const { L::COLUMNS >= 8 } {
            while columns.end - c >= 8 {
                tile!(8);
            }
        }
        while columns.end - c >= 4 {
            tile!(4);
        }
        while columns.end - c >= 2 {
            tile!(2);
        }
        if c < columns.end {
            // SAFETY: as above.
            unsafe { tile::<L, K, 1>(l, panel, n, x, c, first, acc) };
        }
    }
}

/// # Safety
/// As [`dot`], for the columns `column..column + C`.
#[inline(always)]
unsafe fn tile<L: Lanes, K: Kind, const C: usize>(
    l: L,
    panel: &Panel,
    n: usize,
    x: &QuantRows,
    column: usize,
    first: usize,
    acc: *mut f32,
) {
    // SAFETY: the caller's.
    unsafe {
        let x = columns::<C>(x, column, first);
        let mut sums = [l.splat_f32(0.0); C];
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = l.load_f32(acc.add(c * L::ROWS));
        }
        for b in 0..n {
            let mut w = [l.splat(0); 8];
            for (j, w) in w.iter_mut().enumerate() {
                *w = panel.int_vector(l, b, j);
            }
            step::<L, K, C>(l, &w, &panel.scales, b, at_group(&x, b), &mut sums);
        }
        for (c, sum) in sums.into_iter().enumerate() {
            l.store_f32(acc.add(c * L::ROWS), sum);
        }
    }
}

/// One block of the contract: adds the products of 32 weights of every row with a group of each column.
///
/// # Safety
/// The groups are readable.
#[inline(always)]
pub unsafe fn step<L: Lanes, K: Kind, const C: usize>(
    l: L,
    w: &[L::V; 8],
    scales: &Scales,
    b: usize,
    x: [*const ActGroup; C],
    sums: &mut [L::F; C],
) {
    // SAFETY: the caller's.
    unsafe {
        if K::SHAPE == Shape::HalfScales {
            return step_of_halves::<L, K, C>(l, w, scales, b, &x, sums);
        }
        let isums = integer_sums::<L, K, C>(l, w, scales, b, &x);
        let scale = scales.scale(l, b);
        for c in 0..C {
            let scale = l.mul_f32(scale, l.splat_f32((*x[c]).d));
            sums[c] = l.fma_f32(scale, l.to_f32(isums[c]), sums[c]);
        }
        add_minimums::<L, K, C>(l, scales, b, &x, sums);
    }
}

/// [`step`], where either half of the weights has a scale.
///
/// # Safety
/// The groups are readable.
#[inline(always)]
unsafe fn step_of_halves<L: Lanes, K: Kind, const C: usize>(
    l: L,
    w: &[L::V; 8],
    scales: &Scales,
    b: usize,
    x: &[*const ActGroup; C],
    sums: &mut [L::F; C],
) {
    let of_halves = scales.half_scales(l, b);
    for c in 0..C {
        // SAFETY: the caller's.
        let (isums, ActGroup { d, half_sums: of_x, .. }) =
            unsafe { (half_sums::<L, 1>(l, w, &[x[c]], K::LARGEST, false), *x[c]) };
        for half in 0..2 {
            let too_much = i32::from(K::OFFSET) * i32::from(of_x[half]);
            let isum = l.sub(isums[half][0], l.splat(too_much as u32));
            let scale = l.mul_f32(of_halves[half], l.splat_f32(d));
            sums[c] = l.fma_f32(scale, l.to_f32(isum), sums[c]);
        }
    }
}

/// The part of a block that does not depend on the weights' integers.
///
/// # Safety
/// The groups are readable.
#[inline(always)]
pub unsafe fn add_minimums<L: Lanes, K: Kind, const C: usize>(
    l: L,
    scales: &Scales,
    b: usize,
    x: &[*const ActGroup; C],
    sums: &mut [L::F; C],
) {
    // SAFETY: the caller's.
    unsafe {
        match K::SHAPE {
            Shape::Plain | Shape::SubScale | Shape::SubScales | Shape::HalfScales => {}
            Shape::Minimum => {
                let minimum = scales.minimum(l, b, 0);
                for c in 0..C {
                    sums[c] = l.fma_f32(minimum, l.splat_f32((*x[c]).xs), sums[c]);
                }
            }
            Shape::SubScalesAndMinimums => {
                let minimums = [scales.minimum(l, b, 0), scales.minimum(l, b, 1)];
                for c in 0..C {
                    let ActGroup { d, half_sums, .. } = *x[c];
                    for half in 0..2 {
                        let xs = l.splat_f32(d * f32::from(half_sums[half]));
                        sums[c] = l.fma_f32(minimums[half], xs, sums[c]);
                    }
                }
            }
        }
    }
}

/// The two sums of 16 products of every row and column; `largest` and `signed` as in [`Lanes::dot`].
///
/// # Safety
/// The groups are readable.
#[inline(always)]
pub unsafe fn half_sums<L: Lanes, const C: usize>(
    l: L,
    w: &[L::V; 8],
    x: &[*const ActGroup; C],
    largest: u8,
    signed: bool,
) -> [[L::V; C]; 2] {
    // SAFETY: the caller's.
    unsafe {
        let (mut first, mut second) = ([std::ptr::null(); C], [std::ptr::null(); C]);
        for c in 0..C {
            first[c] = (&raw const (*x[c]).q).cast::<i8>();
            second[c] = first[c].add(16);
        }
        let (low, high) = (&[w[0], w[1], w[2], w[3]], &[w[4], w[5], w[6], w[7]]);
        let zero = [l.splat(0); C];
        [l.dot::<4, C>(low, first, zero, largest, signed), l.dot::<4, C>(high, second, zero, largest, signed)]
    }
}

/// `isum` of the contract for block `b`.
///
/// # Safety
/// The groups are readable.
#[inline(always)]
unsafe fn integer_sums<L: Lanes, K: Kind, const C: usize>(
    l: L,
    w: &[L::V; 8],
    scales: &Scales,
    b: usize,
    x: &[*const ActGroup; C],
) -> [L::V; C] {
    let signed = K::WIDE && L::SIGNED_BYTES;
    let offset = if K::WIDE { if L::SIGNED_BYTES { 0 } else { 128 } } else { K::OFFSET };
    // SAFETY: the caller's.
    unsafe {
        if matches!(K::SHAPE, Shape::Plain | Shape::SubScale | Shape::Minimum) {
            let (mut q, mut starts) = ([std::ptr::null(); C], [l.splat(0); C]);
            for c in 0..C {
                q[c] = (&raw const (*x[c]).q).cast::<i8>();
                starts[c] = minus_offset(l, offset, (*x[c]).minus_8);
            }
            let mut isums = l.dot::<8, C>(w, q, starts, K::LARGEST, signed);
            if K::SHAPE == Shape::SubScale {
                let sub = scales.sub_scale(l, b, 0);
                for isum in &mut isums {
                    *isum = l.mul(sub, *isum);
                }
            }
            return isums;
        }
        let [s0, s1] = [scales.sub_scale(l, b, 0), scales.sub_scale(l, b, 1)];
        let mut isums = [l.splat(0); C];
        // What the offset has added is taken away, with both halves' multiples of it in 16 bits each.
        let minus = |sub| l.mul(sub, l.splat(-i32::from(offset) as u32));
        let both = l.or(l.and(minus(s0), l.splat(0xffff)), l.shl(minus(s1), 16));
        // Column by column: the sums of both halves of all of them would not fit the registers.
        for c in 0..C {
            let [[first], [second]] = half_sums::<L, 1>(l, w, &[x[c]], K::LARGEST, signed);
            isums[c] = l.add(l.mul(s0, first), l.mul(s1, second));
            if offset != 0 {
                isums[c] = l.add(isums[c], l.mul_pairs(both, half_sums_of(l, x[c])));
            }
        }
        isums
    }
}

/// Both half sums of a group in every lane.
///
/// # Safety
/// The group is readable.
#[inline(always)]
pub unsafe fn half_sums_of<L: Lanes>(l: L, x: *const ActGroup) -> L::V {
    // SAFETY: the caller's.
    l.splat(unsafe { (&raw const (*x).half_sums).cast::<u32>().read_unaligned() })
}

/// `-offset · Σ q` from `-8 · Σ q`, for the offsets that there are.
#[inline(always)]
fn minus_offset<L: Lanes>(l: L, offset: i16, minus_8: i32) -> L::V {
    let start = l.splat(minus_8 as u32);
    match offset {
        0 => l.splat(0),
        12 => l.add(start, l.sar(start, 1)),
        1 => l.sar(start, 3),
        2 => l.sar(start, 2),
        4 => l.sar(start, 1),
        _ => {
            debug_assert!(offset >= 8 && offset.count_ones() == 1);
            l.shl(start, offset.trailing_zeros() - 3)
        }
    }
}
