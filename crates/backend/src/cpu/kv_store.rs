//! Keys and values in memory: one row of `head_dim` numbers per cell, slot and K/V head.
//!
//! Cells come in blocks, those of each class of slots by themselves. In a block the rows of one head lie one after the
//! other, head by head, slot by slot; so the memory that is in use grows with the cells in use, and large pages waste
//! none of it.

use memmap2::MmapMut;

use spec_run_kernels::head_rows::HeadRows;

use super::zeros::zeros;
use crate::{
    Error, Result,
    kv::{BLOCK, KvLayout, SlotShape},
    kv_type::KvType,
};

/// All keys, or all values. Rows are written by the one thread that owns them in a phase and read after the
/// barrier that ends it.
pub struct KvStore {
    pub ty: KvType,
    layout: KvLayout,
    /// Where a slot's heads begin: in the first block of its class.
    begins: Vec<usize>,
    /// By class.
    block_bytes: Vec<usize>,
    /// Of `_memory`, which nothing else reads or writes.
    base: *mut u8,
    _memory: MmapMut,
}

// SAFETY: the rows are plain bytes, and whoever takes one through `HeadRows` vouches for its exclusivity.
unsafe impl Send for KvStore {}
// SAFETY: as above.
unsafe impl Sync for KvStore {}

impl KvStore {
    pub fn new(ty: KvType, layout: KvLayout) -> Result<Self> {
        for slot in &layout.slots {
            ty.check(slot.head_dim)?;
        }
        let mut block_bytes = vec![0; layout.classes.len()];
        let mut begins: Vec<usize> = layout
            .slots
            .iter()
            .map(|slot| {
                let begin = block_bytes[slot.class];
                block_bytes[slot.class] += BLOCK * slot.n_kv_head * ty.row_bytes(slot.head_dim);
                begin
            })
            .collect();
        let mut bytes = Some(0usize);
        for (class, cells) in layout.classes.iter().enumerate() {
            let in_class = layout.slots.iter().zip(&mut begins).filter(|(slot, _)| slot.class == class);
            in_class.for_each(|(_, begin)| *begin += bytes.unwrap_or(0));
            let blocks = cells.n_cells.div_ceil(BLOCK);
            bytes = bytes.and_then(|bytes| blocks.checked_mul(block_bytes[class])?.checked_add(bytes));
        }
        let mut memory = bytes.and_then(|bytes| zeros(bytes).ok()).ok_or_else(|| {
            let gib = layout.bytes(ty) as f64 / (1u64 << 30) as f64;
            Error::Memory(format!(
                "no memory for {gib:.1} GiB of keys or values: use a smaller `n_ctx`, or `key_type` and `value_type` q8_0"
            ))
        })?;
        Ok(KvStore { ty, layout, begins, block_bytes, base: memory.as_mut_ptr(), _memory: memory })
    }

    pub fn slots(&self) -> &[SlotShape] {
        &self.layout.slots
    }

    /// Appends the rows of cells in a slot, head by head.
    pub fn copy_out(&self, slot: usize, cells: &[u32], out: &mut Vec<u8>) {
        let SlotShape { n_kv_head, head_dim, .. } = self.layout.slots[slot];
        for head in 0..n_kv_head {
            let rows = self.head(slot, head, head_dim);
            for &cell in cells {
                // SAFETY: the store is borrowed, so it is alive, and passes, which write, have it for themselves.
                out.extend_from_slice(unsafe { rows.row(cell) });
            }
        }
    }

    /// Writes the rows of cells in a slot, in the order of [`KvStore::copy_out`], and gives what is left of `bytes`. `None`, and
    /// nothing is written, if these are too few.
    pub fn copy_in<'b>(&mut self, slot: usize, cells: &[u32], bytes: &'b [u8]) -> Option<&'b [u8]> {
        let SlotShape { n_kv_head, head_dim, .. } = self.layout.slots[slot];
        let row_bytes = self.ty.row_bytes(head_dim);
        let (mut rows, rest) = bytes.split_at_checked(n_kv_head * cells.len() * row_bytes)?;
        for head in 0..n_kv_head {
            let to = self.head(slot, head, head_dim);
            for &cell in cells {
                let row;
                (row, rows) = rows.split_at(row_bytes);
                // SAFETY: the store is borrowed for writing, so nobody else touches it.
                unsafe { to.row_mut(cell) }.copy_from_slice(row);
            }
        }
        Some(rest)
    }

    /// Where the rows of one head's cells lie, which are of `head_dim` numbers: a slot that is not a layer's own may
    /// serve a layer whose heads are smaller.
    pub fn head(&self, slot: usize, kv_head: usize, head_dim: usize) -> HeadRows {
        let SlotShape { n_kv_head, head_dim: widest, class, keys_only: _ } = self.layout.slots[slot];
        assert!(
            (kv_head + 1) * head_dim <= n_kv_head * widest,
            "head {kv_head} of {head_dim} in slot {slot}"
        );
        let row_bytes = self.ty.row_bytes(head_dim);
        let first = self.base.wrapping_add(self.begins[slot] + kv_head * BLOCK * row_bytes);
        HeadRows::new(first, row_bytes, self.block_bytes[class], self.layout.classes[class].n_cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::CellClass;

    #[test]
    fn every_row_has_a_place_of_its_own() {
        let slot = |n_kv_head, head_dim, class| SlotShape { n_kv_head, head_dim, class, keys_only: false };
        let class = |window, n_cells| CellClass { window, n_cells };
        let layout = KvLayout {
            classes: vec![class(None, 2 * BLOCK + 3), class(Some(9), BLOCK), class(Some(300), BLOCK + 1)],
            slots: vec![
                slot(3, 2, 0),
                slot(2, 4, 2),
                slot(0, 0, 0),
                slot(1, 6, 0),
                slot(1, 2, 1),
                slot(1, 8, 2),
            ],
            mtp: None,
            keys_turn: true,
            recurrent: 0,
            states: 0,
        };
        let store = KvStore::new(KvType::F16, layout.clone()).unwrap();
        let rows = || {
            let heads = layout.slots.iter().enumerate().flat_map(|(slot, shape)| {
                let n_cells = layout.classes[shape.class].n_cells as u32;
                (0..shape.n_kv_head).map(move |head| ((slot, head, shape.head_dim), n_cells))
            });
            heads.flat_map(|(head, n_cells)| (0..n_cells).map(move |cell| (head, cell)))
        };
        for (i, ((slot, head, head_dim), cell)) in rows().enumerate() {
            // SAFETY: one thread.
            let row = unsafe { store.head(slot, head, head_dim).row_mut(cell) };
            assert_eq!(row, vec![0; 2 * head_dim]);
            row.chunks_exact_mut(4).for_each(|part| part.copy_from_slice(&(i as u32 + 1).to_le_bytes()));
        }
        for (i, ((slot, head, head_dim), cell)) in rows().enumerate() {
            // SAFETY: as above.
            let row = unsafe { store.head(slot, head, head_dim).row(cell) };
            assert!(row.chunks_exact(4).all(|part| part == (i as u32 + 1).to_le_bytes()));
        }
    }
}
