//! What a device must do to run a plan. Only this trait is seen from above; device types stay below.

use std::{borrow::Cow, fmt, ops::Add, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Result,
    kv::{CellMove, Replay, StateRun},
    lora::Scales,
    plan::{BufSet, Step, WeightId},
    scores::Top,
    shortlist::Shortlist,
    watch::Watch,
};

/// The rows of one pass, already placed in the cache.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub tokens: &'a [u32],
    pub positions: &'a [u32],
    /// Where each row's key and value go, by class of slots; in the first class, which keeps all cells, to the cell itself.
    pub cells: &'a [Cow<'a, [u32]>],
    /// Which rows' logits are wanted, ascending.
    pub outputs: &'a [usize],
    /// What attention walks.
    pub views: &'a [View<'a>],
    /// Which of them for each slot.
    pub view_of_slot: &'a [SlotView],
    /// What becomes of the states of recurrent layers, by sequence.
    pub states: &'a [StateRun],
    /// All that is wanted of the vocabulary; the logits of other tokens are left as they are.
    pub shortlist: Option<&'a Shortlist>,
    /// What each row has of adapters; empty where none has any.
    pub scales: &'a [Option<Scales>],
}

/// What attention with such a window walks in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView {
    pub slot: usize,
    pub window: Option<u32>,
    pub view: usize,
}

impl Rows<'_> {
    /// # Panics
    /// If no step of the pass attends so.
    pub fn view_of_slot(&self, slot: usize, window: Option<u32>) -> usize {
        let found = self.view_of_slot.iter().find(|of| of.slot == slot && of.window == window);
        found.expect("a view for each slot that is attended to").view
    }
}

pub use spec_run_kernels::attention::CHUNK;

/// The cells that each row may attend to: a range of its sequence's list, its own cell last.
pub struct View<'a> {
    /// One list per sequence of the batch, in position order: as they lie in the slots of a class. With a window whole
    /// chunks that no row sees may be left out, and what comes before the first cell that is seen may be any.
    pub lists: Vec<Cow<'a, [u32]>>,
    /// Per row.
    pub visible: Vec<Seen>,
}

/// What a row sees: the cells of a list from `from` up to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub list: usize,
    pub from: usize,
    pub to: usize,
    /// The place of the row's own cell.
    pub own: usize,
}

impl View<'_> {
    pub fn cells(&self, row: usize) -> &[u32] {
        let Seen { list, from, to, .. } = self.visible[row];
        &self.lists[list][from..to]
    }
}

/// What crosses the borders of a segment: rows of buffers, `[rows, width]` of one after the other, as
/// [`Plan::crossing`](crate::plan::Plan::crossing) lays them out.
#[derive(Default)]
pub struct Crossing<'a> {
    /// What the segment finds.
    pub arrives: BufSet,
    pub arriving: &'a [f32],
    /// What others need behind it.
    pub leaves: BufSet,
    pub leaving: &'a mut [f32],
    /// Where the segment begins with a [`LowProduct`](crate::planes::LowProduct): sums of the low planes, `[rows, rows of the matrices]`.
    pub lows: &'a [f32],
}

/// Rows of the stream that are taken out as they come to some steps of a pass.
pub struct Taps<'a> {
    /// The steps, ascending; what stands behind the last layer comes to the head.
    pub cuts: &'a [usize],
    /// `[rows, cuts, dim]`
    pub rows: &'a mut [f32],
}

impl Taps<'_> {
    /// Of a pass out of which none are taken.
    pub fn none() -> Self {
        Taps { cuts: &[], rows: &mut [] }
    }
}

/// Where a pass puts what comes out of the head.
pub enum Output<'a> {
    /// `[outputs, n_vocab]`
    Logits(&'a mut [f32]),
    /// The `k` best of each output, or all tokens if there are fewer; only if [`Abilities::most_top`] allows so many.
    Top { k: usize, rows: &'a mut [Top] },
}

impl Output<'_> {
    /// The same place.
    pub fn again(&mut self) -> Output<'_> {
        match self {
            Output::Logits(out) => Output::Logits(out),
            Output::Top { k, rows } => Output::Top { k: *k, rows },
        }
    }

    /// How many of each output's best tokens are wanted; `None`: its logits.
    pub fn best(&self) -> Option<usize> {
        match self {
            Output::Logits(_) => None,
            Output::Top { k, .. } => Some(*k),
        }
    }

    /// Of a pass without outputs.
    pub fn none() -> Self {
        Output::Logits(&mut [])
    }
}

/// A pass of a chain.
pub struct ChainPass<'a> {
    pub steps: Vec<Step<'a>>,
    pub rows: Rows<'a>,
    /// Rows whose token is the best of an output of an earlier pass, these counted through the chain.
    pub picked: &'a [(usize, usize)],
}

/// How a chain's time was spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chained {
    /// The share of its last pass.
    pub last: f64,
}

/// What went between the program and a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Kernels started.
    pub dispatches: u64,
    /// Command buffers submitted.
    pub submissions: u64,
    /// Results read back.
    pub readbacks: u64,
    /// Bytes of matrices that products on the device read.
    pub weights: u64,
    /// Bytes of low planes in RAM of matrices whose high planes are on the device, that products read.
    pub low_planes: u64,
    /// Bytes of rows, and of sums of low planes, on their way between the processor and the device.
    pub crossed: u64,
}

impl Add for Traffic {
    type Output = Traffic;

    fn add(self, more: Traffic) -> Traffic {
        Traffic {
            dispatches: self.dispatches + more.dispatches,
            submissions: self.submissions + more.submissions,
            readbacks: self.readbacks + more.readbacks,
            weights: self.weights + more.weights,
            low_planes: self.low_planes + more.low_planes,
            crossed: self.crossed + more.crossed,
        }
    }
}

impl Traffic {
    /// What came on top of `before`.
    pub fn since(self, before: Traffic) -> Traffic {
        Traffic {
            dispatches: self.dispatches - before.dispatches,
            submissions: self.submissions - before.submissions,
            readbacks: self.readbacks - before.readbacks,
            weights: self.weights - before.weights,
            low_planes: self.low_planes - before.low_planes,
            crossed: self.crossed - before.crossed,
        }
    }
}

/// How fast a device is, measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speeds {
    /// Bytes of its memory that it reads in a second.
    pub read: f64,
    /// Seconds from a submission of next to nothing to its result.
    pub round_trip: f64,
}

/// Seconds that passes have taken so far, by where the weights were that they read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// In the GPU's memory.
    pub vram: f64,
    /// In RAM.
    pub ram: f64,
    /// In the file.
    pub file: f64,
}

impl Spent {
    /// What came on top of `before`.
    pub fn since(self, before: Spent) -> Spent {
        Spent { vram: self.vram - before.vram, ram: self.ram - before.ram, file: self.file - before.file }
    }

    /// Adds more of it.
    pub fn add(&mut self, more: Spent) {
        self.vram += more.vram;
        self.ram += more.ram;
        self.file += more.file;
    }

    /// All seconds.
    pub fn total(self) -> f64 {
        self.vram + self.ram + self.file
    }

    /// Shares of the total: VRAM, RAM, file.
    pub fn shares(self) -> [f64; 3] {
        [self.vram, self.ram, self.file].map(|seconds| seconds / self.total())
    }
}

/// `12 % RAM, 88 % file`
impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = std::iter::zip(["VRAM", "RAM", "file"], self.shares()).filter(|(_, share)| *share > 0.0);
        let places: Vec<_> = places.map(|(place, share)| format!("{:.0} % {place}", 100.0 * share)).collect();
        f.write_str(&places.join(", "))
    }
}

/// What threads do together, by the number of each and how many they are.
pub type SmallJob<'j> = &'j (dyn Fn(usize, usize) + Sync);

/// What a backend does by itself, and what it makes cheaper.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// How many of a row's best tokens it finds by itself; 0: it gives logits only.
    pub most_top: usize,
    /// Whether [`Rows::shortlist`] saves it work.
    pub takes_shortlists: bool,
    /// Whether hidden rows can leave a pass and enter another one for less than it takes to make them again.
    pub keeps_hidden: bool,
    /// Whether at least they can leave it behind the last layer.
    pub gives_last_rows: bool,
}

/// What a backend has counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// All that went to and from a device; `None` without one.
    pub traffic: Option<Traffic>,
    /// Where time went; all of it nowhere, where the model is in one place.
    pub spent: Spent,
    /// The share of the CPU's time in which some of its threads were left out, because others had their cores.
    pub crowded: f64,
}

/// What runs passes. What not every backend can do is in traits of its own, and `None` where it cannot.
pub trait Backend: Send {
    /// One line for the banner: device, instruction set, threads.
    fn describe(&self) -> String;

    /// The same without what may be another the next time on the same machine: sizes, and what was timed.
    fn identity(&self) -> String;

    /// Threads that share the work of a pass.
    fn threads(&self) -> usize;

    /// Runs a small job on the threads of the CPU: each is told which of how many it is.
    fn together(&mut self, job: SmallJob) {
        rayon::broadcast(|of| job(of.index(), of.num_threads()));
    }

    /// The most rows that one `run` takes.
    fn max_rows(&self) -> usize;

    fn abilities(&self) -> Abilities;

    fn account(&self) -> Account;

    /// Bytes of a weight that a pass reads, in full or by its high bits: fewer only where these lie apart.
    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64;

    /// Runs the steps for the rows.
    fn run(&mut self, steps: &[Step], rows: &Rows, output: Output) -> Result<()> {
        self.run_segment(steps, rows, Crossing::default(), output)
    }

    /// Runs a part of a pass, whose rows may come from another device and go on to another.
    fn run_segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()>;

    /// Makes states again from which a sequence goes on.
    fn replay_states(&mut self, replay: &Replay);

    /// Copies keys and values of cells, by class of slots, and turns the keys by `delta` positions.
    fn shift_keys(&mut self, moves: &[Vec<CellMove>], delta: i64) -> Result<()>;

    /// Whether weights lie as they will stay; else [`Backend::pack_more`] makes passes faster.
    fn is_packed(&self) -> bool {
        true
    }

    /// Rearranges more of the weights that were left as they are in the file, for about so long. No bit depends on it.
    fn pack_more(&mut self, _time: Duration) -> Result<()> {
        Ok(())
    }

    /// From here on `watch` is told of every product, if this backend can tell; it says whether.
    fn watch(&mut self, _watch: Arc<dyn Watch>) -> bool {
        false
    }

    /// What was measured of each kernel, where that was asked for.
    fn profile(&self) -> Option<String> {
        None
    }

    fn whole_passes(&mut self) -> Option<&mut dyn WholePasses> {
        None
    }

    fn saved(&self) -> Option<&dyn Saved> {
        None
    }

    fn saved_mut(&mut self) -> Option<&mut dyn Saved> {
        None
    }
}

/// Passes that a device runs from beginning to end without the host in between.
pub trait WholePasses {
    /// Runs a pass and takes rows out of it. `false`: it is as well run in pieces that end there; then nothing has happened.
    fn run_tapped(&mut self, steps: &[Step], rows: &Rows, taps: Taps, output: Output) -> Result<bool>;

    /// Runs passes one after the other: the `k` best of each output of each. `None` if this chain cannot be run so; then
    /// nothing has happened.
    fn run_chain(&mut self, links: &[ChainPass], k: usize, rows: &mut [Top]) -> Result<Option<Chained>>;
}

/// Keys, values and states that can be taken out as bytes and put back.
pub trait Saved {
    /// How they are stored.
    fn form(&self) -> String;

    /// Appends the keys of some cells of a slot, by their offsets there, then their values.
    fn take_kv(&self, slot: usize, offsets: &[u32], out: &mut Vec<u8>);

    /// Puts back what was taken out, and gives what is left of `rows`; `None` if these are too few.
    fn put_kv<'r>(&mut self, slot: usize, offsets: &[u32], rows: &'r [u8]) -> Option<&'r [u8]>;

    /// Appends a recurrent layer's state.
    fn take_state(&self, layer: usize, slab: u32, out: &mut Vec<u8>);

    /// Puts back what was taken out, and gives what is left of `rest`; `None` if that is too little.
    fn put_state<'r>(&mut self, layer: usize, slab: u32, rest: &'r [u8]) -> Option<&'r [u8]>;
}
