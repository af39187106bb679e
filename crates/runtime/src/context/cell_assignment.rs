//! The rows of a pass as a backend sees them.

use std::borrow::Cow;

use crate::{
    backend::{Rows, SlotView, View},
    batch::Row,
    kv::{KvCache, StateRun},
    lora::Scales,
    shortlist::Shortlist,
};

/// Rows with their cells.
pub(super) struct CellAssignment<'a> {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    /// By class of slots.
    cells: Vec<Cow<'a, [u32]>>,
    pub outputs: Vec<usize>,
    states: Vec<StateRun>,
    scales: Vec<Option<Scales>>,
}

impl<'a> CellAssignment<'a> {
    pub fn new(
        kv: &KvCache,
        rows: &[Row],
        cells: &'a [u32],
        states: Vec<StateRun>,
        scales: Vec<Option<Scales>>,
    ) -> Self {
        let in_windows = |class| cells.iter().map(|&cell| kv.place(class, cell)).collect();
        CellAssignment {
            tokens: rows.iter().map(|r| r.token).collect(),
            positions: rows.iter().map(|r| r.pos).collect(),
            cells: std::iter::once(Cow::Borrowed(cells)).chain((1..kv.classes()).map(in_windows)).collect(),
            outputs: (0..rows.len()).filter(|&i| rows[i].logits).collect(),
            states,
            scales,
        }
    }

    pub fn rows<'s>(
        &'s self,
        views: &'s [View<'s>],
        view_of_slot: &'s [SlotView],
        shortlist: Option<&'s Shortlist>,
    ) -> Rows<'s> {
        let CellAssignment { tokens, positions, cells, outputs, states, scales } = self;
        Rows { tokens, positions, cells, outputs, views, view_of_slot, states, shortlist, scales }
    }
}
