//! Quantized rows on any tier with vectors. A tier is a file here that says how its instructions do [`lanes::Lanes`].
//!
//! A group of 8 or 16 weight rows, one per 32-bit lane, goes through in steps of 256 columns. First the
//! format unpacks its step into a [`Panel`]: every 4 weights of a row become the 4 bytes of the row's
//! lane, so that sums run down the lanes and never across, and the scales stand beside them as vectors. Then
//! [`dot`] multiplies the panel with all columns. So unpacking happens once however many columns there
//! are, and the second half does not know the format's bytes. The panel never leaves the L1 cache.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dot;
pub mod formats;
pub mod kinds;
pub mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod packed;
pub mod packed_formats;
pub mod panel;
pub mod points;
mod reading;
pub mod rows;

use std::{marker::PhantomData, ops::Range};

pub use {formats::Format, packed::rows as packed_rows};
use {lanes::Lanes, panel::Panel, rows::Rows};

use super::{OutStripe, QuantRows, Weight, acts::GROUP};
use crate::simd::{Isa, Tier, Work, on_vectors};

/// Columns that share one unpacking; a panel of their quantized rows should fit the L2 cache.
const TILE: usize = 128;

pub fn rows<B: Format>(isa: Isa, w: &Weight, x: &QuantRows, out: &mut OutStripe) {
    let job = Job::<B> { w, x, out, acc: [0.0; TILE * 16], format: PhantomData };
    on_vectors!(isa, tier => tier.call(job), else unreachable!("{isa} has a kernel of its own"))
}

struct Job<'a, 'o, B> {
    w: &'a Weight<'a>,
    x: &'a QuantRows,
    out: &'a mut OutStripe<'o>,
    // [columns of a tile, lanes]
    acc: [f32; TILE * 16],
    format: PhantomData<B>,
}

/// Weight rows that share vectors: lane i stands for the row at `first + i · stride`.
struct Group {
    first: *const u8,
    stride: usize,
    /// The row of lane 0.
    row: usize,
    /// The lanes whose results are wanted.
    lanes: Range<usize>,
}

impl<L: Lanes, B: Format> Work<L> for Job<'_, '_, B> {
    type Out = ();

    #[inline(always)]
    fn run(mut self, l: L) {
        let mut panel = Panel::new();
        for first in (0..self.x.rows()).step_by(TILE) {
            let columns = first..self.x.rows().min(first + TILE);
            let mut row = self.out.rows().start;
            while row < self.out.rows().end {
                let group = self.group(L::ROWS, row);
                row = group.row + group.lanes.end;
                self.group_times_columns(l, &group, columns.clone(), &mut panel);
            }
        }
    }
}

impl<B: Format> Job<'_, '_, B> {
    /// The group that begins with `row`. At the end of the matrix it reaches back over rows that are done, since
    /// it must not read behind the last; a matrix of fewer rows than lanes goes row by row, all lanes alike.
    #[inline(always)]
    fn group(&self, lanes: usize, row: usize) -> Group {
        let Weight { bytes, rows, row_bytes, .. } = *self.w;
        let end = self.out.rows().end;
        if rows < lanes {
            return Group { first: bytes[row * row_bytes..].as_ptr(), stride: 0, row, lanes: 0..1 };
        }
        let first = row.min(rows - lanes);
        Group {
            first: bytes[first * row_bytes..].as_ptr(),
            stride: row_bytes,
            row: first,
            lanes: row - first..lanes.min(end - first),
        }
    }

    #[inline(always)]
    fn group_times_columns<L: Lanes>(
        &mut self,
        l: L,
        group: &Group,
        columns: Range<usize>,
        panel: &mut Panel,
    ) {
        let in_block = B::TYPE.block_len() / GROUP;
        let groups = self.x.k() / GROUP;
        let acc = &mut self.acc[..columns.len() * L::ROWS];
        acc.fill(0.0);
        for first in (0..groups).step_by(Panel::GROUPS) {
            let n = Panel::GROUPS.min(groups - first);
            for b in (0..n).step_by(in_block) {
                let offset = (first + b) / in_block * B::TYPE.block_bytes();
                // SAFETY: the block of every row of the group is whole.
                unsafe { B::unpack(l, Rows::new::<L>(group.first, group.stride, offset), panel, b) };
            }
            // SAFETY: the columns have `groups` groups, the panel holds n, and `acc` has 16 lanes per column.
            unsafe { dot::dot::<L, B::Kind>(l, panel, n, self.x, columns.clone(), first, acc.as_mut_ptr()) };
        }
        for (c, acc) in columns.zip(acc.chunks_exact(L::ROWS)) {
            self.out.put(c, group.row + group.lanes.start, &acc[group.lanes.clone()]);
        }
    }
}
