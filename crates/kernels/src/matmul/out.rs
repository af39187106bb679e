//! Where the results go: one matrix, written in column stripes by several threads.

use std::{marker::PhantomData, ops::Range};

/// What happens to a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Store,
    /// `out += result`: the residual.
    Add,
}

/// An output `[columns, rows]` that threads write together, each its own range of weight rows.
pub struct OutMatrix<'a> {
    first: *mut f32,
    columns: usize,
    rows: usize,
    mode: Mode,
    owned: PhantomData<&'a mut [f32]>,
}

// SAFETY: it only hands out stripes, and whoever takes one promises that no other holds the same elements.
unsafe impl Send for OutMatrix<'_> {}
// SAFETY: as above.
unsafe impl Sync for OutMatrix<'_> {}

impl<'a> OutMatrix<'a> {
    /// `out` is `[out.len() / rows, rows]`.
    pub fn new(out: &'a mut [f32], rows: usize, mode: Mode) -> Self {
        assert!(rows > 0 && out.len().is_multiple_of(rows), "{} is no multiple of {rows} rows", out.len());
        let columns = out.len() / rows;
        OutMatrix { first: out.as_mut_ptr(), columns, rows, mode, owned: PhantomData }
    }

    /// As [`OutMatrix::new`], for a buffer that threads share without a reference to it.
    ///
    /// # Safety
    /// `first` points to `columns · rows` floats that live for `'a` and that, for `'a`, nobody touches
    /// except through stripes: of this matrix, or of other matrices over the same floats, if those
    /// stripes have no row in common with the stripes of this one.
    pub unsafe fn from_raw(first: *mut f32, columns: usize, rows: usize, mode: Mode) -> Self {
        OutMatrix { first, columns, rows, mode, owned: PhantomData }
    }

    /// All rows, for one thread.
    pub fn whole(&mut self) -> OutStripe<'_> {
        // SAFETY: the exclusive borrow keeps every other stripe away.
        unsafe { self.stripe(0..self.rows) }
    }

    /// Some rows, for one thread.
    pub fn part(&mut self, rows: Range<usize>) -> OutStripe<'_> {
        // SAFETY: as above.
        unsafe { self.stripe(rows) }
    }

    /// The elements of the weight rows `rows` in every column. Panics if `rows` is not within the matrix.
    ///
    /// # Safety
    /// No two stripes that live at the same time have a row in common.
    pub unsafe fn stripe(&self, rows: Range<usize>) -> OutStripe<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "{rows:?} of {} rows", self.rows);
        OutStripe { matrix: self, rows, factor: 1.0 }
    }
}

/// Exclusive access to some rows of an [`OutMatrix`].
pub struct OutStripe<'a> {
    matrix: &'a OutMatrix<'a>,
    rows: Range<usize>,
    factor: f32,
}

impl OutStripe<'_> {
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    pub fn columns(&self) -> usize {
        self.matrix.columns
    }

    pub fn matrix_rows(&self) -> usize {
        self.matrix.rows
    }

    /// By what results are multiplied on their way.
    pub fn set_factor(&mut self, factor: f32) {
        self.factor = factor;
    }

    /// Stores or adds the results of the rows from `row` in one column. Panics if they are not all ours.
    #[inline(always)]
    pub fn put(&mut self, column: usize, row: usize, results: &[f32]) {
        let OutMatrix { first, columns, rows, mode, .. } = *self.matrix;
        assert!(column < columns && self.rows.start <= row && results.len() <= self.rows.end - row);
        // SAFETY: within the matrix by the assertion, and by the promise that made the stripe nobody else
        // touches its rows.
        let to = unsafe { std::slice::from_raw_parts_mut(first.add(column * rows + row), results.len()) };
        match mode {
            Mode::Store => to.iter_mut().zip(results).for_each(|(to, x)| *to = x * self.factor),
            Mode::Add => to.iter_mut().zip(results).for_each(|(to, x)| *to += x * self.factor),
        }
    }
}
