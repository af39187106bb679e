//! The configuration of a context: its room, its device, and how things are stored.

use std::{ops::RangeInclusive, path::PathBuf};

use crate::{
    backend::{
        cpu::{cores::Binding, matmul::Planes, simd::Isa},
        gpu::{GpuVariant, GpuWidths},
    },
    control::ControlVector,
    kv::{KvLayout, KvRoom},
    kv_type::KvType,
    lora::LoraFile,
    open::Device,
    placement::PlacementRequest,
    plan::Plan,
};

/// From how many rows in a pass on matrices that are in RAM are sent to the GPU, which then multiplies with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// Where that is measured to be faster, on a hardware GPU.
    #[default]
    Measured,
    /// Never.
    Never,
    /// From so many on.
    From(usize),
}

/// How a model is opened.
#[derive(Clone, Debug)]
pub struct ContextConfig {
    /// Cells in the cache, shared by all sequences.
    pub n_ctx: u32,
    /// How many texts grow at the same time. Layers with a sliding window keep room for each. Drafts and other forks that end where
    /// their text ends need no room of their own.
    pub sequences: usize,
    /// States of recurrent layers in addition to those of the texts, for forks that go on from many positions of one text.
    pub extra_states: usize,
    /// Layers with a sliding window keep all cells too. That takes more memory, and a sequence can then be cut anywhere.
    pub swa_full: bool,
    /// Rows evaluated at once; a longer batch is cut into such pieces. No result depends on it.
    pub n_ubatch: usize,
    /// Threads of the CPU backend; 0 takes the fast cores.
    pub threads: usize,
    /// Its threads for prompts; 0 takes as many as `threads`.
    pub prompt_threads: usize,
    /// How these are bound to cores.
    pub binding: Binding,
    /// How keys are stored.
    pub key_type: KvType,
    /// How values are stored.
    pub value_type: KvType,
    /// K/V slots beyond the model's layers, for masks that repeat layers.
    pub extra_slots: usize,
    /// Load the head that predicts one token more, if the model has one and all of it is on one device: see
    /// [`Context::has_mtp`](crate::Context::has_mtp).
    pub mtp: bool,
    /// Drafts compute the logits of frequent tokens only, where that is faster and the head runs on the CPU. No text changes by it.
    pub shortlists: bool,
    /// The instruction set, where one other than the machine's best is wanted.
    pub isa: Option<Isa>,
    /// How the CPU backend packs matrices at load; `None` reads them from the file as they are.
    pub planes: Option<Planes>,
    /// Where all of the model runs on the CPU, read the weights from the file at first. The first token comes sooner, and the next
    /// ones take longer until [`Context::pack_more`](crate::Context::pack_more) has rearranged the weights. Functions that generate
    /// one text call that themselves. No result depends on it.
    pub pack_later: bool,
    /// Adapters that texts may have: see [`Context::adapt`](crate::Context::adapt).
    pub loras: Vec<LoraFile>,
    /// Directions that are added to the residual stream after layers, for all texts.
    pub control_vectors: Vec<ControlVector>,
    /// After which layers; `None`: after all that a direction is given for.
    pub control_layers: Option<RangeInclusive<usize>>,
    /// Where it runs.
    pub device: Device,
    /// Which parts of the model go where, if it is divided.
    pub placement: PlacementRequest,
    /// Whether the GPU multiplies many rows with matrices that are in RAM. No result changes by that itself, but the memory that it
    /// takes may move one more layer to RAM.
    pub streaming: Streaming,
    /// Read chosen experts that are in the file before they are used; otherwise page faults read them. No result depends on it.
    pub read_chosen: bool,
    /// Measure the time of each GPU kernel, which slows them down.
    pub profile: bool,
    /// How wide the GPU's kernels are, where another width than the device's own is wanted.
    pub gpu_widths: Option<GpuWidths>,
    /// Which variant of the GPU's kernels, where there are several.
    pub gpu_variant: GpuVariant,
    /// The folder where compiled kernels of a GPU are kept between runs, and what was measured of their variants.
    pub gpu_cache: Option<PathBuf>,
}

impl Default for ContextConfig {
    fn default() -> Self {
        ContextConfig {
            n_ctx: 4096,
            sequences: 1,
            extra_states: 0,
            swa_full: false,
            n_ubatch: 512,
            threads: 0,
            prompt_threads: 0,
            binding: Binding::default(),
            key_type: KvType::F16,
            value_type: KvType::F16,
            extra_slots: 0,
            mtp: false,
            shortlists: true,
            isa: None,
            planes: Some(Planes::Cheap),
            pack_later: false,
            loras: Vec::new(),
            control_vectors: Vec::new(),
            control_layers: None,
            device: Device::Cpu,
            placement: PlacementRequest::default(),
            streaming: Streaming::default(),
            read_chosen: true,
            profile: false,
            gpu_widths: None,
            gpu_variant: GpuVariant::default(),
            gpu_cache: None,
        }
    }
}

impl ContextConfig {
    /// Which slots of a plan keep how many cells.
    pub fn kv_layout(&self, plan: &Plan) -> KvLayout {
        let n_cells = self.n_ctx as usize;
        let room = KvRoom {
            n_cells,
            n_slots: plan.own_slots() + self.extra_slots,
            max_rows: self.n_ubatch.clamp(1, n_cells),
            sequences: self.sequences,
            extra_states: self.extra_states,
            all_cells: self.swa_full,
        };
        KvLayout::new(plan, &room)
    }
}
