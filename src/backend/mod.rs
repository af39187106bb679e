//! What a device must do to run a plan. Only this trait is seen from above; device types stay below.

pub mod cpu;

use std::borrow::Cow;

use crate::{
    Result,
    kv::CellMove,
    plan::{Step, WeightId},
};

/// The rows of one pass, already placed in the cache.
pub struct Rows<'a> {
    pub tokens: &'a [u32],
    pub positions: &'a [u32],
    /// Where each row's key and value go.
    pub cells: &'a [u32],
    /// Which rows' logits are wanted, ascending.
    pub outputs: &'a [usize],
    /// What attention walks; `view_of_slot` names one for each slot.
    pub views: &'a [View<'a>],
    pub view_of_slot: &'a [usize],
}

/// The cells that each row may attend to: a prefix of its sequence's list, its own cell last.
pub struct View<'a> {
    /// One list per sequence of the batch, in position order.
    pub lists: Vec<Cow<'a, [u32]>>,
    /// Per row: which list, and how much of it.
    pub visible: Vec<(usize, usize)>,
}

impl View<'_> {
    pub fn cells(&self, row: usize) -> &[u32] {
        let (list, len) = self.visible[row];
        &self.lists[list][..len]
    }
}

pub trait Backend: Send {
    /// One line for the banner: device, instruction set, threads.
    fn describe(&self) -> String;

    /// Threads that share the work of a pass.
    fn threads(&self) -> usize;

    /// The most rows that one `run` takes.
    fn max_rows(&self) -> usize;

    /// Runs the steps for the rows; `logits` is `[outputs, n_vocab]`.
    fn run(&mut self, steps: &[Step], rows: &Rows, logits: &mut [f32]) -> Result<()>;

    /// Bytes of a weight that a pass reads, in full or by its high bits: fewer only where these lie apart.
    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64;

    /// Copies keys and values of cells and turns the keys by `delta` positions.
    fn shift_keys(&mut self, moves: &[CellMove], delta: i64) -> Result<()>;
}
