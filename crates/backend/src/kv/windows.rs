//! The cells of slots whose layers see only so far back: fewer than the context has, and given anew to whoever comes when
//! no sequence can reach what lies there any more.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    Cell,
    layout::{CellClass, TAKEN_BACK},
};

/// Of a cell that has no place, or a place that has no cell.
const NONE: u32 = u32::MAX;

/// Where the cells of the context lie in the slots of one class, those that do.
#[derive(Debug)]
pub struct WindowCells {
    window: u32,
    /// By cell.
    place_of: Vec<u32>,
    /// By place.
    cell_at: Vec<u32>,
    /// Lowest first, as cells are given out.
    free: BinaryHeap<Reverse<u32>>,
}

impl WindowCells {
    /// `None` for the class that keeps all cells.
    pub fn new(class: &CellClass, n_cells: usize) -> Option<Self> {
        Some(WindowCells {
            window: class.window?,
            place_of: vec![NONE; n_cells],
            cell_at: vec![NONE; class.n_cells],
            free: (0..class.n_cells as u32).map(Reverse).collect(),
        })
    }

    /// What the bookkeeping takes.
    pub fn bytes_for(class: &CellClass, n_cells: usize) -> u64 {
        let of_place = size_of::<u32>() + size_of::<Reverse<u32>>();
        (n_cells * size_of::<u32>() + class.n_cells * of_place) as u64
    }

    pub fn window(&self) -> u32 {
        self.window
    }

    pub fn capacity(&self) -> usize {
        self.cell_at.len()
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Where a cell lies, if it still does.
    pub fn place(&self, cell: u32) -> Option<u32> {
        Some(self.place_of[cell as usize]).filter(|&place| place != NONE)
    }

    /// # Panics
    /// If no place is free.
    pub fn give(&mut self, cell: u32) {
        let Reverse(place) = self.free.pop().expect("room was made");
        self.place_of[cell as usize] = place;
        self.cell_at[place as usize] = cell;
    }

    /// The cell is nobody's any more.
    pub fn release(&mut self, cell: u32) {
        let place = std::mem::replace(&mut self.place_of[cell as usize], NONE);
        if place != NONE {
            self.cell_at[place as usize] = NONE;
            self.free.push(Reverse(place));
        }
    }

    /// By place: whether a sequence, as it is or up to [`TAKEN_BACK`] positions shorter, can reach what lies there.
    fn reached<'a>(&self, sequences: impl Iterator<Item = &'a [u32]>, cells: &[Cell]) -> Vec<bool> {
        let mut reached = vec![false; self.capacity()];
        for list in sequences {
            let end = list.last().map_or(0, |&last| u64::from(cells[last as usize].pos) + 1);
            let within = |cell: &&u32| {
                u64::from(cells[**cell as usize].pos) + u64::from(self.window) + TAKEN_BACK as u64 > end
            };
            for place in list.iter().rev().take_while(within).filter_map(|&cell| self.place(cell)) {
                reached[place as usize] = true;
            }
        }
        reached
    }

    /// How many more cells could be given places.
    pub fn room<'a>(&self, sequences: impl Iterator<Item = &'a [u32]>, cells: &[Cell]) -> usize {
        self.reached(sequences, cells).into_iter().filter(|&reached| !reached).count()
    }

    /// Frees the places of all cells that no sequence can reach.
    pub fn forget<'a>(&mut self, sequences: impl Iterator<Item = &'a [u32]>, cells: &[Cell]) {
        let reached = self.reached(sequences, cells);
        for place in (0..reached.len()).filter(|&place| !reached[place]) {
            let cell = self.cell_at[place];
            if cell != NONE {
                self.release(cell);
            }
        }
    }

    /// Whether all cells of a list are there that the row at `pos` after them sees.
    pub fn is_whole(&self, list: &[u32], pos: u64, cells: &[Cell]) -> bool {
        let seen = |cell: &&u32| u64::from(cells[**cell as usize].pos) + u64::from(self.window) > pos;
        list.iter().rev().take_while(seen).all(|&cell| self.place(cell).is_some())
    }
}
