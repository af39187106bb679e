//! What a device must do to run a plan. Only this trait is seen from above; device types stay below.

pub mod cpu;
pub mod gpu;
mod hybrid;
mod open;

use std::borrow::Cow;

pub use open::{Device, Opened, open, plan};

use crate::{
    Result,
    kv::CellMove,
    plan::{Op, Plan, Step, WeightId},
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

/// Hidden rows at the borders of a segment, `[rows, dim]`: the residual stream before its first step, where that
/// does not embed, and after its last.
#[derive(Default)]
pub struct Crossing<'a> {
    pub hidden_in: Option<&'a [f32]>,
    pub hidden_out: Option<&'a mut [f32]>,
}

/// Which sublayers, and which ends of the model, a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub embed: bool,
    /// By layer.
    pub attn: Vec<bool>,
    pub mlp: Vec<bool>,
    pub head: bool,
}

impl Held {
    pub fn all(n_layer: usize) -> Self {
        Held { embed: true, attn: vec![true; n_layer], mlp: vec![true; n_layer], head: true }
    }

    /// The operations of each part that is held, in the model's order.
    pub fn ops<'a>(&self, plan: &'a Plan) -> Vec<&'a [Op]> {
        let ends = |held: bool, op: &'a Op| held.then_some(std::slice::from_ref(op));
        let layers = plan.layers.iter().enumerate().flat_map(|(l, layer)| {
            let attn = self.attn[l].then_some(layer.attn.as_slice());
            attn.into_iter().chain(self.mlp[l].then_some(layer.mlp.as_slice()))
        });
        ends(self.embed, &plan.embed).into_iter().chain(layers).chain(ends(self.head, &plan.head)).collect()
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
    fn run(&mut self, steps: &[Step], rows: &Rows, logits: &mut [f32]) -> Result<()> {
        self.run_segment(steps, rows, Crossing::default(), logits)
    }

    /// Whether hidden rows can leave a pass and enter another one for less than it takes to make them again.
    fn keeps_hidden(&self) -> bool {
        false
    }

    /// Runs a part of a pass, whose rows may come from another device and go on to another.
    fn run_segment(
        &mut self,
        steps: &[Step],
        rows: &Rows,
        crossing: Crossing,
        logits: &mut [f32],
    ) -> Result<()>;

    /// Bytes of a weight that a pass reads, in full or by its high bits: fewer only where these lie apart.
    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64;

    /// What was measured of each kernel, where that was asked for.
    fn profile(&self) -> Option<String> {
        None
    }

    /// Copies keys and values of cells and turns the keys by `delta` positions.
    fn shift_keys(&mut self, moves: &[CellMove], delta: i64) -> Result<()>;
}
