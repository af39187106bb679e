//! Keys and values in memory: one row of `head_dim` numbers per cell, slot and K/V head.
//!
//! Cells come in blocks. In a block the rows of one head lie one after the other, head by head, slot by slot; so
//! the memory that is in use grows with the cells in use, and large pages waste none of it.

use memmap2::MmapMut;

pub use crate::kv_type::{KvType, Q8_BLOCK, Q8_BLOCK_BYTES};
use crate::{Error, Result};

#[derive(Clone, Copy, Debug)]
pub struct KvShape {
    pub n_slots: usize,
    pub n_cells: usize,
    pub n_kv_head: usize,
    pub head_dim: usize,
}

impl KvShape {
    /// Of all keys, or of all values; `None` if that is no size of a memory.
    fn bytes(&self, ty: KvType) -> Option<usize> {
        let cells = self.n_cells.checked_next_multiple_of(BLOCK)?;
        let sizes = [self.n_slots, self.n_kv_head, ty.row_bytes(self.head_dim)];
        sizes.into_iter().try_fold(cells, usize::checked_mul)
    }
}

/// Cells of a block.
const BLOCK: usize = 256;

/// All keys, or all values. Rows are written by the one thread that owns them in a phase and read after the
/// barrier that ends it.
pub struct KvStore {
    pub ty: KvType,
    shape: KvShape,
    row_bytes: usize,
    /// Of `_memory`, which nothing else reads or writes.
    base: *mut u8,
    _memory: MmapMut,
}

// SAFETY: the rows are plain bytes, and whoever takes one through `HeadRows` vouches for its exclusivity.
unsafe impl Send for KvStore {}
// SAFETY: as above.
unsafe impl Sync for KvStore {}

impl KvStore {
    pub fn new(ty: KvType, shape: KvShape) -> Result<Self> {
        let head_dim = shape.head_dim;
        ty.check(head_dim)?;
        let row_bytes = ty.row_bytes(head_dim);
        let mut memory = shape.bytes(ty).and_then(zeroed).ok_or_else(|| {
            let gib = [shape.n_slots, shape.n_cells, shape.n_kv_head, row_bytes]
                .into_iter()
                .fold(1.0 / (1u64 << 30) as f64, |gib, n| gib * n as f64);
            Error::Memory(format!(
                "no memory for {gib:.1} GiB of keys or values: use a smaller `n_ctx` or `key_type` q8_0"
            ))
        })?;
        Ok(KvStore { ty, shape, row_bytes, base: memory.as_mut_ptr(), _memory: memory })
    }

    pub fn n_slots(&self) -> usize {
        self.shape.n_slots
    }

    /// Where the rows of one head's cells lie.
    pub fn head(&self, slot: usize, kv_head: usize) -> HeadRows {
        let KvShape { n_slots, n_cells, n_kv_head, .. } = self.shape;
        assert!(slot < n_slots && kv_head < n_kv_head);
        let block_bytes = BLOCK * self.row_bytes;
        HeadRows {
            first: self.base.wrapping_add((slot * n_kv_head + kv_head) * block_bytes),
            row_bytes: self.row_bytes,
            between_blocks: n_slots * n_kv_head * block_bytes,
            n_cells,
        }
    }
}

/// Zeroed by the operating system, so that cells never used cost no memory; in large pages where it has them.
fn zeroed(bytes: usize) -> Option<MmapMut> {
    let memory = MmapMut::map_anon(bytes.max(1)).ok()?;
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    Some(memory)
}

/// One head's rows, by cell.
#[derive(Clone, Copy)]
pub struct HeadRows {
    first: *mut u8,
    row_bytes: usize,
    between_blocks: usize,
    n_cells: usize,
}

impl HeadRows {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_place_of_its_own() {
        let shape = KvShape { n_slots: 2, n_cells: 2 * BLOCK + 3, n_kv_head: 3, head_dim: 2 };
        let store = KvStore::new(KvType::F16, shape).unwrap();
        let rows = || {
            let heads =
                (0..shape.n_slots).flat_map(|slot| (0..shape.n_kv_head).map(move |head| (slot, head)));
            heads.flat_map(|head| (0..shape.n_cells as u32).map(move |cell| (head, cell)))
        };
        for (i, ((slot, head), cell)) in rows().enumerate() {
            // SAFETY: one thread.
            let row = unsafe { store.head(slot, head).row_mut(cell) };
            assert_eq!(row, [0; 4]);
            row.copy_from_slice(&(i as u32 + 1).to_le_bytes());
        }
        for (i, ((slot, head), cell)) in rows().enumerate() {
            // SAFETY: as above.
            assert_eq!(unsafe { store.head(slot, head).row(cell) }, (i as u32 + 1).to_le_bytes());
        }
    }
}
