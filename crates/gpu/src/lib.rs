//! The GPU backend: the whole forward pass, or the sublayers that were placed here, through wgpu.
//!
//! The bits of a row's logits are the same whatever else is in its batch, as on the CPU: every sum has one order,
//! said in `shaders/common/product.wgsl` for matrices and in `shaders/common/attention.wgsl` for attention, and
//! every regime keeps to it.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod cache;
mod clock;
mod command;
mod compile;
pub mod device;
pub mod formats;
#[cfg(any(test, windows))]
mod fxc;
mod harness;
mod interface;
mod layout;
mod memory;
mod offload;
mod ops;
mod params;
mod pick;
pub mod pipelines;
mod prerecord;
mod profile;
mod proof;
mod readback;
mod record;
mod round;
mod rows;
mod shift;
mod sizes;
mod speeds;
mod states;
mod stored;
#[cfg(test)]
mod tests;
mod trial;
mod tuning;
mod upload;
mod usage;
pub mod variants;
mod weights;
mod work;

use std::{collections::HashSet, sync::Arc};

use cache::DiskCache;
use command::{BufferCopy, Command};
use device::Gpu;
pub use device::{AdapterChoice, Found, adapters, choose};
#[cfg(windows)]
pub use fxc::why_no_dx12;
pub use interface::Wgpu;
use layout::{BufLayout, Layout};
use ops::{Borders, HeadPiece, Ops, Pass, Stage, Tap};
use params::Params;
use pick::Picker;
use pipelines::Pipelines;
use prerecord::Prepared;
use profile::Profile;
use record::Recorder;
use round::Rounds;
use rows::RowData;
use sizes::{leaving_bytes, low_rows, readable_bytes};
use states::StateStore;
use stored::Stored;
pub use trial::{TrialOutcome, tried, try_now};
use tuning::Tuning;
use usage::{PassKind, Usage};
use variants::Variants;
use weights::{Held, To, Weights};
use work::{KvBuffers, MOST_EXPERTS, MOST_HEAD, Needs, OUTPUTS_AT_ONCE, WorkBuffers};

use backend::{
    Abilities, Account, Backend, ChainPass, Chained, Crossing, Output, Rows, Taps, Traffic, WholePasses,
    gpu::{GpuConfig, GpuSizes},
    kv::{self, CellMove, Replay},
    planes::{self, LowProduct},
    scores::{self, Top},
};
use plan::{Buf, Plan, Step, Unit, UnitSet, WeightId};
use spec_run_backend as backend;
use spec_run_gguf::{Error, Result, files, hash, quant, quoted, rng, words};
use spec_run_kernels::kv_type;
use spec_run_model::{Model, model, plan};

/// The types among what a GPU is to hold that it holds in another form than the file, in words.
pub fn converted(model: &Model, held: &UnitSet) -> Vec<String> {
    let ops = held.ops(&model.plan).into_iter().flatten();
    let mut types: Vec<_> =
        ops.flat_map(|op| model.plan.operands(&op).weights()).map(|id| model.weight(id).ty()).collect();
    types.sort_unstable_by_key(|ty| *ty as u32);
    types.dedup();
    types
        .into_iter()
        .filter_map(|ty| Some(format!("{ty} {}", formats::FileType::of(ty)?.conversion?)))
        .collect()
}

/// What in a plan the kernels cannot do, in words.
fn lacks(plan: &Plan) -> Option<String> {
    if let Some(what) = plan.mixers.iter().find_map(states::lacks) {
        return Some(what);
    }
    if !plan.slopes.is_empty() {
        return Some("scores that fall with the distance (ALiBi)".into());
    }
    let longest = plan.attentions.iter().map(|spec| spec.head_dim).max().unwrap_or(0);
    if longest > MOST_HEAD {
        return Some(format!("heads of {longest}, which are longer than {MOST_HEAD},"));
    }
    let most = plan.experts.iter().map(|moe| moe.n_expert).max().unwrap_or(0);
    (most > MOST_EXPERTS).then(|| format!("{most} experts, more than {MOST_EXPERTS},"))
}

/// Whether a model can run here.
pub fn check(model: &Model) -> Result<()> {
    let Some(what) = lacks(&model.plan) else { return Ok(()) };
    let what = format!("the GPU's kernels do not know {what} yet, which `{}` has: `device` cpu", model.arch);
    Err(Error::model(model.gguf.name(), what))
}

pub struct GpuBackend {
    model: Arc<Model>,
    name: String,
    gpu: Arc<Gpu>,
    pipelines: Pipelines,
    weights: Weights,
    work: WorkBuffers,
    cache: KvBuffers,
    rows: RowData,
    states: StateStore,
    ops: Ops,
    /// Only where the head is on this device.
    picker: Option<Picker>,
    /// Sizes of passes whose kernels were made.
    foreseen: HashSet<PassSize>,
    /// The last pass, if it was one that others may be like.
    prepared: Option<Prepared>,
    /// Only where all of the model is on this device.
    rounds: Option<Rounds>,
    /// Products whose low planes are multiplied by the CPU.
    low_products: Vec<LowProduct>,
    /// Logits, or hidden rows, on their way out.
    readable: wgpu::Buffer,
    profile: Option<Profile>,
    usage: Usage,
}

/// How many steps and rows a pass has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PassSize {
    steps: usize,
    rows: usize,
}

impl GpuBackend {
    /// `progress` is told how many bytes of weights are on the device, of how many.
    pub fn new(
        model: Arc<Model>,
        found: &Found,
        config: &GpuConfig,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self> {
        check(&model)?;
        let plan = &model.plan;
        let mut gpu = Gpu::open_for(found, config.budget, false, Variants::of(config.variant))?;
        gpu.variants = Variants::of(config.variant);
        gpu.tuning = config.widths.map_or(gpu.tuning, |widths| Tuning::of(widths).within(&gpu.limits));
        let proof = proof::known(&found.info, config.cache.as_deref());
        if let Some(proof) = proof {
            (gpu.flushes_halves, gpu.norms_apart) = (proof.flushes_halves, proof.norms_apart);
        }
        if let Some(directory) = &config.cache {
            gpu.keep_kernels(&DiskCache::new(directory, &found.info));
        }
        let gpu = Arc::new(gpu);
        let mut pipelines = Pipelines::new(&gpu).in_background(&gpu);
        // A device that is a program compiles on the processors that it computes on.
        if found.is_hardware() {
            pipelines = pipelines.with_other_columns();
        }
        let held = &config.held;
        let max_rows = config.max_rows;
        let cache = KvBuffers::new(
            &gpu,
            plan,
            held,
            &config.layout,
            Stored { keys: config.key_type, values: config.value_type },
        )?;
        let layout = Layout::of(plan);
        let by_planes = planes::of_units(&model, &config.by_planes);
        let joined: Vec<_> = held
            .ops(plan)
            .into_iter()
            .flat_map(|ops| weights::join(&model, &layout, &ops, &by_planes))
            .collect();
        let low_products: Vec<_> = joined.iter().filter_map(weights::Joined::low_product).collect();
        let needs = Needs {
            up: joined.iter().any(|joined| matches!(joined.to, To::UpRows(_))),
            logits: held.head,
            lows: low_rows(&model, &low_products),
            arith: gpu.variants.arith.of_all(joined.iter().map(|joined| joined.format)),
        };
        let work = WorkBuffers::new(&gpu, plan, max_rows, config.layout.n_cells(), needs)?;
        let rows = RowData::new(&gpu, plan, max_rows, &config.layout)?;
        let states = StateStore::new(&gpu, plan, held, config.layout.states, max_rows)?;
        let out_bytes = readable_bytes(plan, max_rows, held.head).max(leaving_bytes(
            &low_products,
            &work.layout,
            max_rows,
        ));
        let readable = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let readable = gpu.buffer("results", out_bytes, readable)?;
        let weights =
            Weights::load(&gpu, &model, &work.layout, Held { units: held, by_planes: &by_planes }, progress)?;
        let parts = weights.matrices.values().map(|m| m.parts.len()).sum();
        let slots = Ops::count(plan, parts, config.layout.slots.len(), max_rows) + Picker::SLOTS;
        let params = Params::new(&gpu, slots)?;
        let picker = match &work.logits {
            Some(logits) => Picker::new(&gpu, &pipelines, &params, logits, plan.dims.n_vocab)?,
            None => None,
        };
        let is_whole = *held == UnitSet::all(plan.dims.n_layer) && low_products.is_empty();
        // A chain would need to know what later passes do to states.
        let rounds = if is_whole && plan.mixers.is_empty() { Some(Rounds::new(&gpu, &rows)?) } else { None };
        let profile = if config.profile { Profile::new(&gpu)? } else { None };
        if config.profile && profile.is_none() {
            return Err(Error::Device(format!("{}: `profile`: the driver has no timestamps", gpu.info.name)));
        }
        let stage = Stage {
            gpu: &gpu,
            model: &model,
            pipelines: &pipelines,
            weights: &weights,
            work: &work,
            cache: &cache,
            rows: &rows,
            states: &states,
        };
        let ops = Ops::new(&stage, Held { units: held, by_planes: &by_planes }, params);
        gpu.check()?;
        let kernels = match gpu.variants {
            Variants::PLAIN => String::new(),
            variants => format!(", {variants} kernels"),
        };
        let norms = if gpu.norms_apart { ", norms by themselves" } else { "" };
        Ok(GpuBackend {
            name: format!("{}{kernels}{norms}", found.describe()),
            model,
            gpu,
            pipelines,
            weights,
            work,
            cache,
            rows,
            states,
            ops,
            picker,
            foreseen: HashSet::new(),
            prepared: None,
            rounds,
            low_products,
            readable,
            profile,
            usage: Usage::default(),
        })
    }

    /// Sends what changes from pass to pass, except rows of other devices.
    fn send(&mut self, rows: &Rows) -> Result<()> {
        self.gpu.check()?;
        self.rows.send(&self.gpu, &self.model.plan, rows)?;
        self.states.send(&self.gpu, rows.states);
        Ok(())
    }

    /// The commands of a pass but for the head's, once its rows are sent. `best`: of how many tokens of a row the picker
    /// is to know. All parameters are sent.
    fn lower(&mut self, pass: &Pass, taps: Vec<Tap>, best: Option<usize>) -> Vec<Command> {
        let GpuBackend { model, gpu, pipelines, weights, work, cache, rows, states, ops, picker, .. } = self;
        let stage = Stage { gpu, model, pipelines, weights, work, cache, rows, states };
        let commands = ops.lower(&stage, pass, taps);
        if let (Some(k), Some(picker)) = (best, picker) {
            picker.prepare(&mut ops.params, k);
        }
        ops.params.flush(gpu);
        commands
    }

    /// Has the kernels of a pass made on several threads, if it is the first of its size.
    fn foresee<'c>(&mut self, pass: &Pass, commands: impl Iterator<Item = &'c Command>) {
        if self.foreseen.insert(PassSize { steps: pass.steps.len(), rows: pass.rows.tokens.len() }) {
            commands.filter_map(Command::kernel).for_each(|kernel| self.pipelines.foresee(kernel));
        }
    }

    /// Runs steps that begin with the given hidden rows, or with an embedding, and end with hidden rows, or with the
    /// head.
    fn segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        self.send(rows)?;
        let is_timed = self.is_timed();
        let is_apart = crossing.leaves.is_empty() && crossing.lows.is_empty();
        let shape = self.shape(steps, rows, &output, &[]).filter(|_| is_apart);
        for (buf, part) in self.model.plan.crossing(crossing.arrives, rows.tokens.len()) {
            send_rows(&self.gpu, &self.work, buf, &crossing.arriving[part]);
        }
        if let Some(lows) = self.work.lows.as_ref().filter(|_| !crossing.lows.is_empty()) {
            self.gpu.queue.write_buffer(lows, 0, bytemuck::cast_slice(crossing.lows));
        }
        if let Some(shape) = shape {
            return self.repeat(shape, steps, rows, Taps::none(), output);
        }
        let borders = Borders { lows: !crossing.lows.is_empty(), leaves: crossing.leaves };
        let pass = Pass { steps, rows, borders };
        let best = output.best();
        let commands = self.lower(&pass, Vec::new(), best);
        let head = steps.iter().find(|s| s.unit == Unit::Head);
        let first_outputs = rows.outputs.len().min(OUTPUTS_AT_ONCE);
        let first_head = head.filter(|_| first_outputs > 0).map_or_else(Vec::new, |head| {
            let mut commands =
                self.ops.lower_head(&self.gpu, HeadPiece { head, piece: 0, rows: first_outputs });
            let picker = self.picker.iter().zip(best);
            commands.extend(picker.flat_map(|(picker, k)| picker.lower(k, first_outputs)));
            commands
        });
        self.foresee(&pass, commands.iter().chain(&first_head));
        let GpuBackend { model, gpu, pipelines, work, ops, picker, .. } = self;
        let (dims, n) = (model.plan.dims, rows.tokens.len());
        let mut recorder = Recorder::new(gpu, pipelines, self.profile.as_mut().filter(|_| is_timed));
        recorder.run(&commands)?;
        let mut way_out = WayOut { gpu, readable: &self.readable, readbacks: 0 };
        if let Some(head) = head {
            let logits = work.logits.as_ref().expect("the head lives here");
            match output {
                Output::Logits(out) => {
                    for (piece, out) in out.chunks_mut(OUTPUTS_AT_ONCE * dims.n_vocab).enumerate() {
                        let rows = out.len() / dims.n_vocab;
                        recorder.run(&ops.lower_head(gpu, HeadPiece { head, piece, rows }))?;
                        let made = Made { buffer: logits, bytes: size_of_val(out) as u64 };
                        way_out.read(&mut recorder, &[made], |bytes| {
                            bytemuck::cast_slice_mut(out).copy_from_slice(bytes);
                        })?;
                    }
                }
                Output::Top { k, rows } => {
                    let picker = picker.as_ref().expect("asked for only where there is one");
                    for (piece, out) in rows.chunks_mut(OUTPUTS_AT_ONCE).enumerate() {
                        recorder.run(&ops.lower_head(gpu, HeadPiece { head, piece, rows: out.len() }))?;
                        recorder.run(&picker.lower(k, out.len()))?;
                        let bytes = out.len() as u64 * pick::row_bytes(k);
                        let take = |bytes: &[u8]| pick::take(bytes, k, out);
                        way_out.read(&mut recorder, &[Made { buffer: &picker.best, bytes }], take)?;
                    }
                }
            }
        }
        if !crossing.leaves.is_empty() {
            let parts: Vec<_> = model.plan.crossing(crossing.leaves, n).collect();
            let bytes_of = |buf| 4 * (n * work.layout.rows_of(buf).stride) as u64;
            let made = |&(buf, _): &(Buf, _)| Made { buffer: work.buffer(buf), bytes: bytes_of(buf) };
            let made: Vec<_> = parts.iter().map(made).collect();
            way_out.read(&mut recorder, &made, |mut bytes| {
                for (buf, part) in parts {
                    let (rows, rest) = bytes.split_at(bytes_of(buf) as usize);
                    take_rows(rows, work.layout.rows_of(buf), &mut crossing.leaving[part]);
                    bytes = rest;
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

/// A buffer whose first bytes are read back.
#[derive(Clone, Copy)]
struct Made<'a> {
    buffer: &'a wgpu::Buffer,
    bytes: u64,
}

/// Results on their way to the host.
struct WayOut<'a> {
    gpu: &'a Gpu,
    readable: &'a wgpu::Buffer,
    readbacks: u64,
}

impl WayOut<'_> {
    /// Submits what was recorded and reads what it made: the first bytes of some buffers, one after the other.
    fn read(&mut self, recorder: &mut Recorder, made: &[Made], take: impl FnOnce(&[u8])) -> Result<()> {
        let mut end = 0;
        for &Made { buffer, bytes } in made {
            recorder.copy(&BufferCopy::new((buffer, 0), (self.readable, end), bytes));
            end += bytes;
        }
        recorder.submit();
        self.readbacks += 1;
        readback::read(self.gpu, self.readable, end, take)
    }
}

/// Sends rows that were made on another device.
fn send_rows(gpu: &Gpu, work: &WorkBuffers, buf: Buf, rows: &[f32]) {
    let (buffer, layout) = (work.buffer(buf), work.layout.rows_of(buf));
    if layout.stride == layout.width {
        gpu.queue.write_buffer(buffer, 0, bytemuck::cast_slice(rows));
        return;
    }
    for (i, row) in rows.chunks_exact(layout.width).enumerate() {
        let at = 4 * (i * layout.stride + layout.column) as u64;
        gpu.queue.write_buffer(buffer, at, bytemuck::cast_slice(row));
    }
}

/// A buffer's rows from the bytes of its device buffer.
fn take_rows(bytes: &[u8], layout: BufLayout, rows: &mut [f32]) {
    for (row, bytes) in rows.chunks_exact_mut(layout.width).zip(bytes.chunks_exact(4 * layout.stride)) {
        let bytes = &bytes[4 * layout.column..][..4 * layout.width];
        bytemuck::cast_slice_mut(row).copy_from_slice(bytes);
    }
}

impl Drop for GpuBackend {
    /// What cannot be kept is compiled again.
    fn drop(&mut self) {
        self.gpu.keep_compiled();
    }
}

impl WholePasses for GpuBackend {
    fn run_tapped(&mut self, steps: &[Step], rows: &Rows, taps: Taps, output: Output) -> Result<bool> {
        let Some(shape) = self.shape(steps, rows, &output, taps.cuts) else { return Ok(false) };
        self.send(rows)?;
        self.repeat(shape, steps, rows, taps, output)?;
        Ok(true)
    }

    fn run_chain(&mut self, links: &[ChainPass], k: usize, rows: &mut [Top]) -> Result<Option<Chained>> {
        self.chain(links, k, rows)
    }
}

impl Backend for GpuBackend {
    fn describe(&self) -> String {
        format!("{}, {:.1} MiB", self.identity(), self.gpu.used() as f64 / f64::from(1 << 20))
    }

    fn identity(&self) -> String {
        format!("GPU, {}", self.name)
    }

    fn threads(&self) -> usize {
        1
    }

    fn max_rows(&self) -> usize {
        self.work.max_rows
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            most_top: if self.picker.is_some() { pick::MOST_TOP } else { 0 },
            takes_shortlists: false,
            keeps_hidden: false,
            gives_last_rows: true,
        }
    }

    fn account(&self) -> Account {
        Account { traffic: Some(self.usage.traffic()), ..Account::default() }
    }

    fn run_segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        self.segment(steps, rows, crossing, output)
    }

    fn whole_passes(&mut self) -> Option<&mut dyn WholePasses> {
        Some(self)
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        Wgpu.bytes_read(&self.model, id, coarse)
    }

    fn profile(&self) -> Option<String> {
        self.profile.as_ref().map(|profile| profile.table() + &self.usage.lines())
    }

    fn replay_states(&mut self, replay: &Replay) {
        let GpuBackend { gpu, pipelines, states, ops, .. } = self;
        states.send_again(gpu, replay);
        let mut recorder = Recorder::new(gpu, pipelines, None);
        if let Err(e) = recorder.run(&ops.lower_replay(gpu, replay)) {
            // The next pass says so.
            gpu.fail(&e);
        }
        recorder.submit();
    }

    fn shift_keys(&mut self, moves: &[Vec<CellMove>], delta: i64) -> Result<()> {
        let GpuBackend { model, gpu, pipelines, cache, .. } = self;
        gpu.check()?;
        shift::shift(gpu, pipelines, cache, &model.plan.ropes, moves, delta)
    }
}
