//! Which cells of the K/V cache belong to which sequence. Pure bookkeeping: the numbers themselves lie in the
//! backend, at the cell ids given out here.
//!
//! A sequence is a list of cell ids in position order, and a cell counts the lists it stands in. So a fork
//! shares every cell, a truncation gives back what nobody else holds, and neither moves a key or a value.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use crate::{Error, Result, batch::SeqId, plan::Visit};

/// What a pass under a mask writes to each slot, if anything.
pub type WrittenSlots = Arc<[Option<Visit>]>;

#[derive(Clone, Debug, Default)]
struct Cell {
    holders: u32,
    pos: u32,
    /// `None`: every layer's own slot was written, no repetition's.
    written: Option<WrittenSlots>,
}

/// Which cells of the cache belong to which sequence.
#[derive(Debug)]
pub struct KvCache {
    cells: Vec<Cell>,
    /// Lowest id first, so that a sequence grown alone lies in one piece.
    free: BinaryHeap<Reverse<u32>>,
    sequences: BTreeMap<SeqId, Vec<u32>>,
    n_layer: usize,
}

/// A key to be turned from `src` into `dst` (often the same cell), its value copied along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellMove {
    pub src: u32,
    pub dst: u32,
}

impl KvCache {
    pub(crate) fn new(n_cells: u32, n_layer: usize) -> Self {
        KvCache {
            cells: vec![Cell::default(); n_cells as usize],
            free: (0..n_cells).map(Reverse).collect(),
            sequences: BTreeMap::new(),
            n_layer,
        }
    }

    /// What the bookkeeping of so many cells takes: each cell, its place among the free ones and in a sequence.
    pub(crate) fn bytes_for(n_cells: usize) -> u64 {
        let cell = size_of::<Cell>() + size_of::<Reverse<u32>>() + size_of::<u32>();
        cell as u64 * n_cells as u64
    }

    /// All cells.
    pub fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// Layers of the model.
    pub fn n_layer(&self) -> usize {
        self.n_layer
    }

    /// Cells that no sequence holds.
    pub fn free_cells(&self) -> usize {
        self.free.len()
    }

    /// The cells of `seq` in position order.
    pub fn cells(&self, seq: SeqId) -> &[u32] {
        self.sequences.get(&seq).map_or(&[], Vec::as_slice)
    }

    /// The number of tokens of `seq`.
    pub fn len(&self, seq: SeqId) -> usize {
        self.cells(seq).len()
    }

    /// Whether `seq` has no tokens.
    pub fn is_empty(&self, seq: SeqId) -> bool {
        self.cells(seq).is_empty()
    }

    /// The first position that the next token of `seq` may have.
    pub fn next_pos(&self, seq: SeqId) -> u32 {
        self.cells(seq).last().map_or(0, |&c| self.cells[c as usize].pos + 1)
    }

    /// A cell for one more token of `seq`. `written` says which slots the pass will write there.
    pub(crate) fn append(&mut self, seq: SeqId, pos: u32, written: Option<WrittenSlots>) -> Result<u32> {
        let next = self.next_pos(seq);
        if pos < next {
            return Err(Error::Batch(format!(
                "position {pos} of sequence {seq} is taken (the next free one is {next}): truncate the sequence first"
            )));
        }
        let Some(Reverse(id)) = self.free.pop() else { return Err(self.full(1)) };
        self.cells[id as usize] = Cell { holders: 1, pos, written };
        self.sequences.entry(seq).or_default().push(id);
        Ok(id)
    }

    /// Where in its text a cell's token stands.
    pub fn pos(&self, cell: u32) -> u32 {
        self.cells[cell as usize].pos
    }

    /// The cell of `seq` at a position.
    pub(crate) fn cell_at(&self, seq: SeqId, pos: u32) -> Option<u32> {
        let list = self.cells(seq);
        list.binary_search_by_key(&pos, |&c| self.cells[c as usize].pos).ok().map(|i| list[i])
    }

    /// A pass writes to a cell that is there already, and leaves these slots in it.
    pub(crate) fn rewrite(&mut self, cell: u32, written: Option<WrittenSlots>) {
        self.cells[cell as usize].written = written;
    }

    /// The error for `wanted` more cells than there are.
    pub(crate) fn full(&self, wanted: usize) -> Error {
        Error::Batch(format!(
            "the context is full: {wanted} more cells are needed, {} of {} are free: a larger `n_ctx`, or truncate a sequence",
            self.free.len(),
            self.cells.len()
        ))
    }

    /// Makes `dst` the same as `src`, sharing its cells. What `dst` held before is let go.
    pub(crate) fn fork(&mut self, src: SeqId, dst: SeqId) {
        if src == dst {
            return;
        }
        let list = self.cells(src).to_vec();
        for &c in &list {
            self.cells[c as usize].holders += 1;
        }
        self.remove(dst);
        if !list.is_empty() {
            self.sequences.insert(dst, list);
        }
    }

    /// Keeps the first `len` cells of `seq`.
    pub(crate) fn truncate(&mut self, seq: SeqId, len: usize) {
        let Some(list) = self.sequences.get_mut(&seq) else { return };
        let dropped = list.split_off(len.min(list.len()));
        if list.is_empty() {
            self.sequences.remove(&seq);
        }
        for c in dropped {
            self.release(c);
        }
    }

    pub(crate) fn remove(&mut self, seq: SeqId) {
        self.truncate(seq, 0);
    }

    /// Drops `count` cells of `seq` after the first `keep` and moves the rest to positions lower by as much
    /// as the gap leaves. Cells that another sequence holds are copied. Returns the keys to turn and by how
    /// many positions (a negative number); the caller has the backend do it.
    pub(crate) fn shift(&mut self, seq: SeqId, keep: usize, count: usize) -> Result<(Vec<CellMove>, i64)> {
        let list = self.cells(seq).to_vec();
        if count == 0 || keep.checked_add(count).is_none_or(|end| end > list.len()) {
            return Err(Error::Batch(format!(
                "cannot shift sequence {seq} by {count} after the first {keep}: it has {} cells",
                list.len()
            )));
        }
        let tail = &list[keep + count..];
        let first_dropped = self.cells[list[keep] as usize].pos;
        let delta = match tail.first() {
            Some(&c) => i64::from(first_dropped) - i64::from(self.cells[c as usize].pos),
            None => 0,
        };
        let freed = list[keep..keep + count].iter().filter(|&&c| self.cells[c as usize].holders == 1).count();
        let copies = tail.iter().filter(|&&c| self.cells[c as usize].holders > 1).count();
        if copies > self.free.len() + freed {
            return Err(self.full(copies));
        }
        for &c in &list[keep..keep + count] {
            self.release(c);
        }
        let mut kept = list[..keep].to_vec();
        let mut moves = Vec::with_capacity(tail.len());
        for &src in tail {
            let cell = self.cells[src as usize].clone();
            let pos = (i64::from(cell.pos) + delta) as u32;
            let dst = if cell.holders == 1 {
                src
            } else {
                let Reverse(id) = self.free.pop().expect("counted above");
                self.cells[src as usize].holders -= 1;
                id
            };
            self.cells[dst as usize] = Cell { holders: 1, pos, written: cell.written };
            moves.push(CellMove { src, dst });
            kept.push(dst);
        }
        self.sequences.insert(seq, kept);
        Ok((moves, delta))
    }

    /// True if `slot` of the cell holds the key and the value of that visit.
    pub(crate) fn holds(&self, cell: u32, slot: usize, visit: Visit) -> bool {
        match &self.cells[cell as usize].written {
            None => slot < self.n_layer,
            Some(written) => written.get(slot) == Some(&Some(visit)),
        }
    }

    /// How many leading cells of `seq` hold a key in every layer's own slot and in no other.
    pub(crate) fn plain_prefix(&self, seq: SeqId) -> usize {
        let list = self.cells(seq);
        list.iter().position(|&c| self.cells[c as usize].written.is_some()).unwrap_or(list.len())
    }

    fn release(&mut self, id: u32) {
        let cell = &mut self.cells[id as usize];
        cell.holders -= 1;
        if cell.holders == 0 {
            cell.written = None;
            self.free.push(Reverse(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_the_visit_that_wrote_it_and_no_other() {
        let mut kv = KvCache::new(4, 2);
        let second_run_of = |layer| Visit { layer, repetition: 1 };
        let repeats_0 = Arc::new([Some(Visit::first(0)), Some(Visit::first(1)), Some(second_run_of(0))]);
        let plain = kv.append(0, 0, None).unwrap();
        let masked = kv.append(0, 1, Some(repeats_0)).unwrap();
        assert!(kv.holds(plain, 1, Visit::first(1)) && !kv.holds(plain, 2, second_run_of(0)));
        assert!(kv.holds(masked, 1, Visit::first(1)) && kv.holds(masked, 2, second_run_of(0)));
        assert!(!kv.holds(masked, 2, second_run_of(1)), "layer 1's repetition must not see layer 0's key");
        assert_eq!(kv.plain_prefix(0), 1);
    }

    #[test]
    fn freed_cells_forget_what_was_written() {
        let mut kv = KvCache::new(1, 1);
        let cell = kv.append(0, 0, Some(Arc::new([None]))).unwrap();
        assert!(!kv.holds(cell, 0, Visit::first(0)));
        kv.remove(0);
        assert_eq!(kv.append(1, 0, None).unwrap(), cell);
        assert!(kv.holds(cell, 0, Visit::first(0)));
    }
}
