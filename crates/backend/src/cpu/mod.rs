//! The CPU backend: a team of threads that goes through each pass in phases.

mod adapt;
mod attend;
mod attention;
mod buffers;
mod choice;
pub mod cores;
mod crew;
mod experts;
pub mod kv_store;
mod lists;
mod low;
mod mixers;
mod offload;
mod pass;
mod per_head;
mod prefetch;
mod scan;
mod schedule;
mod state_store;
mod team;
mod watched;
mod weights;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use spec_run_kernels::{matmul, simd, zeros};
use spec_run_kernels::{ops, rows};

use adapt::ThinRows;
use buffers::Buffers;
use cores::{Binding, Cores, Seat};
use kv_store::KvStore;
use lists::Lists;
use low::LowPlanes;
pub use low::low_plane;
use matmul::{Packed, Planes};
pub use offload::Bundle;
pub use offload::LEAST_OFFLOADED;
pub use offload::Multiplier;
use offload::{Least, OffloadDevice};
use ops::{Rotate, Turn};
use pass::Pass;
use prefetch::Prefetch;
use rayon::ThreadPool;
use schedule::{Asked, PassShape, Schedules, Work};
use simd::Isa;
use state_store::StateStore;
use team::{Team, WorkCounter};
use weights::Weights;

use crate::{
    Error, Model, Result,
    backend::{Abilities, Account, Backend, Crossing, Output, Rows, Saved, SmallJob, Spent},
    kv::{CellMove, KvCache, KvLayout, Replay, StateBytes},
    kv_type::KvType,
    lora::Loras,
    plan::{BufSet, ExpertMatrices, MixerId, Op, Step, Unit, UnitSet, WeightId},
    planes::{LowProduct, PlanesApart},
    watch::Watch,
};

/// Below this many bytes of weights a second thread costs more than it helps.
const ONE_THREAD_BYTES: u64 = 2 << 20;

#[derive(Clone)]
pub struct CpuConfig {
    pub layout: KvLayout,
    pub max_rows: usize,
    /// 0 takes the fast cores, or one for a tiny model.
    pub threads: usize,
    /// For passes of many rows; 0 takes as many as for others.
    pub prompt_threads: usize,
    pub binding: Binding,
    pub key_type: KvType,
    pub value_type: KvType,
    /// `None` takes the best there is.
    pub isa: Option<Isa>,
    /// How matrices are packed at load; `None` leaves them as they are in the file.
    pub planes: Option<Planes>,
    /// Pack no more at load than [`Backend::pack_more`] cannot put off.
    pub pack_later: bool,
    /// What of the model it computes, wherever the weights lie: keys, values and states of the rest are elsewhere.
    pub runs: UnitSet,
    /// What of it is packed, if anything is.
    pub held: UnitSet,
    /// What of it another device holds the high planes of, so that only low planes lie here.
    pub by_planes: PlanesApart,
    /// Prefetch the matrices that are not held from the file: there is not enough RAM for all.
    pub prefetch: bool,
    /// Of experts those that a router has chosen, too.
    pub read_chosen: bool,
    /// What texts may have besides the weights.
    pub loras: Arc<Loras>,
}

pub struct CpuBackend {
    model: Arc<Model>,
    weights: Weights,
    /// Threads that pack weights.
    loaders: ThreadPool,
    isa: Isa,
    team: Team,
    /// For passes of few rows.
    threads: usize,
    keys: KvStore,
    values: KvStore,
    states: StateStore,
    buffers: Buffers,
    /// What attention has to do in a pass.
    lists: Lists,
    /// By table of rotations, then by row.
    turns: Vec<Vec<Turn>>,
    schedules: Schedules,
    loras: Arc<Loras>,
    thin_rows: ThinRows,
    counters: Vec<WorkCounter>,
    prefetch: Option<Prefetch>,
    /// Makes products of many rows, where another device does.
    offload: Option<OffloadDevice>,
    low_planes: LowPlanes,
    /// Whether a pass can go on from the stream alone.
    keeps_hidden: bool,
    spent: Spent,
    /// Norm weights and biases as numbers, by weight id; empty for matrices.
    vectors: Vec<Vec<f32>>,
    watch: Option<Arc<dyn Watch>>,
}

impl CpuBackend {
    /// `progress` is told how many bytes of weights are ready, of how many.
    pub fn new(model: Arc<Model>, config: &CpuConfig, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Self> {
        let layout = config.layout.clone().of_units(&model.plan, &config.runs);
        check_memory(&model, config, &layout)?;
        let cores = Cores::here();
        let threads = match config.threads {
            0 if model.gguf.tensors().iter().map(|t| t.bytes).sum::<u64>() < ONE_THREAD_BYTES => 1,
            0 => cores.default_threads(),
            n => n,
        };
        let prompt_threads = if config.prompt_threads == 0 { threads } else { config.prompt_threads };
        let most_threads = threads.max(prompt_threads);
        let seats = cores.seats(most_threads, config.binding);
        let values = KvStore::new(config.value_type, layout.of_values())?;
        let keys = KvStore::new(config.key_type, layout)?;
        let mut vectors = vec![Vec::new(); model.weights.len()];
        for op in model.plan.ops() {
            for id in model.plan.operands(op).vectors() {
                vectors[id.0 as usize] = model.vector(id);
            }
        }
        mixers::order_weights(&model.plan, &mut vectors);
        let isa = config.isa.unwrap_or_else(Isa::detect);
        let team = Team::new(threads, prompt_threads, &seats)?;
        let loaders = loaders(seats)?;
        let mut weights = Weights::in_file(&model, &config.held, isa, config.planes);
        loaders.install(|| match config.pack_later {
            true => weights.pack_slow(&model, progress),
            false => weights.pack_all(&model, progress),
        })?;
        let low_planes = loaders.install(|| LowPlanes::new(&model, &config.by_planes, isa))?;
        let prefetch = match config.prefetch {
            true => {
                let left = weights.left_in_file(&model, &config.held);
                Some(Prefetch::new(model.clone(), left, config.read_chosen)?)
            }
            false => None,
        };
        Ok(CpuBackend {
            low_planes,
            weights,
            loaders,
            isa,
            team,
            threads,
            keys,
            values,
            states: StateStore::new(&model.plan, config.layout.states),
            buffers: Buffers::new(&model, config.max_rows, most_threads),
            lists: Lists::default(),
            turns: model.plan.ropes.iter().map(|_| Vec::new()).collect(),
            schedules: Schedules::new(config.loras.adapted().to_vec()),
            loras: config.loras.clone(),
            thin_rows: ThinRows::new(&model, &config.loras, config.max_rows),
            counters: Vec::new(),
            prefetch,
            offload: None,
            keeps_hidden: model.plan.rests_between_layers(),
            spent: Spent::default(),
            vectors,
            watch: None,
            model,
        })
    }
}

impl CpuBackend {
    /// Has products of many rows made by another device: from so many on, or else where that is measured to be faster.
    pub fn offload(&mut self, mut multiplier: Box<dyn Multiplier>, from: Option<usize>) -> Result<()> {
        let CpuBackend { model, weights, low_planes, isa, team, buffers, .. } = self;
        let plan = &model.plan;
        let packed = |id| weights.get(model, id).as_packed().filter(|packed| multiplier.knows(packed));
        let known: Vec<Option<&Packed>> =
            (0..model.weights.len() as u32).map(|id| packed(WeightId(id))).collect();
        let low = low_planes.all().filter(|packed| multiplier.knows(packed));
        let known_of = |id: WeightId| known[id.0 as usize];
        let experts = || plan.ops().flat_map(|op| plan.operands(op).experts());
        let mut is_expert = vec![false; known.len()];
        experts().flat_map(ExpertMatrices::ids).for_each(|id| is_expert[id.0 as usize] = true);
        // The head stands for others only where there are none: it is large, and seldom met by many rows.
        let head =
            plan.head.iter().flat_map(|op| plan.operands(op).matrices()).find_map(|(id, _)| known_of(id));
        let is_head = |packed: &&Packed| head.is_some_and(|head| std::ptr::eq(*packed, head));
        let others = std::iter::zip(&known, &is_expert).filter(|(_, is_expert)| !**is_expert);
        let others = others.filter_map(|(known, _)| *known).filter(|packed| !is_head(packed));
        let largest = others.chain(low).max_by_key(|packed| packed.bytes()).or(head);
        let of_layer = |matrices: ExpertMatrices| -> Vec<&Packed> {
            matrices.ids().take(offload::TIMED_EXPERTS).filter_map(known_of).collect()
        };
        let largest_experts = experts()
            .map(of_layer)
            .max_by_key(|experts| experts.first().map_or(0, |packed| packed.bytes()))
            .unwrap_or_default();
        let max_rows = buffers.max_rows();
        let mut worth = |matrices: &[&Packed]| match from {
            Some(rows) => Ok((!matrices.is_empty()).then_some(rows.max(1))),
            None => offload::rows_worth_offloading(&mut *multiplier, matrices, (*isa, &mut *team), max_rows),
        };
        let least = Least { rows: worth(largest.as_slice())?, of_expert: worth(&largest_experts)? };
        let from = std::iter::zip(known, is_expert)
            .map(|(known, is_expert)| known.and(if is_expert { least.of_expert } else { least.rows }))
            .collect();
        let added = plan.ops().filter_map(|op| match *op {
            Op::MatMul { dst, add: true, .. } => Some(plan.width(dst)),
            Op::ExpertsGate(id) => least.of_expert.map(|_| plan.width(plan.moe(id).hidden)),
            _ => None,
        });
        let most_apart = max_rows * added.max().unwrap_or(0);
        if least != Least::default() {
            self.offload = Some(OffloadDevice::new(multiplier, (least, from), most_apart));
        }
        Ok(())
    }

    /// Where something leaves, others take all rows from here.
    fn asked(&self, rows: &Rows, leaves: BufSet) -> Asked {
        let chunks = longest_list(rows).div_ceil(attention::CHUNK);
        let long = chunks > 1 && buffers::parts_fit(&self.model.plan, rows.tokens.len(), chunks);
        let adapted = rows.scales.iter().any(Option::is_some);
        let (rows, outputs) = (rows.tokens.len(), rows.outputs.len());
        let outputs = if leaves.is_empty() { outputs } else { rows };
        Asked { rows, outputs, threads: self.team.crew(rows), long, leaves, adapted }
    }

    /// What all layers of a pass share: rotations, and who attends to what.
    fn prepare(&mut self, rows: &Rows, schedule: usize) -> PassShape {
        let (shape, phases) = self.schedules.get(schedule);
        let plan = &self.model.plan;
        let n_rows = rows.tokens.len();
        for (turns, rope) in self.turns.iter_mut().zip(&plan.ropes) {
            if turns.len() < n_rows {
                turns.resize_with(n_rows, Turn::default);
            }
            for (turn, &pos) in turns.iter_mut().zip(rows.positions) {
                turn.set_to(rope, pos);
            }
        }
        self.lists.fill(plan, phases, rows, shape);
        if plan.attentions.iter().any(|spec| shape.split_lists(spec)) {
            let chunks = longest_list(rows).div_ceil(attention::CHUNK);
            self.buffers.make_room_for_parts(plan, n_rows, chunks);
        }
        *shape
    }
}

impl CpuBackend {
    /// The low planes' part of a product of so many rows: see [`Crossing::lows`]. Gives the bytes that it read.
    pub fn low_sums(&mut self, of: &LowProduct, rows: usize, x: &[f32], out: &mut Vec<f32>) -> Result<u64> {
        let started = Instant::now();
        let CpuBackend { low_planes, offload, vectors, isa, team, .. } = self;
        let read = low_planes.sums(of, (rows, x), vectors, (*isa, team, offload.as_mut()), out)?;
        self.spent.ram += started.elapsed().as_secs_f64();
        Ok(read)
    }
}

impl Saved for CpuBackend {
    fn form(&self) -> String {
        format!("{} {}", self.keys.ty, self.values.ty)
    }

    fn take_kv(&self, slot: usize, offsets: &[u32], out: &mut Vec<u8>) {
        self.keys.copy_out(slot, offsets, out);
        self.values.copy_out(slot, offsets, out);
    }

    fn put_kv<'r>(&mut self, slot: usize, offsets: &[u32], rows: &'r [u8]) -> Option<&'r [u8]> {
        let values = self.keys.copy_in(slot, offsets, rows)?;
        self.values.copy_in(slot, offsets, values)
    }

    fn take_state(&self, layer: usize, slab: u32, out: &mut Vec<u8>) {
        self.states.copy_out(layer, slab, out);
    }

    fn put_state<'r>(&mut self, layer: usize, slab: u32, rest: &'r [u8]) -> Option<&'r [u8]> {
        self.states.copy_in(layer, slab, rest)
    }
}

impl Backend for CpuBackend {
    fn describe(&self) -> String {
        let offload = self.offload.as_ref().map(|offload| format!(", {}", offload.least()));
        self.identity() + &offload.unwrap_or_default()
    }

    fn identity(&self) -> String {
        let threads = self.threads;
        let s = if threads == 1 { "" } else { "s" };
        format!("CPU, {}, {threads} thread{s}", self.isa)
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn together(&mut self, job: SmallJob) {
        self.team.run(1, |member| job(member.index, member.threads));
    }

    fn max_rows(&self) -> usize {
        self.buffers.max_rows()
    }

    fn abilities(&self) -> Abilities {
        let keeps_hidden = self.keeps_hidden;
        Abilities { most_top: 0, takes_shortlists: true, keeps_hidden, gives_last_rows: true }
    }

    fn account(&self) -> Account {
        Account { traffic: None, spent: self.spent, crowded: self.team.crowded() }
    }

    fn run_segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        let Output::Logits(logits) = output else { unreachable!("this backend gives logits only") };
        let Crossing { arrives, arriving, leaves, leaving, lows: _ } = crossing;
        let n_rows = rows.tokens.len();
        for (buf, range) in self.model.plan.crossing(arrives, n_rows) {
            self.buffers.rows_mut(buf, n_rows).copy_from_slice(&arriving[range]);
        }
        // What the high bits make of a product is another number than all bits do.
        if !self.is_packed() && steps.iter().any(|step| step.coarse) {
            self.pack_more(Duration::MAX)?;
        }
        let asked = self.asked(rows, leaves);
        let schedule = self.schedules.find(&self.model, steps, asked);
        let pass_shape = self.prepare(rows, schedule);
        let has_head = steps.iter().any(|step| step.unit == Unit::Head);
        assert!(!has_head || logits.len() == pass_shape.asked.outputs * self.model.plan.dims.n_vocab);
        let (_, phases) = self.schedules.get(schedule);
        let convolved = steps.iter().filter_map(|step| match *step.op {
            Op::Convolve(id) => Some(id),
            _ => None,
        });
        self.states.prepare(convolved, rows.states);
        self.counters.iter_mut().for_each(WorkCounter::reset);
        if self.counters.len() < phases.len() {
            self.counters.resize_with(phases.len(), WorkCounter::default);
        }
        if let Some(offload) = &mut self.offload {
            offload.begin(phases.len());
        }
        let pass = Pass {
            model: &self.model,
            weights: &self.weights,
            isa: self.isa,
            keys: &self.keys,
            values: &self.values,
            states: &self.states,
            buffers: self.buffers.for_pass(&self.model.plan, &pass_shape),
            vectors: &self.vectors,
            rows,
            shape: pass_shape,
            turns: &self.turns,
            lists: &self.lists,
            logits: rows::SharedOut::new(logits),
            counters: &self.counters,
            offload: self.offload.as_ref(),
            loras: &self.loras,
            thin_rows: &self.thin_rows,
        };
        let started = Instant::now();
        if let Some(prefetch) = &mut self.prefetch {
            prefetch.begin(phases, &pass_shape);
        }
        let (prefetch, watch) = (&self.prefetch, self.watch.as_deref());
        self.team.run(n_rows, |member| {
            for (i, phase) in phases.iter().enumerate() {
                if phase.sync {
                    member.sync();
                    if let (Some(prefetch), 0) = (prefetch, member.index) {
                        prefetch.reached(i);
                    }
                }
                if let (Some(prefetch), 0, Work::Op(Op::ExpertsGate(id))) =
                    (prefetch, member.index, phase.work)
                {
                    prefetch.chose(i, pass.chosen(pass.model.plan.moe(id), phase));
                }
                if let (Some(watch), 0) = (watch, member.index) {
                    pass.show(watch, phase, &member);
                }
                pass.run(i, phase, &member);
            }
        });
        let file = self.prefetch.as_ref().map_or(0.0, Prefetch::end);
        self.spent.file += file;
        self.spent.ram += started.elapsed().as_secs_f64() - file;
        if let Some(offload) = &mut self.offload {
            offload.end()?;
        }
        for (buf, range) in self.model.plan.crossing(leaves, n_rows) {
            leaving[range].copy_from_slice(self.buffers.rows_mut(buf, n_rows));
        }
        Ok(())
    }

    fn is_packed(&self) -> bool {
        self.weights.is_packed()
    }

    fn pack_more(&mut self, time: Duration) -> Result<()> {
        let CpuBackend { model, weights, loaders, .. } = self;
        loaders.install(|| weights.pack_for(model, time))
    }

    fn watch(&mut self, watch: Arc<dyn Watch>) -> bool {
        self.watch = Some(watch);
        true
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        self.weights.bytes_read(&self.model, id, coarse)
    }

    fn saved(&self) -> Option<&dyn Saved> {
        Some(self)
    }

    fn saved_mut(&mut self) -> Option<&mut dyn Saved> {
        Some(self)
    }

    fn replay_states(&mut self, replay: &Replay) {
        let mut replay = replay.clone();
        for (layer, step) in replay.layers.iter_mut().enumerate() {
            // The states of other layers are elsewhere.
            *step = step.filter(|step| self.states.has(layer, step.inputs));
            if let Some(step) = step {
                let rows = if step.from == Some(step.to) { 0 } else { replay.rows };
                self.states.prepare_one(layer, step.to, rows);
            }
        }
        let (isa, plan, vectors, states) = (self.isa, &self.model.plan, &self.vectors, &self.states);
        self.team.run(0, |member| {
            for layer in member.share(plan.mixers.len(), 1) {
                mixers::replay(isa, (plan, MixerId(layer as u32)), vectors, states, &replay);
            }
        });
    }

    fn shift_keys(&mut self, moves: &[Vec<CellMove>], delta: i64) -> Result<()> {
        let plan = &self.model.plan;
        let on: Vec<Turn> = plan.ropes.iter().map(|rope| Turn::on(rope, delta)).collect();
        // What lies in a slot that is not a layer's own is turned as the first layer's.
        let rope_of = |slot: usize| {
            let layer = plan.layer_of_slot(slot).or(plan.layers.first());
            layer
                .and_then(|layer| layer.attn.iter().find_map(|op| plan.store_of(op)))
                .and_then(|spec| spec.rope)
        };
        for (slot, shape) in self.keys.slots().iter().enumerate() {
            let mut head = vec![0.0; shape.head_dim];
            let turn = rope_of(slot).map(|rope| &on[rope.0 as usize]);
            for kv_head in 0..shape.n_kv_head {
                let keys = self.keys.head(slot, kv_head, shape.head_dim);
                let values = (!shape.keys_only).then(|| self.values.head(slot, kv_head, shape.head_dim));
                for &CellMove { src, dst } in &moves[shape.class] {
                    // SAFETY: no pass is running; `src` and `dst` are the same cell or disjoint.
                    unsafe {
                        self.keys.ty.take(keys.row(src), &mut head);
                        if let Some(by) = turn {
                            Rotate { by, head: &mut head }.on(self.isa);
                        }
                        ops::StoreRow { ty: self.keys.ty, x: &head, row: keys.row_mut(dst) }.on(self.isa);
                        if let Some(values) = values.filter(|_| src != dst) {
                            values.row_mut(dst).copy_from_slice(values.row(src));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The most cells that a row sees.
fn longest_list(rows: &Rows) -> usize {
    rows.views.iter().flat_map(|view| &view.visible).map(|seen| seen.to).max().unwrap_or(0)
}

/// Threads for loading, whose work comes in uneven pieces: rayon deals it better than a team.
fn loaders(seats: Vec<Seat>) -> Result<ThreadPool> {
    let threads = seats.len();
    // The system places weights near the thread that writes them first.
    let bind = move |index: usize| _ = cores::bind(&seats[index].cpus);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).start_handler(bind).build();
    pool.map_err(|e| Error::Memory(format!("cannot start {threads} threads: {e}: fewer `threads`")))
}

/// Of keys, values, states and work buffers of these units, whose layout it is.
pub fn overhead_bytes(
    model: &Model,
    (runs, layout): (&UnitSet, &KvLayout),
    types: [KvType; 2],
    max_rows: usize,
) -> u128 {
    let kv = layout.bytes(types[0]) + layout.of_values().bytes(types[1]);
    let layers = (0..model.plan.layers.len()).filter(|&layer| runs.attn.get(layer) == Some(&true));
    let states = StateBytes::new(layers.flat_map(|layer| model.plan.mixers_of(layer)), layout).all();
    kv + u128::from(states) + u128::from(Buffers::bytes_for(model, max_rows))
}

/// Refuses what the machine cannot hold, where it tells how much it has: the system would grant the memory
/// and end the program later.
fn check_memory(model: &Model, config: &CpuConfig, layout: &KvLayout) -> Result<()> {
    let types = [config.key_type, config.value_type];
    let needed = overhead_bytes(model, (&config.runs, layout), types, config.max_rows)
        + u128::from(KvCache::bytes_for(&config.layout));
    let Some(available) = available_memory() else { return Ok(()) };
    let recurrent = !model.plan.mixers.is_empty();
    if needed > u128::from(available) {
        let gib = |bytes: u128| bytes as f64 / (1u64 << 30) as f64;
        return Err(Error::Memory(format!(
            "a context of {} tokens needs {:.1} GiB for keys, values{} and work buffers, {:.1} GiB are free: use a smaller `n_ctx`, or `key_type` and `value_type` q8_0{}",
            config.layout.n_cells(),
            gib(needed),
            if recurrent { ", states" } else { "" },
            gib(u128::from(available)),
            if recurrent { ", or fewer `sequences`" } else { "" },
        )));
    }
    Ok(())
}

/// What Linux says could be had without swapping.
pub fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
