//! A panel times the columns: the arithmetic of the contract, for any format.

use std::ops::Range;

use super::{
    formats::{Format, Shape},
    lanes::Lanes,
    panel::Panel,
};
use crate::backend::cpu::matmul::{QuantRows, acts::GROUP};

/// Adds `n` blocks of a panel, which begin at group `first` of the columns, to `acc`: `[columns, L::ROWS]`.
///
/// # Safety
/// The columns exist, they have the groups `first..first + n`, and `acc` has room for them all.
#[inline(always)]
pub unsafe fn dot<L: Lanes, B: Format>(
    l: L,
    panel: &Panel,
    n: usize,
    x: &QuantRows,
    columns: Range<usize>,
    first: usize,
    acc: *mut f32,
) {
    let mut c = columns.start;
    let mut acc = acc;
    // SAFETY: the caller's; every tile stays within the columns.
    unsafe {
        macro_rules! tile {
            ($C:literal) => {
                tile::<L, B, $C>(l, panel, n, x, c, first, acc);
                c += $C;
                acc = acc.add($C * L::ROWS);
            };
        }
        while L::COLUMNS >= 8 && columns.end - c >= 8 {
            tile!(8);
        }
        while columns.end - c >= 4 {
            tile!(4);
        }
        while columns.end - c >= 2 {
            tile!(2);
        }
        if c < columns.end {
            tile::<L, B, 1>(l, panel, n, x, c, first, acc);
        }
    }
}

/// One column from a group on.
#[derive(Clone, Copy)]
struct Column {
    q: *const i8,
    d: *const f32,
    xs: *const f32,
    half_sums: *const [i16; 2],
}

/// # Safety
/// As [`dot`], for the columns `column..column + C`.
#[inline(always)]
unsafe fn tile<L: Lanes, B: Format, const C: usize>(
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
        let mut columns = [Column {
            q: std::ptr::null(),
            d: std::ptr::null(),
            xs: std::ptr::null(),
            half_sums: std::ptr::null(),
        }; C];
        let mut sums = [l.splat_f32(0.0); C];
        for c in 0..C {
            let x = x.row(column + c);
            columns[c] = Column {
                q: x.q.as_ptr().add(first * GROUP),
                d: x.d.as_ptr().add(first),
                xs: x.xs.as_ptr().add(first),
                half_sums: x.half_sums.as_ptr().add(first),
            };
            sums[c] = l.load_f32(acc.add(c * L::ROWS));
        }
        for b in 0..n {
            let isums = integer_sums::<L, B, C>(l, panel, b, &columns);
            let scale = panel.scale(l, b);
            for c in 0..C {
                let scale = l.mul_f32(scale, l.splat_f32(*columns[c].d.add(b)));
                sums[c] = l.fma_f32(scale, l.to_f32(isums[c]), sums[c]);
            }
            match B::SHAPE {
                Shape::Plain | Shape::SubScales => {}
                Shape::Minimum => {
                    let minimum = panel.minimum(l, b, 0);
                    for c in 0..C {
                        sums[c] = l.fma_f32(minimum, l.splat_f32(*columns[c].xs.add(b)), sums[c]);
                    }
                }
                Shape::SubScalesAndMinimums => {
                    let minimums = [panel.minimum(l, b, 0), panel.minimum(l, b, 1)];
                    for c in 0..C {
                        let (d, half_sums) = (*columns[c].d.add(b), *columns[c].half_sums.add(b));
                        for half in 0..2 {
                            let xs = l.splat_f32(d * f32::from(half_sums[half]));
                            sums[c] = l.fma_f32(minimums[half], xs, sums[c]);
                        }
                    }
                }
            }
        }
        for (c, sum) in sums.into_iter().enumerate() {
            l.store_f32(acc.add(c * L::ROWS), sum);
        }
    }
}

/// `isum` of the contract for block `b`.
///
/// # Safety
/// The columns have a group `b`.
#[inline(always)]
unsafe fn integer_sums<L: Lanes, B: Format, const C: usize>(
    l: L,
    panel: &Panel,
    b: usize,
    columns: &[Column; C],
) -> [L::V; C] {
    // The two 16-bit halves of a lane, for the two half sums.
    const FIRST: u32 = 0xffff;
    const SECOND: u32 = 0xffff_0000;
    // SAFETY: the caller's.
    unsafe {
        let mut x = [std::ptr::null(); C];
        for c in 0..C {
            x[c] = columns[c].q.add(b * GROUP);
        }
        let w = panel.ints(b, 0);
        if matches!(B::SHAPE, Shape::Plain | Shape::Minimum) {
            return l.dot::<B, 8, C>(w, x, offsets::<L, B, C>(l, b, columns, FIRST | SECOND));
        }
        let first = l.dot::<B, 4, C>(w, x, offsets::<L, B, C>(l, b, columns, FIRST));
        for x in &mut x {
            *x = x.add(16);
        }
        let w = panel.ints(b, 1);
        let mut isums = l.dot::<B, 4, C>(w, x, offsets::<L, B, C>(l, b, columns, SECOND));
        let scales = [panel.sub_scale(l, b, 0), panel.sub_scale(l, b, 1)];
        for c in 0..C {
            isums[c] = l.add(l.mul(scales[0], first[c]), l.mul(scales[1], isums[c]));
        }
        isums
    }
}

/// What the offset of unsigned weights adds to their products with one or both halves of group `b`, negated: where
/// the sum of the products begins.
///
/// # Safety
/// The columns have a group `b`.
#[inline(always)]
unsafe fn offsets<L: Lanes, B: Format, const C: usize>(
    l: L,
    b: usize,
    columns: &[Column; C],
    halves: u32,
) -> [L::V; C] {
    let offset = match (B::WIDE, L::SIGNED_BYTES) {
        (true, true) => 0,
        (true, false) => 128,
        (false, _) => B::OFFSET,
    };
    let minus = u32::from((-offset) as u16);
    let factors = l.splat((minus | minus << 16) & halves);
    let mut starts = [l.splat(0); C];
    if offset != 0 {
        for c in 0..C {
            // SAFETY: the caller's.
            let half_sums = unsafe { columns[c].half_sums.add(b).cast::<u32>().read_unaligned() };
            starts[c] = l.mul_pairs(l.splat(half_sums), factors);
        }
    }
    starts
}
