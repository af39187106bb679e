//! Activations in int8: a scale, and sums for offsets and minima, per block of 32.

use std::{cell::UnsafeCell, slice};

use crate::backend::cpu::simd::{Isa, Kernel, LANES, Simd};

pub const BLOCK: usize = 32;

/// One block of a row.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct ActBlock {
    pub q: [i8; BLOCK],
    pub d: f32,
    /// `d · Σq`
    pub xs: f32,
    /// The same over each half.
    pub half_xs: [f32; 2],
}

/// `[rows, cols / 32]` blocks that a team shares: rows are written by one thread each, and read after a barrier.
pub struct QuantRows {
    blocks: Box<[UnsafeCell<ActBlock>]>,
    blocks_per_row: usize,
}

// SAFETY: all access goes through the unsafe methods, whose callers keep to the rule above.
unsafe impl Sync for QuantRows {}

impl QuantRows {
    pub fn new(rows: usize, cols: usize) -> Self {
        const ZERO: ActBlock = ActBlock { q: [0; BLOCK], d: 0.0, xs: 0.0, half_xs: [0.0; 2] };
        let blocks_per_row = cols.div_ceil(BLOCK);
        QuantRows { blocks: (0..rows * blocks_per_row).map(|_| UnsafeCell::new(ZERO)).collect(), blocks_per_row }
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.blocks) as u64
    }

    /// # Safety
    /// Nobody else touches the row until the next barrier.
    pub unsafe fn quantize_row(&self, isa: Isa, row: usize, x: &[f32]) {
        let cells = &self.blocks[row * self.blocks_per_row..][..x.len() / BLOCK];
        // SAFETY: `UnsafeCell<T>` has the layout of `T`; the caller vouches for the rest.
        let blocks = unsafe { slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) };
        isa.dispatch(Quantize { x, blocks });
    }

    /// # Safety
    /// Nobody writes the row until the next barrier.
    pub unsafe fn row(&self, row: usize) -> &[ActBlock] {
        let cells = &self.blocks[row * self.blocks_per_row..][..self.blocks_per_row];
        // SAFETY: as above.
        unsafe { slice::from_raw_parts(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
    }
}

struct Quantize<'a> {
    x: &'a [f32],
    blocks: &'a mut [ActBlock],
}

impl Kernel for Quantize<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, block) in self.x.chunks_exact(BLOCK).zip(self.blocks) {
            let halves = [s.load(x), s.load(&x[LANES..])];
            let size = |v| s.max(v, s.sub(s.zero(), v));
            let largest = s.reduce_max(s.max(size(halves[0]), size(halves[1])));
            let inverse = s.splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
            let mut q = [0.0; BLOCK];
            for (v, q) in halves.into_iter().zip(q.chunks_exact_mut(LANES)) {
                s.store(s.round(s.mul(v, inverse)), q);
            }
            let mut sums = [0i32; 2];
            for (i, q) in q.into_iter().enumerate() {
                // Within ±127, or NaN, which becomes 0.
                block.q[i] = q as i8;
                sums[i / LANES] += i32::from(block.q[i]);
            }
            block.d = largest / 127.0;
            block.xs = block.d * (sums[0] + sums[1]) as f32;
            block.half_xs = sums.map(|sum| block.d * sum as f32);
        }
    }
}
