//! Which cells of the K/V cache belong to which sequence. Pure bookkeeping: the numbers themselves lie in the
//! backend, at the cell ids given out here.
//!
//! A sequence is a list of cell ids in position order, and a cell counts the lists it stands in. So a fork
//! shares every cell, a truncation gives back what nobody else holds, and neither moves a key or a value.
//!
//! Where layers see only so far back, their slots have fewer places than there are cells, and a cell loses its place there
//! when no sequence can reach it any more. A sequence always has all that its next row sees, also after it was cut by up to
//! [`TAKEN_BACK`] positions; going back further is refused where something is lost.

mod free;
mod layout;
mod states;
mod windows;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Error, Result,
    batch::{Row, SeqId},
    plan::Visit,
};
use free::FreeCells;
pub use layout::BLOCK;
use layout::MOST_DRAFTED;
pub use layout::{CellClass, KvLayout, KvRoom, SlotShape, StateBytes, TAKEN_BACK};
pub use states::ReplayStep;
use states::States;
pub use states::{MOST_REPLAYED, Replay, StateRun, StateStep};
use windows::WindowCells;

/// What a pass under a mask writes to each slot, if anything.
pub type WrittenSlots = Arc<[Option<Visit>]>;

#[derive(Clone, Debug, Default)]
struct Cell {
    holders: u32,
    pos: u32,
    /// `None`: every layer's own slot was written, no repetition's.
    written: Option<WrittenSlots>,
    /// The slot of what predicts one token more was written.
    mtp: bool,
}

/// Which cells of the cache belong to which sequence.
#[derive(Debug)]
pub struct KvCache {
    cells: Vec<Cell>,
    free: FreeCells,
    sequences: BTreeMap<SeqId, Vec<u32>>,
    n_layer: usize,
    /// Of the layout's classes after the first, for which a cell is its own place.
    windows: Vec<WindowCells>,
    /// By slot.
    class_of: Vec<usize>,
    mtp_slot: Option<usize>,
    keys_turn: bool,
    states: States,
}

/// A key to be turned from `src` into `dst` (often the same cell), its value copied along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellMove {
    pub src: u32,
    pub dst: u32,
}

impl KvCache {
    pub fn new(layout: &KvLayout, n_layer: usize) -> Self {
        let n_cells = layout.n_cells();
        KvCache {
            cells: vec![Cell::default(); n_cells],
            free: FreeCells::all(n_cells),
            sequences: BTreeMap::new(),
            n_layer,
            windows: layout.classes.iter().filter_map(|class| WindowCells::new(class, n_cells)).collect(),
            class_of: layout.slots.iter().map(|slot| slot.class).collect(),
            mtp_slot: layout.mtp,
            keys_turn: layout.keys_turn,
            states: States::new(layout.recurrent, layout.states),
        }
    }

    /// What the bookkeeping takes: each cell, its place among the free ones, in a sequence and in the windows.
    pub fn bytes_for(layout: &KvLayout) -> u64 {
        let n_cells = layout.n_cells();
        let cell = size_of::<Cell>() + size_of::<u32>();
        let windows = layout.classes[1..].iter().map(|class| WindowCells::bytes_for(class, n_cells));
        (cell * n_cells + FreeCells::bytes_for(n_cells)) as u64 + windows.sum::<u64>()
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

    /// How many rows could be placed now.
    pub fn room(&self) -> usize {
        let windows = self.windows.iter().map(|of| of.room(self.lists(), &self.cells));
        windows.fold(self.free.len(), usize::min)
    }

    /// How many tokens may be drafted: verification needs a cell for the last token of the text too, and what is rejected
    /// must be possible to take back.
    pub fn room_to_draft(&self) -> usize {
        let most = if self.windows.is_empty() { usize::MAX } else { MOST_DRAFTED };
        self.room().saturating_sub(1).min(most)
    }

    /// Those that hold something.
    pub fn sequences(&self) -> impl Iterator<Item = SeqId> + use<> {
        self.sequences.keys().copied().collect::<Vec<_>>().into_iter()
    }

    fn lists(&self) -> impl Iterator<Item = &[u32]> {
        self.sequences.values().map(Vec::as_slice)
    }

    /// Whether rows come in the order of positions that are not taken.
    pub fn check_positions(&self, rows: &[Row]) -> Result<()> {
        for (i, &Row { pos, seq, .. }) in rows.iter().enumerate() {
            let before = rows[..i].iter().rev().find(|row| row.seq == seq);
            let next = before.map_or_else(|| self.next_pos(seq), |row| row.pos + 1);
            if pos < next {
                return Err(Error::Batch(format!(
                    "position {pos} of sequence {seq} is taken (the next free one is {next}): truncate the sequence first"
                )));
            }
        }
        Ok(())
    }

    /// A cell for each row, whose positions are free. `written` says which slots the pass will write there. Without
    /// room for all of them nothing changes.
    pub fn append(&mut self, rows: &[Row], written: Option<&WrittenSlots>) -> Result<Vec<u32>> {
        if rows.len() > self.free.len() {
            return Err(self.full(rows.len()));
        }
        self.make_room(|_, _| rows.len())?;
        let place = |row: &Row| {
            let list = self.sequences.entry(row.seq).or_default();
            let id = self.free.take(list.last().copied()).expect("counted above");
            list.push(id);
            self.cells[id as usize] =
                Cell { holders: 1, pos: row.pos, written: written.cloned(), mtp: false };
            self.windows.iter_mut().for_each(|of| of.give(id));
            id
        };
        Ok(rows.iter().map(place).collect())
    }

    /// Lets windows forget what is out of reach where they lack free places.
    fn make_room(&mut self, places: impl Fn(&WindowCells, &[Cell]) -> usize) -> Result<()> {
        let Self { cells, sequences, windows, .. } = self;
        for of in windows {
            if of.free() < places(of, cells) {
                of.forget(sequences.values().map(Vec::as_slice), cells);
            }
            let places = places(of, cells);
            if of.free() < places {
                return Err(Error::Batch(format!(
                    "the context is full: {places} more cells are needed in layers with a window of {}, {} of {} are free: remove a sequence, or make room for more with `sequences` or `swa_full`",
                    of.window(),
                    of.free(),
                    of.capacity()
                )));
            }
        }
        Ok(())
    }

    /// Whether `seq` can be cut to its first `len` cells and go on from there: nothing that its next row sees is lost.
    pub fn can_truncate(&self, seq: SeqId, len: usize) -> bool {
        self.restorable(seq, len) == len.min(self.len(seq))
    }

    /// The most cells of `seq`, `len` at most, that it can be cut to and go on from.
    pub fn restorable(&self, seq: SeqId, len: usize) -> usize {
        let len = self.states.restorable(seq, len.min(self.len(seq)));
        if self.has_all(seq, len) { len } else { 0 }
    }

    fn has_all(&self, seq: SeqId, len: usize) -> bool {
        let list = self.cells(seq);
        let list = &list[..len.min(list.len())];
        list.last().is_none_or(|&last| self.is_whole(list, u64::from(self.pos(last)) + 1))
    }

    /// Whether windows still have all that the row of `seq` at `pos` sees.
    pub fn sees_all(&self, seq: SeqId, pos: u32) -> bool {
        let list = self.cells(seq);
        let before = list.partition_point(|&c| self.pos(c) <= pos);
        self.is_whole(&list[..before], u64::from(pos))
    }

    fn is_whole(&self, list: &[u32], pos: u64) -> bool {
        self.windows.iter().all(|of| of.is_whole(list, pos, &self.cells))
    }

    /// Where a cell lies in the slots of a class; anywhere, if it is lost there.
    pub fn place(&self, class: usize, cell: u32) -> u32 {
        match class.checked_sub(1) {
            None => cell,
            Some(window) => self.windows[window].place(cell).unwrap_or(0),
        }
    }

    /// Whether a cell is in the slots of a class.
    pub fn has_place(&self, class: usize, cell: u32) -> bool {
        class.checked_sub(1).is_none_or(|window| self.windows[window].place(cell).is_some())
    }

    /// Has a cell forgotten in the slots of a class with a window.
    pub fn forget_place(&mut self, class: usize, cell: u32) {
        if let Some(window) = class.checked_sub(1) {
            self.windows[window].release(cell);
        }
    }

    /// The class of a slot.
    pub fn class_of(&self, slot: usize) -> usize {
        self.class_of[slot]
    }

    /// The number of classes of slots that have places of their own.
    pub fn classes(&self) -> usize {
        1 + self.windows.len()
    }

    /// Where in its text a cell's token stands.
    pub fn pos(&self, cell: u32) -> u32 {
        self.cells[cell as usize].pos
    }

    /// The cell of `seq` at a position.
    pub fn cell_at(&self, seq: SeqId, pos: u32) -> Option<u32> {
        let list = self.cells(seq);
        list.binary_search_by_key(&pos, |&c| self.cells[c as usize].pos).ok().map(|i| list[i])
    }

    /// A pass of what predicts one token more writes to a cell.
    pub fn write_mtp(&mut self, cell: u32) {
        self.cells[cell as usize].mtp = true;
    }

    /// A pass writes to a cell that is there already, and leaves these slots in it.
    pub fn rewrite(&mut self, cell: u32, written: Option<WrittenSlots>) {
        self.cells[cell as usize].written = written;
    }

    /// The error for `wanted` more cells than there are.
    pub fn full(&self, wanted: usize) -> Error {
        Error::Batch(format!(
            "the context is full: {wanted} more cells are needed, {} of {} are free: a larger `n_ctx`, or truncate a sequence",
            self.free.len(),
            self.cells.len()
        ))
    }

    /// Makes `dst` the same as `src`, sharing its cells. What `dst` held before is let go.
    pub fn fork(&mut self, src: SeqId, dst: SeqId) {
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
        self.states.fork(src, dst);
    }

    /// Keeps the first `len` cells of `seq`; says which states have to be made again.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Option<Replay> {
        let list = self.sequences.get_mut(&seq)?;
        let dropped = list.split_off(len.min(list.len()));
        if list.is_empty() {
            self.sequences.remove(&seq);
        }
        for c in dropped {
            self.release(c);
        }
        self.states.truncate(seq, len)
    }

    /// A batch of these rows begins.
    pub fn begin_states(&mut self, rows: &[Row]) {
        self.states.begin(rows);
    }

    /// What a pass over some of its rows does to states. `runs`: the recurrent layers that it goes through.
    pub fn advance_states(&mut self, rows: &[Row], runs: &[bool]) -> Result<Vec<StateRun>> {
        self.states.advance(rows, runs)
    }

    /// The batch has been evaluated.
    pub fn end_states(&mut self, rows: &[Row]) {
        self.states.end(rows);
    }

    pub fn remove(&mut self, seq: SeqId) {
        // An empty sequence has no states.
        _ = self.truncate(seq, 0);
    }

    /// Where the states after all tokens of a sequence lie, by recurrent layer: none of an empty one, and `None` where some
    /// layer has no such state.
    pub fn states_of(&self, seq: SeqId) -> Option<Vec<u32>> {
        match self.states.are_none() || self.is_empty(seq) {
            true => Some(Vec::new()),
            false => self.states.last_of(seq, self.len(seq)),
        }
    }

    /// Places for the states of a sequence whose tokens have cells already.
    pub fn put_states(&mut self, seq: SeqId) -> Result<Vec<u32>> {
        self.states.put(seq, self.len(seq))
    }

    /// Whether recurrent layers have room for the next round of so many texts, of which each may be drafted.
    pub fn has_states_for(&self, texts: usize) -> bool {
        self.states.to_give() >= 2 * texts
    }

    /// Whether a part of a text can be dropped: the state of a recurrent layer is one of the whole, and some keys cannot be
    /// turned to another position.
    pub fn can_shift(&self) -> bool {
        self.states.are_none() && self.keys_turn
    }

    /// Drops `count` cells of `seq` after the first `keep` and moves the rest to positions lower by as much
    /// as the gap leaves. Cells that another sequence holds are copied. Returns, by class, the keys to turn, and by how
    /// many positions (a negative number); the caller has the backend do it.
    pub fn shift(&mut self, seq: SeqId, keep: usize, count: usize) -> Result<(Vec<Vec<CellMove>>, i64)> {
        if !self.can_shift() {
            let why = match self.keys_turn {
                true => "the states of recurrent layers cannot forget tokens",
                false => {
                    "this model's keys are normed behind their rotation, and cannot be turned to another position"
                }
            };
            return Err(Error::Batch(format!(
                "cannot shift sequence {seq}: {why}; evaluate what is to stay from its start, or take a larger `n_ctx`"
            )));
        }
        let list = self.cells(seq).to_vec();
        if count == 0 || keep.checked_add(count).is_none_or(|end| end > list.len()) {
            return Err(Error::Batch(format!(
                "cannot shift sequence {seq} by {count} after the first {keep}: it has {} cells",
                list.len()
            )));
        }
        let tail = &list[keep + count..];
        let first_dropped = self.pos(list[keep]);
        let delta = match tail.first() {
            Some(&c) => i64::from(first_dropped) - i64::from(self.pos(c)),
            None => 0,
        };
        // What further rows see of the tail is there, as it is now; beyond that they see the first cells.
        let last = tail.last().or(list[..keep].last());
        let next = last.map_or(0, |&c| u64::from(self.pos(c)) + 1).saturating_add_signed(delta);
        if !self.is_whole(&list[..keep], next.saturating_sub(TAKEN_BACK as u64)) {
            return Err(self.lost(format!("cannot shift sequence {seq} by {count} after the first {keep}")));
        }
        let freed = list[keep..keep + count].iter().filter(|&&c| self.cells[c as usize].holders == 1).count();
        let copies = tail.iter().filter(|&&c| self.cells[c as usize].holders > 1).count();
        if copies > self.free.len() + freed {
            return Err(self.full(copies));
        }
        let copied = |of: &WindowCells, cells: &[Cell]| {
            tail.iter().filter(|&&c| cells[c as usize].holders > 1 && of.place(c).is_some()).count()
        };
        self.make_room(copied)?;
        for &c in &list[keep..keep + count] {
            self.release(c);
        }
        let mut kept = list[..keep].to_vec();
        let mut moves = vec![Vec::with_capacity(tail.len()); self.classes()];
        for &src in tail {
            let cell = self.cells[src as usize].clone();
            let pos = (i64::from(cell.pos) + delta) as u32;
            let dst = if cell.holders == 1 {
                src
            } else {
                let id = self.free.take(kept.last().copied()).expect("counted above");
                self.cells[src as usize].holders -= 1;
                id
            };
            self.cells[dst as usize] = Cell { holders: 1, pos, ..cell };
            moves[0].push(CellMove { src, dst });
            for (of, moves) in self.windows.iter_mut().zip(&mut moves[1..]) {
                let Some(from) = of.place(src) else { continue };
                if src != dst {
                    of.give(dst);
                }
                moves.push(CellMove { src: from, dst: of.place(dst).expect("it has one") });
            }
            kept.push(dst);
        }
        self.sequences.insert(seq, kept);
        Ok((moves, delta))
    }

    /// The error for what would need cells that windows have forgotten.
    pub fn lost(&self, what: String) -> Error {
        let windows: Vec<_> = self.windows.iter().map(|of| of.window().to_string()).collect();
        if !self.states.are_none() {
            return Error::Batch(format!(
                "{what}: recurrent layers have no state there any more; evaluate the text from its start"
            ));
        }
        Error::Batch(format!(
            "{what}: layers with a window of {} have forgotten what it needs; evaluate the text from its start, or keep all cells with `swa_full`",
            windows.join(" or ")
        ))
    }

    /// True if `slot` of the cell holds the key and the value of that visit.
    pub fn holds(&self, cell: u32, slot: usize, visit: Visit) -> bool {
        if Some(slot) == self.mtp_slot {
            return self.cells[cell as usize].mtp;
        }
        match &self.cells[cell as usize].written {
            None => slot < self.n_layer,
            Some(written) => written.get(slot) == Some(&Some(visit)),
        }
    }

    /// How many leading cells of `seq` hold a key in every layer's own slot and in no other.
    pub fn plain_prefix(&self, seq: SeqId) -> usize {
        let list = self.cells(seq);
        list.iter().position(|&c| self.cells[c as usize].written.is_some()).unwrap_or(list.len())
    }

    fn release(&mut self, id: u32) {
        let cell = &mut self.cells[id as usize];
        cell.holders -= 1;
        if cell.holders == 0 {
            cell.written = None;
            self.free.put(id);
            self.windows.iter_mut().for_each(|of| of.release(id));
        }
    }
}

#[cfg(test)]
mod tests;
