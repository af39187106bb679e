//! Where the keys, or the values, of one head lie.

/// Cells in a block of memory.
pub const BLOCK: usize = 256;

/// One head's rows, by cell.
#[derive(Clone, Copy)]
pub struct HeadRows {
    first: *mut u8,
    row_bytes: usize,
    between_blocks: usize,
    n_cells: usize,
}

impl HeadRows {
    /// Rows that begin at `first`, whose blocks lie `between_blocks` bytes apart.
    pub fn new(first: *mut u8, row_bytes: usize, between_blocks: usize, n_cells: usize) -> Self {
        HeadRows { first, row_bytes, between_blocks, n_cells }
    }

    /// Rows that lie elsewhere, one behind the other; not to be written by these.
    #[inline(always)]
    pub fn of_rows(rows: &[u8], row_bytes: usize) -> Self {
        let first = rows.as_ptr().cast_mut();
        HeadRows { first, row_bytes, between_blocks: BLOCK * row_bytes, n_cells: rows.len() / row_bytes }
    }

    #[inline(always)]
    fn at(&self, cell: u32) -> *mut u8 {
        let cell = cell as usize;
        assert!(cell < self.n_cells);
        self.first.wrapping_add(cell / BLOCK * self.between_blocks + cell % BLOCK * self.row_bytes)
    }

    /// Where a cell's row lies, and how long it is.
    #[inline(always)]
    pub fn address(&self, cell: u32) -> (*const u8, usize) {
        (self.at(cell), self.row_bytes)
    }

    /// # Safety
    /// The store is alive and nobody writes this cell meanwhile.
    #[inline(always)]
    pub unsafe fn row<'a>(&self, cell: u32) -> &'a [u8] {
        // SAFETY: `at` has checked the cell; the rest is the caller's.
        unsafe { std::slice::from_raw_parts(self.at(cell), self.row_bytes) }
    }

    /// # Safety
    /// The store is alive and nobody else touches this cell meanwhile.
    #[inline(always)]
    pub unsafe fn row_mut<'a>(&self, cell: u32) -> &'a mut [u8] {
        // SAFETY: `at` has checked the cell; the rest is the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.at(cell), self.row_bytes) }
    }
}
