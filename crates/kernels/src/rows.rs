//! Buffers of a pass that the team shares: rows of f32, and rows quantized to int8.

use std::{cell::UnsafeCell, marker::PhantomData, ptr};

use crate::{
    matmul::{QuantRows, QuantRowsWriter},
    simd::Isa,
};

/// `[rows, width]` numbers. In each phase every element has at most one writing thread, and nobody reads
/// what another thread writes in the same phase: the schedule of a pass sees to it.
pub struct SharedRows {
    data: Box<[UnsafeCell<f32>]>,
    width: usize,
}

// SAFETY: all access goes through the unsafe methods, whose callers keep to the rule above.
unsafe impl Sync for SharedRows {}

impl SharedRows {
    pub fn new(rows: usize, width: usize) -> Self {
        SharedRows { data: (0..rows * width).map(|_| UnsafeCell::new(0.0)).collect(), width }
    }

    pub fn rows(&self) -> usize {
        self.data.len().checked_div(self.width).unwrap_or(0)
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn as_ptr(&self) -> *mut f32 {
        UnsafeCell::raw_get(self.data.as_ptr())
    }

    /// The first `rows` rows.
    ///
    /// # Safety
    /// No thread writes them in this phase.
    pub unsafe fn first_rows(&self, rows: usize) -> &[f32] {
        assert!(rows * self.width <= self.data.len());
        // SAFETY: within the data, as checked; nobody writes them, says the caller.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), rows * self.width) }
    }

    /// The same to write.
    ///
    /// # Safety
    /// No other thread touches them until the next barrier.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn first_rows_mut(&self, rows: usize) -> &mut [f32] {
        assert!(rows * self.width <= self.data.len());
        // SAFETY: within the data, as checked; nobody else touches them, says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), rows * self.width) }
    }

    /// The first `rows` rows, while no pass is running.
    pub fn rows_mut(&mut self, rows: usize) -> &mut [f32] {
        assert!(rows * self.width <= self.data.len());
        // SAFETY: exclusively borrowed, and `UnsafeCell<f32>` has the layout of `f32`.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), rows * self.width) }
    }

    /// # Safety
    /// No thread writes the row in this phase.
    pub unsafe fn row(&self, row: usize) -> &[f32] {
        assert!((row + 1) * self.width <= self.data.len());
        // SAFETY: within the data, as checked; nobody writes it, says the caller.
        unsafe { std::slice::from_raw_parts(self.as_ptr().wrapping_add(row * self.width), self.width) }
    }

    /// # Safety
    /// No thread writes these columns of the row in this phase, except this one, which keeps no reference.
    pub unsafe fn columns(&self, row: usize, columns: std::ops::Range<usize>) -> &[f32] {
        assert!(columns.start <= columns.end && columns.end <= self.width);
        assert!((row + 1) * self.width <= self.data.len());
        let start = self.as_ptr().wrapping_add(row * self.width + columns.start);
        // SAFETY: within the row, as checked; nobody else writes them, says the caller.
        unsafe { std::slice::from_raw_parts(start, columns.len()) }
    }

    /// # Safety
    /// No other thread touches these columns of the row in this phase.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn row_mut(&self, row: usize, columns: std::ops::Range<usize>) -> &mut [f32] {
        assert!(columns.start <= columns.end && columns.end <= self.width);
        assert!((row + 1) * self.width <= self.data.len());
        let start = self.as_ptr().wrapping_add(row * self.width + columns.start);
        // SAFETY: within the row, as checked; nobody else touches them, says the caller.
        unsafe { std::slice::from_raw_parts_mut(start, columns.len()) }
    }
}

/// int8 rows for one pass: each part of a row is written by one thread, and read by all after a barrier.
pub struct SharedQuantRows<'a> {
    rows: *const QuantRows,
    writer: QuantRowsWriter<'a>,
}

// SAFETY: as for `SharedRows`.
unsafe impl Sync for SharedQuantRows<'_> {}

impl<'a> SharedQuantRows<'a> {
    pub fn new(rows: &'a mut QuantRows) -> Self {
        let rows = ptr::from_mut(rows);
        // SAFETY: exclusively borrowed for 'a; reads and writes both go through this one pointer.
        SharedQuantRows { rows, writer: unsafe { (*rows).writer() } }
    }

    /// The numbers from `column` of a row.
    ///
    /// # Safety
    /// No other thread touches these columns of the row in this phase.
    pub unsafe fn quantize(&self, isa: Isa, row: usize, column: usize, x: &[f32]) {
        // SAFETY: the writer asks for the same.
        unsafe { self.writer.quantize(isa, row, column, x) }
    }

    /// # Safety
    /// No thread writes a row in this phase.
    pub unsafe fn read(&self) -> &QuantRows {
        // SAFETY: it lives for 'a, and nobody writes it, says the caller.
        unsafe { &*self.rows }
    }
}

/// A caller's slice, of which threads write disjoint parts.
#[derive(Clone, Copy)]
pub struct SharedOut<'a> {
    pub ptr: *mut f32,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: as for `SharedRows`.
unsafe impl Sync for SharedOut<'_> {}

impl<'a> SharedOut<'a> {
    pub fn new(slice: &'a mut [f32]) -> Self {
        SharedOut { ptr: slice.as_mut_ptr(), owner: PhantomData }
    }
}
