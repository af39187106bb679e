//! The GPU backend: the whole forward pass, or the sublayers that were placed here, through wgpu.
//!
//! The bits of a row's logits are the same whatever else is in its batch, as on the CPU: every sum has one order,
//! said in `shaders/common/finish.wgsl` for matrices and in `shaders/common/attention.wgsl` for attention, and
//! every regime keeps to it.

mod cache;
pub mod device;
pub mod formats;
mod lab;
mod ops;
mod params;
pub mod pipelines;
mod profile;
mod readback;
mod record;
mod rows;
#[cfg(test)]
mod tests;
mod trial;
mod upload;
pub mod variants;
mod weights;
mod work;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use cache::Shelf;
use device::Gpu;
pub use device::{Choice, Found, adapters, choose, may_have_hardware};
use formats::Format;
use ops::{Ops, Stage};
use params::Params;
pub use pipelines::Tuning;
use pipelines::{Family, Kernel, Pipelines};
use profile::Profile;
use record::Recorder;
use rows::{RowData, halves, turns};
pub use trial::Outcome;
pub use variants::{Variants, Wanted};
use weights::Weights;
use work::{Cache, MOST_HEAD, Needs, OUTPUTS_AT_ONCE, WorkBuffers, padded};

use crate::{
    Error, Model, Result,
    backend::{Backend, Crossing, Held, Rows},
    context::KvType,
    kv::CellMove,
    placement::Kind,
    plan::{Dims, Op, Step, WeightId},
};

#[derive(Clone, Debug)]
pub struct GpuConfig {
    pub n_cells: usize,
    pub n_slots: usize,
    pub max_rows: usize,
    pub key_type: KvType,
    pub value_type: KvType,
    pub held: Held,
    /// Bytes of device memory that may be taken.
    pub budget: u64,
    /// Time every kernel; slower.
    pub profile: bool,
    /// `None` takes what suits the device.
    pub tuning: Option<Tuning>,
    pub variant: Wanted,
    /// Where compiled kernels and the outcome of the trial of variants are kept.
    pub cache: Option<PathBuf>,
}

/// Bytes of the GPU's memory that an operation's weights take.
pub fn op_bytes(model: &Model, op: &Op) -> u64 {
    op.weights()
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

/// What a part of a model needs on the GPU beside its weights.
pub fn bytes_beside(model: &Model, kind: Kind, n_cells: usize, (keys, values): (KvType, KvType)) -> u64 {
    let dims = &model.plan.dims;
    let words = |ty| dims.n_kv_head * n_cells * work::kv_words(ty, dims.head_dim);
    match kind {
        Kind::Attn(_) => 4 * (words(keys) + words(values)) as u64,
        // Where they are made, and where they can be read.
        Kind::Head => 8 * (OUTPUTS_AT_ONCE * dims.n_vocab) as u64,
        Kind::Embed | Kind::Mlp(_) => 0,
    }
}

/// What the GPU needs whatever runs on it.
pub fn scratch_bytes(model: &Model, max_rows: usize, n_cells: usize, n_slots: usize) -> u64 {
    let dims = &model.plan.dims;
    let row_data = 4 * (3 * max_rows + n_slots + 2 * (n_slots + 1) * max_rows + 2 * n_cells);
    let turns = 8 * max_rows * model.plan.rope.freqs.len();
    let params = params::SLOT_BYTES * 4 * (16 * dims.n_layer + 128) as u64;
    // Slots that no layer owns have keys and values too, of the larger type.
    let extra = n_slots.saturating_sub(dims.n_layer) as u64
        * bytes_beside(model, Kind::Attn(0), n_cells, (KvType::F32, KvType::F32));
    let readable = readable_bytes(dims, max_rows, false);
    WorkBuffers::bytes(dims, max_rows, n_cells) + (row_data + turns) as u64 + params + extra + readable
}

/// Hidden rows, or logits, on their way out.
fn readable_bytes(dims: &Dims, max_rows: usize, logits: bool) -> u64 {
    let logits = if logits { OUTPUTS_AT_ONCE * dims.n_vocab } else { 0 };
    4 * logits.max(max_rows * padded(dims.dim)) as u64
}

/// How a device's variants did when they were last tried, if that is kept in `directory`.
pub fn tried(directory: &Path, found: &Found) -> Option<Outcome> {
    Outcome::recall(&Shelf::new(directory, &found.info))
}

/// Tries the variants of a device now, and keeps the outcome.
pub fn try_variants(directory: Option<&Path>, found: &Found) -> Result<Outcome> {
    let gpu = Gpu::open(found, TRIAL_BYTES, false)?;
    let outcome = trial::try_all(&gpu, found)?;
    directory.map_or(Ok(()), |directory| outcome.keep(&Shelf::new(directory, &found.info)))?;
    Ok(outcome)
}

/// Room enough for a trial by itself.
const TRIAL_BYTES: u64 = 1 << 30;

/// What is kept costs only time when it is lost, so nothing is said where it cannot be written.
fn try_or_recall(gpu: &Gpu, found: &Found, shelf: Option<&Shelf>) -> Result<Outcome> {
    if let Some(known) = shelf.and_then(Outcome::recall) {
        return Ok(known);
    }
    let outcome = match trial::try_all(gpu, found) {
        // No room to try anything: nothing is known, and the plain kernels run.
        Err(Error::Memory(_)) => return Ok(Outcome::default()),
        outcome => outcome?,
    };
    if let Some(shelf) = shelf {
        let _ = outcome.keep(shelf);
    }
    Ok(outcome)
}

pub struct GpuBackend {
    model: Arc<Model>,
    name: String,
    gpu: Gpu,
    pipelines: Pipelines,
    weights: Weights,
    work: WorkBuffers,
    cache: Cache,
    rows: RowData,
    ops: Ops,
    /// Logits, or hidden rows, on their way out.
    readable: wgpu::Buffer,
    profile: Option<Profile>,
}

impl GpuBackend {
    /// `progress` is told how many bytes of weights are on the device, of how many.
    pub fn new(
        model: Arc<Model>,
        found: &Found,
        config: &GpuConfig,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self> {
        let dims = model.plan.dims;
        if dims.head_dim > MOST_HEAD {
            return Err(Error::model(
                model.gguf.name(),
                format!(
                    "heads of {} are too long for the GPU kernels ({MOST_HEAD}): --device cpu",
                    dims.head_dim
                ),
            ));
        }
        let fixed = match config.variant {
            Wanted::Fixed(variants) => variants,
            Wanted::Tried => Variants::PLAIN,
        };
        fixed.check(found)?;
        let mut gpu = Gpu::open_for(found, config.budget, false, fixed)?;
        gpu.tuning = config.tuning.unwrap_or(gpu.tuning);
        let shelf = config.cache.as_deref().map(|directory| Shelf::new(directory, &found.info));
        if let Some(shelf) = &shelf {
            gpu.keep_kernels(shelf);
        }
        gpu.variants = match config.variant {
            Wanted::Fixed(variants) => trial::vouch(&gpu, variants).map(|()| variants)?,
            Wanted::Tried => try_or_recall(&gpu, found, shelf.as_ref())?.chosen(),
        };
        let pipelines = Pipelines::new(&gpu);
        let held = &config.held;
        let max_rows = config.max_rows;
        let turned = model.plan.rope.freqs.len();
        let cache = Cache::new(
            &gpu,
            &dims,
            held,
            config.n_slots,
            config.n_cells,
            (config.key_type, config.value_type),
        )?;
        let joined: Vec<_> =
            held.ops(&model.plan).into_iter().flat_map(|ops| weights::join(&model, ops)).collect();
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
        let params = Params::new(&gpu, Ops::count(&model.plan, parts, config.n_slots, max_rows))?;
        let profile = if config.profile { Profile::new(&gpu)? } else { None };
        if config.profile && profile.is_none() {
            return Err(Error::Device(format!("{}: --profile: the driver has no timestamps", gpu.info.name)));
        }
        let stage = Stage {
            gpu: &gpu,
            model: &model,
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
            gpu,
            pipelines,
            weights,
            work,
            cache,
            rows,
            ops,
            readable,
            profile,
        })
    }

    /// Whether a matrix lives here.
    pub fn holds(&self, id: WeightId) -> bool {
        self.weights.holds(id)
    }

    /// Runs steps that begin with the given hidden rows, or with an embedding, and end with hidden rows, or logits.
    fn segment(
        &mut self,
        steps: &[Step],
        rows: &Rows,
        hidden_in: Option<&[f32]>,
        hidden_out: Option<&mut [f32]>,
        logits: &mut [f32],
    ) -> Result<()> {
        let GpuBackend {
            model,
            gpu,
            pipelines,
            weights,
            work,
            cache,
            rows: row_data,
            ops,
            readable,
            profile,
            ..
        } = self;
        let dims = &model.plan.dims;
        row_data.send(gpu, &model.plan.rope, rows)?;
        if let Some(hidden) = hidden_in {
            send_hidden(gpu, &work.x, hidden, dims.dim);
        }
        let stage = Stage { gpu, model, pipelines, weights, work, cache, rows: row_data };
        ops.prepare(&stage, steps);
        ops.params.flush(gpu);
        let longest = rows.views.iter().flat_map(|v| &v.visible).map(|&(_, len)| len).max().unwrap_or(0);
        let n = rows.tokens.len();
        let mut recorder = Recorder::new(gpu, pipelines, profile.as_mut());
        ops.record(&mut recorder, steps, n, longest)?;
        let head = steps.iter().find(|s| matches!(s.op, Op::Head { .. }));
        if let Some(head) = head {
            let source = work.logits.as_ref().expect("the head lives here");
            let pieces = logits.chunks_mut(OUTPUTS_AT_ONCE * dims.n_vocab);
            for (piece, out) in pieces.enumerate() {
                ops.record_head(&mut recorder, head.op, piece, out.len() / dims.n_vocab)?;
                let bytes = size_of_val(out) as u64;
                recorder.copy(source, readable, bytes);
                recorder.submit();
                readback::read(gpu, readable, bytes, |bytes| {
                    bytemuck::cast_slice_mut(out).copy_from_slice(bytes);
                })?;
            }
        }
        if let Some(hidden) = hidden_out {
            let stride = padded(dims.dim);
            let bytes = 4 * (n * stride) as u64;
            recorder.copy(&work.x, readable, bytes);
            recorder.submit();
            readback::read(gpu, readable, bytes, |bytes| {
                for (out, row) in hidden.chunks_exact_mut(dims.dim).zip(bytes.chunks_exact(4 * stride)) {
                    bytemuck::cast_slice_mut(out).copy_from_slice(&row[..4 * dims.dim]);
                }
            })?;
        }
        recorder.submit();
        if let Some(profile) = profile {
            gpu.wait()?;
            profile.collect(gpu)?;
        }
        gpu.check()
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

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct ShiftParams {
    kv_heads: u32,
    head_dim: u32,
    turned: u32,
    halves: u32,
    cells: u32,
    key_words: u32,
    value_words: u32,
    key_halves: u32,
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

    fn run_segment(
        &mut self,
        steps: &[Step],
        rows: &Rows,
        crossing: Crossing,
        logits: &mut [f32],
    ) -> Result<()> {
        self.segment(steps, rows, crossing.hidden_in, crossing.hidden_out, logits)
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        let weight = self.model.weight(id);
        let format = Format::of(weight.ty()).expect("checked when the model was loaded");
        let blocks = weight.rows * weight.cols.div_ceil(formats::BLOCK);
        let [high, low, scales] = format.streams().map(|rate| rate.bytes_for(blocks) as u64);
        high + scales + if coarse { 0 } else { low }
    }

    fn profile(&self) -> Option<String> {
        self.profile.as_ref().map(Profile::table)
    }

    fn shift_keys(&mut self, moves: &[CellMove], delta: i64) -> Result<()> {
        use wgpu::util::{BufferInitDescriptor, DeviceExt};
        if moves.is_empty() {
            return Ok(());
        }
        let GpuBackend { model, gpu, pipelines, cache, .. } = self;
        let (dims, rope) = (&model.plan.dims, &model.plan.rope);
        let params = ShiftParams {
            kv_heads: dims.n_kv_head as u32,
            head_dim: dims.head_dim as u32,
            turned: rope.freqs.len() as u32,
            halves: halves(rope),
            cells: cache.n_cells as u32,
            key_words: work::kv_words(cache.key_type, dims.head_dim) as u32,
            value_words: work::kv_words(cache.value_type, dims.head_dim) as u32,
            key_halves: u32::from(cache.key_type == KvType::F16),
        };
        let made = |label, contents: &[u8], usage| {
            gpu.device.create_buffer_init(&BufferInitDescriptor { label: Some(label), contents, usage })
        };
        let mut padded_params = [0u8; params::SLOT_BYTES as usize];
        padded_params[..size_of::<ShiftParams>()].copy_from_slice(bytemuck::bytes_of(&params));
        let params = made("shift", &padded_params, wgpu::BufferUsages::UNIFORM);
        let moves: Vec<[u32; 2]> = moves.iter().map(|m| [m.src, m.dst]).collect();
        let storage = wgpu::BufferUsages::STORAGE;
        let move_list = made("moves", bytemuck::cast_slice(&moves), storage);
        // Where a key is already turned, the magnitude is in it.
        let turns: Vec<[f32; 2]> = turns(rope, delta as f64, 1.0).collect();
        let turns = made("rotation", bytemuck::cast_slice(&turns), storage);
        let groups: Vec<_> = cache
            .held()
            .map(|slot| {
                let (keys, values) = cache.slot(slot);
                let storage = [&move_list, &turns, keys, values].map(|b| b.as_entire_buffer_binding());
                let group = pipelines.bind(gpu, Family::Shift, &params, &storage);
                ops::Bound { group, params: 0 }
            })
            .collect();
        let mut recorder = Recorder::new(gpu, pipelines, None);
        for bound in &groups {
            recorder.dispatch(Kernel::Shift, bound, [moves.len() as u32, dims.n_kv_head as u32, 1])?;
        }
        recorder.submit();
        gpu.wait()
    }
}
