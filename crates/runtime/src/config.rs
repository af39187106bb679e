//! What a context asks of its backend: how much room, on which device, in which form.

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

/// From how many rows of a pass on the GPU multiplies with matrices that lie in RAM, which are sent to it for that.
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
    /// Texts that grow side by side, where layers see only so far back: what they keep for each is set aside. Drafts and
    /// other forks that end where their text ends need none of their own.
    pub sequences: usize,
    /// States of recurrent layers beside those of these texts, for forks that go on from many positions of one.
    pub extra_states: usize,
    /// Layers that see only so far back keep all cells too. It takes more memory; then a sequence can be cut anywhere.
    pub swa_full: bool,
    /// Rows evaluated at once; a longer batch is cut into such pieces. No result depends on it.
    pub n_ubatch: usize,
    /// Threads of the CPU backend; 0 takes the fast cores.
    pub threads: usize,
    /// Its threads for prompts; 0 takes as many.
    pub prompt_threads: usize,
    /// How these are bound to cores.
    pub binding: Binding,
    /// How keys are stored.
    pub key_type: KvType,
    /// How values are stored.
    pub value_type: KvType,
    /// K/V slots beyond the model's layers, for masks that repeat layers.
    pub extra_slots: usize,
    /// Load the head that predicts one token more, if the model has one and is in one place with it: see
    /// [`Context::has_mtp`](crate::Context::has_mtp).
    pub mtp: bool,
    /// Drafts compute the head for frequent tokens only, where that pays and a CPU computes it. No text depends on it.
    pub shortlists: bool,
    /// The instruction set, where one other than the machine's best is wanted.
    pub isa: Option<Isa>,
    /// How the CPU backend packs matrices at load; `None` reads them from the file as they are.
    pub planes: Option<Planes>,
    /// Where all of the model runs on the CPU, read it from the file at first: the first token comes sooner, and the next
    /// ones take longer until [`Context::pack_more`](crate::Context::pack_more) has rearranged the weights. Who generates one
    /// text need not call that. No result depends on it.
    pub pack_later: bool,
    /// Adapters that texts may have: see [`Context::adapt`](crate::Context::adapt).
    pub loras: Vec<LoraFile>,
    /// Directions that are added to the stream behind layers, for all texts.
    pub control_vectors: Vec<ControlVector>,
    /// Behind which layers; `None` is behind all for which there are some.
    pub control_layers: Option<RangeInclusive<usize>>,
    /// Where it runs.
    pub device: Device,
    /// What goes where, if the model is not to be all in one place.
    pub placement: PlacementRequest,
    /// Whether many rows at once are multiplied on the GPU with matrices that lie in RAM. No bit depends on it, but the
    /// memory that it takes of the GPU may send a layer more to RAM.
    pub streaming: Streaming,
    /// Of experts that stay in the file, read those that a router has chosen ahead of their use; without it they come by
    /// page faults. No result depends on it.
    pub read_chosen: bool,
    /// Time the kernels of a GPU; slower.
    pub profile: bool,
    /// How wide the GPU's kernels are, where another width than the device's own is wanted.
    pub gpu_widths: Option<GpuWidths>,
    /// Which of the GPU's kernels, where there is a choice.
    pub gpu_variant: GpuVariant,
    /// Where a GPU's compiled kernels, and how its variants did, are kept from run to run.
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
