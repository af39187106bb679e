//! The GPU backend: the whole forward pass, or the sublayers that were placed here, through wgpu.
//!
//! The bits of a row's logits are the same whatever else is in its batch, as on the CPU: every sum has one order,
//! said in `shaders/common/finish.wgsl` for matrices and in `shaders/common/attention.wgsl` for attention, and
//! every regime keeps to it.

mod cache;
mod clock;
pub mod device;
pub mod formats;
mod lab;
mod ops;
mod params;
mod pick;
pub mod pipelines;
mod profile;
mod readback;
mod record;
mod round;
mod rows;
mod shift;
mod speeds;
#[cfg(test)]
mod tests;
mod trial;
mod upload;
mod usage;
pub mod variants;
mod weights;
mod work;

use std::{path::PathBuf, sync::Arc};

use cache::Shelf;
use device::Gpu;
pub use device::{AdapterChoice, Found, adapters, choose, may_have_hardware};
use formats::Format;
use ops::{Ops, Stage};
use params::Params;
use pick::Picker;
use pipelines::Pipelines;
pub use pipelines::Tuning;
use profile::Profile;
use record::Recorder;
use round::Rounds;
use rows::RowData;
pub use speeds::speeds;
pub use trial::{Chosen, TrialOutcome, choose as choose_variants, tried, try_now};
use usage::{PassKind, Usage};
pub use variants::{Variants, Wanted};
use weights::Weights;
use work::{Cache, MOST_HEAD, Needs, OUTPUTS_AT_ONCE, Stored, WorkBuffers, padded};

use crate::{
    Error, Model, Result,
    backend::{Backend, ChainPass, Chained, Crossing, Output, Rows, Traffic},
    kv::CellMove,
    kv_type::KvType,
    plan::{Buf, BufSet, Op, Step, Uniform, Unit, UnitSet, WeightId},
    scores::Top,
};

#[derive(Clone, Debug)]
pub struct GpuConfig {
    pub n_cells: usize,
    pub n_slots: usize,
    pub max_rows: usize,
    pub key_type: KvType,
    pub value_type: KvType,
    pub held: UnitSet,
    /// Bytes of device memory that may be taken.
    pub budget: u64,
    /// Time every kernel; slower.
    pub profile: bool,
    /// `None` takes what suits the device.
    pub tuning: Option<Tuning>,
    /// Which the device offers.
    pub variants: Variants,
    /// Where compiled kernels are kept.
    pub cache: Option<PathBuf>,
}

/// Bytes of the GPU's memory that an operation's weights take.
pub fn op_bytes(model: &Model, op: &Op) -> u64 {
    model
        .plan
        .operands(op)
        .weights()
        .map(|id| {
            let weight = model.weight(id);
            let format = Format::of(weight.ty()).expect("checked when the model was loaded");
            let bytes = format.bytes(weight.rows * weight.cols.div_ceil(formats::BLOCK)) as u64;
            // Vectors are numbers there; and every stream begins at a round address.
            let numbers = 4 * weight.cols.next_multiple_of(formats::BLOCK) as u64;
            if weight.rows == 1 { numbers + 256 } else { bytes + 1024 }
        })
        .sum()
}

/// Bytes that a product with a matrix reads.
pub fn bytes_read(model: &Model, id: WeightId, coarse: bool) -> u64 {
    let weight = model.weight(id);
    let format = Format::of(weight.ty()).expect("checked when the model was loaded");
    let [high, low, scales] =
        format.streams().map(|rate| rate.bytes_for(weight.rows * weight.cols.div_ceil(formats::BLOCK)));
    (high + if coarse { 0 } else { low } + scales) as u64
}

/// The types among what a GPU is to hold that it holds in another form than the file, in words.
pub fn converted(model: &Model, held: &UnitSet) -> Vec<String> {
    let ops = held.ops(&model.plan).into_iter().flatten();
    let mut types: Vec<_> =
        ops.flat_map(|op| model.plan.operands(op).weights()).map(|id| model.weight(id).ty()).collect();
    types.sort_unstable_by_key(|ty| *ty as u32);
    types.dedup();
    types.into_iter().filter_map(|ty| Some(format!("{ty} {}", formats::conversion(ty)?))).collect()
}

/// What a part of a model needs on the GPU beside its weights.
pub fn overhead_bytes(model: &Model, unit: Unit, n_cells: usize, (keys, values): (KvType, KvType)) -> u64 {
    let Ok(dims) = model.plan.uniform() else { return 0 };
    let words = |ty| dims.n_kv_head * n_cells * work::kv_words(ty, dims.head_dim);
    match unit {
        Unit::Attn(_) => 4 * (words(keys) + words(values)) as u64,
        // Where they are made, and where they can be read.
        Unit::Head => 8 * (OUTPUTS_AT_ONCE * dims.n_vocab) as u64 + Picker::bytes(dims.n_vocab),
        Unit::Embed | Unit::Mlp(_) | Unit::Experts(_) => 0,
    }
}

/// What the GPU needs whatever runs on it.
pub fn scratch_bytes(model: &Model, max_rows: usize, n_cells: usize, n_slots: usize) -> u64 {
    let Ok(dims) = &model.plan.uniform() else { return 0 };
    let row_data = 4 * (3 * max_rows + n_slots + 2 * (n_slots + 1) * max_rows + 2 * n_cells);
    let turns = 8 * max_rows * model.plan.only_rope().freqs.len();
    let params = params::SLOT_BYTES * 4 * (16 * dims.n_layer + 128 + Picker::SLOTS) as u64;
    let ahead = Rounds::bytes(max_rows, n_slots, model.plan.only_rope().freqs.len());
    // Slots that no layer owns have keys and values too, of the larger type.
    let extra = n_slots.saturating_sub(dims.n_layer) as u64
        * overhead_bytes(model, Unit::Attn(0), n_cells, (KvType::F32, KvType::F32));
    let readable = readable_bytes(dims, max_rows, false);
    WorkBuffers::bytes(dims, max_rows, n_cells)
        + (row_data + turns) as u64
        + params
        + extra
        + readable
        + ahead
}

/// Hidden rows, or logits, on their way out.
fn readable_bytes(dims: &Uniform, max_rows: usize, logits: bool) -> u64 {
    let logits = if logits { OUTPUTS_AT_ONCE * dims.n_vocab } else { 0 };
    4 * logits.max(max_rows * padded(dims.dim)) as u64
}

/// The sizes of a model that runs here.
pub fn uniform(model: &Model) -> Result<Uniform> {
    model.plan.uniform().map_err(|what| {
        let what =
            format!("the GPU's kernels do not know {what} yet, which `{}` has: `device` cpu", model.arch);
        Error::model(model.gguf.name(), what)
    })
}

pub struct GpuBackend {
    model: Arc<Model>,
    dims: Uniform,
    name: String,
    gpu: Gpu,
    pipelines: Pipelines,
    weights: Weights,
    work: WorkBuffers,
    cache: Cache,
    rows: RowData,
    ops: Ops,
    /// Where the head lives, and can say which tokens are best.
    picker: Option<Picker>,
    /// Where everything lives.
    rounds: Option<Rounds>,
    /// Logits, or hidden rows, on their way out.
    readable: wgpu::Buffer,
    profile: Option<Profile>,
    usage: Usage,
}

impl GpuBackend {
    /// `progress` is told how many bytes of weights are on the device, of how many.
    pub fn new(
        model: Arc<Model>,
        found: &Found,
        config: &GpuConfig,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self> {
        let dims = uniform(&model)?;
        if dims.head_dim > MOST_HEAD {
            return Err(Error::model(
                model.gguf.name(),
                format!(
                    "heads of {} are too long for the GPU kernels ({MOST_HEAD}): `device` cpu",
                    dims.head_dim
                ),
            ));
        }
        let mut gpu = Gpu::open_for(found, config.budget, false, config.variants)?;
        gpu.variants = config.variants;
        gpu.tuning = config.tuning.unwrap_or(gpu.tuning);
        if let Some(directory) = &config.cache {
            gpu.keep_kernels(&Shelf::new(directory, &found.info));
        }
        let pipelines = Pipelines::new(&gpu);
        let held = &config.held;
        let max_rows = config.max_rows;
        let turned = model.plan.only_rope().freqs.len();
        let cache = Cache::new(
            &gpu,
            &dims,
            held,
            config.n_slots,
            config.n_cells,
            Stored { keys: config.key_type, values: config.value_type },
        )?;
        let joined: Vec<_> =
            held.ops(&model.plan).into_iter().flat_map(|ops| weights::join(&model, &ops)).collect();
        let apart = |pair: &[weights::Joined]| pair.iter().all(|j| j.dst == crate::plan::Buf::G);
        let arith = gpu.variants.arith;
        let needs = Needs { up: joined.windows(2).any(apart), logits: held.head, arith };
        let work = WorkBuffers::new(&gpu, &dims, max_rows, config.n_cells, needs)?;
        let rows = RowData::new(&gpu, max_rows, config.n_slots, config.n_cells, turned)?;
        let out_bytes = readable_bytes(&dims, max_rows, held.head);
        let readable = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let readable = gpu.buffer("results", out_bytes, readable)?;
        let weights = Weights::load(&gpu, &model, held, progress)?;
        let parts = weights.matrices.values().map(|m| m.parts.len()).sum();
        let slots = Ops::count(&model.plan, parts, config.n_slots, max_rows) + Picker::SLOTS;
        let params = Params::new(&gpu, slots)?;
        let picker = match &work.logits {
            Some(logits) => Picker::new(&gpu, &pipelines, &params, logits, dims.n_vocab)?,
            None => None,
        };
        let is_whole = *held == UnitSet::all(dims.n_layer);
        let rounds = if is_whole { Some(Rounds::new(&gpu, &rows.sections, turned)?) } else { None };
        let profile = if config.profile { Profile::new(&gpu)? } else { None };
        if config.profile && profile.is_none() {
            return Err(Error::Device(format!("{}: `profile`: the driver has no timestamps", gpu.info.name)));
        }
        let stage = Stage {
            gpu: &gpu,
            model: &model,
            dims: &dims,
            pipelines: &pipelines,
            weights: &weights,
            work: &work,
            cache: &cache,
            rows: &rows,
        };
        let ops = Ops::new(&stage, held, params);
        gpu.check()?;
        Ok(GpuBackend {
            name: match gpu.variants {
                Variants::PLAIN => found.describe(),
                variants => format!("{}, {variants} kernels", found.describe()),
            },
            model,
            dims,
            gpu,
            pipelines,
            weights,
            work,
            cache,
            rows,
            ops,
            picker,
            rounds,
            readable,
            profile,
            usage: Usage::default(),
        })
    }

    /// Runs steps that begin with the given hidden rows, or with an embedding, and end with hidden rows, or with the
    /// head.
    fn segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        self.gpu.check()?;
        let is_timed = self.is_timed();
        let GpuBackend {
            model, dims, gpu, pipelines, weights, work, cache, rows: row_data, ops, picker, ..
        } = self;
        let dims = &*dims;
        row_data.send(gpu, model.plan.only_rope(), rows)?;
        // In a uniform plan nothing else goes from one unit to the next.
        let only_stream = |bufs: BufSet| bufs.is_empty() || bufs == BufSet::of([Buf::X]);
        assert!(only_stream(crossing.arrives) && only_stream(crossing.leaves));
        if !crossing.arrives.is_empty() {
            send_hidden(gpu, &work.x, crossing.arriving, dims.dim);
        }
        let stage = Stage { gpu, model, dims, pipelines, weights, work, cache, rows: row_data };
        ops.prepare(&stage, steps);
        if let (Output::Top { k, .. }, Some(picker)) = (&output, picker.as_mut()) {
            picker.prepare(&mut ops.params, *k);
        }
        ops.params.flush(gpu);
        let n = rows.tokens.len();
        let mut recorder = Recorder::new(gpu, pipelines, self.profile.as_mut().filter(|_| is_timed));
        let longest = contexts(&mut recorder, rows);
        ops.record(&mut recorder, &model.plan, steps, n, longest)?;
        let mut way_out = WayOut { gpu, readable: &self.readable, readbacks: 0 };
        if let Some(head) = steps.iter().find(|s| s.unit == Unit::Head) {
            let logits = work.logits.as_ref().expect("the head lives here");
            match output {
                Output::Logits(out) => {
                    for (piece, out) in out.chunks_mut(OUTPUTS_AT_ONCE * dims.n_vocab).enumerate() {
                        ops.record_head(&mut recorder, head.op, piece, out.len() / dims.n_vocab)?;
                        way_out.read(&mut recorder, logits, size_of_val(out) as u64, |bytes| {
                            bytemuck::cast_slice_mut(out).copy_from_slice(bytes);
                        })?;
                    }
                }
                Output::Top { k, rows } => {
                    let picker = picker.as_ref().expect("asked for only where there is one");
                    for (piece, out) in rows.chunks_mut(OUTPUTS_AT_ONCE).enumerate() {
                        ops.record_head(&mut recorder, head.op, piece, out.len())?;
                        picker.record(&mut recorder, k, out.len())?;
                        let bytes = out.len() as u64 * pick::row_bytes(k);
                        way_out
                            .read(&mut recorder, &picker.best, bytes, |bytes| pick::take(bytes, k, out))?;
                    }
                }
            }
        }
        if !crossing.leaves.is_empty() {
            let stride = padded(dims.dim);
            way_out.read(&mut recorder, &work.x, 4 * (n * stride) as u64, |bytes| {
                let rows = crossing.leaving;
                for (out, row) in rows.chunks_exact_mut(dims.dim).zip(bytes.chunks_exact(4 * stride)) {
                    bytemuck::cast_slice_mut(out).copy_from_slice(&row[..4 * dims.dim]);
                }
            })?;
        }
        recorder.submit();
        let kind = if n == 1 { PassKind::Token } else { PassKind::Rows };
        let pass = Traffic { readbacks: way_out.readbacks, ..recorder.traffic() };
        let recording = recorder.seconds();
        self.used(kind, pass, is_timed, recording)
    }

    /// Whether the next pass has its kernels timed: with a profile all but every eighth, which shows what recording
    /// costs without.
    fn is_timed(&self) -> bool {
        self.profile.is_some() && self.usage.passes() % 8 != 7
    }

    /// Keeps account of a pass that was submitted.
    fn used(&mut self, kind: PassKind, pass: Traffic, is_timed: bool, recording: f64) -> Result<()> {
        self.usage.add(kind, pass);
        match &mut self.profile {
            Some(profile) if is_timed => {
                self.gpu.wait()?;
                profile.collect(&self.gpu)?;
            }
            Some(_) => self.usage.recorded(recording, pass.dispatches),
            None => {}
        }
        self.gpu.check()
    }
}

/// The longest context of a row; the recorder learns how long they are together.
fn contexts(recorder: &mut Recorder, rows: &Rows) -> usize {
    recorder.seen = rows.views[0].visible.iter().map(|seen| seen.to as u64).sum();
    rows.views.iter().flat_map(|v| &v.visible).map(|seen| seen.to).max().unwrap_or(0)
}

/// Results on their way to the host.
struct WayOut<'a> {
    gpu: &'a Gpu,
    readable: &'a wgpu::Buffer,
    readbacks: u64,
}

impl WayOut<'_> {
    /// Submits what was recorded and reads the first `bytes` of what it made.
    fn read(
        &mut self,
        recorder: &mut Recorder,
        from: &wgpu::Buffer,
        bytes: u64,
        take: impl FnOnce(&[u8]),
    ) -> Result<()> {
        recorder.copy((from, 0), (self.readable, 0), bytes);
        recorder.submit();
        self.readbacks += 1;
        readback::read(self.gpu, self.readable, bytes, take)
    }
}

/// Hidden rows from elsewhere into the residual stream.
fn send_hidden(gpu: &Gpu, x: &wgpu::Buffer, hidden: &[f32], dim: usize) {
    if padded(dim) == dim {
        gpu.queue.write_buffer(x, 0, bytemuck::cast_slice(hidden));
        return;
    }
    for (row, hidden) in hidden.chunks_exact(dim).enumerate() {
        gpu.queue.write_buffer(x, 4 * (row * padded(dim)) as u64, bytemuck::cast_slice(hidden));
    }
}

impl Drop for GpuBackend {
    /// What cannot be kept is compiled again.
    fn drop(&mut self) {
        if let Some(kernels) = &self.gpu.kernels {
            let _ = kernels.keep();
        }
    }
}

impl Backend for GpuBackend {
    fn describe(&self) -> String {
        format!("GPU, {}, {:.1} MiB", self.name, self.gpu.used() as f64 / f64::from(1 << 20))
    }

    fn threads(&self) -> usize {
        1
    }

    fn max_rows(&self) -> usize {
        self.work.max_rows
    }

    fn most_top(&self) -> usize {
        if self.picker.is_some() { pick::MOST_TOP } else { 0 }
    }

    fn run_segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        self.segment(steps, rows, crossing, output)
    }

    fn run_chain(&mut self, links: &[ChainPass], k: usize, rows: &mut [Top]) -> Result<Option<Chained>> {
        self.chain(links, k, rows)
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.usage.traffic())
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        let weight = self.model.weight(id);
        let format = Format::of(weight.ty()).expect("checked when the model was loaded");
        let blocks = weight.rows * weight.cols.div_ceil(formats::BLOCK);
        let [high, low, scales] = format.streams().map(|rate| rate.bytes_for(blocks) as u64);
        high + scales + if coarse { 0 } else { low }
    }

    fn profile(&self) -> Option<String> {
        self.profile.as_ref().map(|profile| profile.table() + &self.usage.lines())
    }

    fn shift_keys(&mut self, moves: &[Vec<CellMove>], delta: i64) -> Result<()> {
        let GpuBackend { model, dims, gpu, pipelines, cache, .. } = self;
        gpu.check()?;
        shift::shift(gpu, pipelines, cache, (dims, model.plan.only_rope()), &moves[0], delta)
    }
}
