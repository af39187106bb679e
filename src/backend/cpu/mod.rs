//! The CPU backend: a team of threads that goes through each pass in phases.

mod attention;
mod buffers;
mod crew;
pub mod kv_store;
pub mod matmul;
mod ops;
mod pass;
mod read_ahead;
mod rows;
mod schedule;
pub mod simd;
mod team;
mod weights;

use std::{sync::Arc, time::Instant};

use attention::deal::Items;
use buffers::Buffers;
use kv_store::{KvShape, KvStore, KvType};
use matmul::Planes;
use ops::{Rotate, Turn};
use pass::{Pass, WorkCounter};
use read_ahead::ReadAhead;
use schedule::{PassShape, Phase};
use simd::Isa;
use team::Team;
use weights::Weights;

use crate::{
    Error, Model, Result,
    backend::{Backend, Crossing, Output, Rows, Spent, UnitSet},
    kv::{CellMove, KvCache},
    plan::{Dims, Op, Step, WeightId},
};

/// Below this many bytes of weights a second thread costs more than it helps.
const ONE_THREAD_BYTES: u64 = 2 << 20;

/// Up to this many rows every thread norms all of them for itself.
const OWN_NORM_ROWS: usize = 2;

/// Up to this many rows, chunks of a long context are dealt to threads that could not have whole K/V heads.
const SPLIT_ROWS: usize = 8;

#[derive(Clone, Debug)]
pub struct CpuConfig {
    pub n_cells: usize,
    pub n_slots: usize,
    pub max_rows: usize,
    /// 0 takes the physical cores, or one for a tiny model.
    pub threads: usize,
    pub key_type: KvType,
    pub value_type: KvType,
    /// `None` takes the best there is.
    pub isa: Option<Isa>,
    /// How matrices are packed at load; `None` leaves them as they are in the file.
    pub planes: Option<Planes>,
    /// What of the model is packed, if anything is.
    pub held: UnitSet,
    /// Read the matrices that are not packed from the file ahead of their use: there is not RAM for all.
    pub read_ahead: bool,
}

pub struct CpuBackend {
    model: Arc<Model>,
    weights: Weights,
    isa: Isa,
    team: Team,
    keys: KvStore,
    values: KvStore,
    buffers: Buffers,
    /// What attention has to do in a pass, by view.
    attention: Vec<Items>,
    /// The same for the rows whose logits are wanted, in the last layer.
    narrow_attention: Items,
    turns: Vec<Turn>,
    phases: Vec<Phase>,
    counters: Vec<WorkCounter>,
    read_ahead: Option<ReadAhead>,
    spent: Spent,
    /// Norm weights and biases as numbers, by weight id; empty for matrices.
    vectors: Vec<Vec<f32>>,
}

impl CpuBackend {
    /// `progress` is told how many bytes of weights are ready, of how many.
    pub fn new(model: Arc<Model>, config: &CpuConfig, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Self> {
        let dims = &model.plan.dims;
        let shape = KvShape {
            n_slots: config.n_slots,
            n_cells: config.n_cells,
            n_kv_head: dims.n_kv_head,
            head_dim: dims.head_dim,
        };
        check_memory(&model, config, &shape)?;
        let threads = match config.threads {
            0 if model.gguf.tensors().iter().map(|t| t.bytes).sum::<u64>() < ONE_THREAD_BYTES => 1,
            0 => physical_cores(),
            n => n,
        };
        let keys = KvStore::new(config.key_type, shape)?;
        let values = KvStore::new(config.value_type, shape)?;
        let mut vectors = vec![Vec::new(); model.weights.len()];
        for op in model.plan.ops() {
            for id in op.operands().vectors() {
                vectors[id.0 as usize] = model.vector(id);
            }
        }
        let isa = config.isa.unwrap_or_else(Isa::detect);
        let team = Team::new(threads)?;
        let weights = match config.planes {
            None => Weights::in_file(&model),
            Some(planes) => {
                loaders(threads)?.install(|| Weights::pack(&model, &config.held, isa, planes, progress))?
            }
        };
        let read_ahead = match config.read_ahead {
            true => Some(ReadAhead::new(model.clone(), weights.left_in_file())?),
            false => None,
        };
        Ok(CpuBackend {
            weights,
            isa,
            team,
            keys,
            values,
            buffers: Buffers::new(dims, config.max_rows, threads),
            attention: Vec::new(),
            narrow_attention: Items::default(),
            turns: Vec::new(),
            phases: Vec::new(),
            counters: Vec::new(),
            read_ahead,
            spent: Spent::default(),
            vectors,
            model,
        })
    }
}

impl CpuBackend {
    /// `hands_on`: another device takes all rows from here.
    fn pass_shape(&self, steps: &[Step], rows: &Rows, hands_on: bool) -> PassShape {
        let dims = &self.model.plan.dims;
        let longest = longest_list(rows);
        let (rows, outputs) = (rows.tokens.len(), rows.outputs.len());
        let outputs = if hands_on { rows } else { outputs };
        let own_heads = dims.n_kv_head.is_multiple_of(self.team.crew());
        let group_width = dims.n_head / dims.n_kv_head * dims.head_dim;
        PassShape {
            rows,
            outputs,
            own_norms: rows <= OWN_NORM_ROWS && schedule::all_quantized(&self.model, steps),
            own_heads,
            split_lists: !own_heads && rows <= SPLIT_ROWS && longest > attention::CHUNK,
            quantize_heads: own_heads && group_width.is_multiple_of(matmul::GROUP),
            quantize_gates: dims.ffn.is_multiple_of(matmul::GROUP),
        }
    }

    /// What all layers of a pass share: rotations, and who attends to what.
    fn prepare(&mut self, steps: &[Step], rows: &Rows, pass_shape: &PassShape) {
        let Dims { n_head, n_kv_head, .. } = self.model.plan.dims;
        let n_rows = rows.tokens.len();
        if self.turns.len() < n_rows {
            self.turns.resize_with(n_rows, Turn::default);
        }
        for (turn, &pos) in self.turns.iter_mut().zip(rows.positions) {
            turn.set_to(&self.model.plan.rope, pos);
        }
        if self.attention.len() < rows.views.len() {
            self.attention.resize_with(rows.views.len(), Items::default);
        }
        for (items, view) in self.attention.iter_mut().zip(rows.views) {
            items.fill(view, 0..n_rows, n_head, n_kv_head, pass_shape.split_lists);
        }
        if let Some(last) = steps.iter().rfind(|step| matches!(step.op, Op::Attend { .. })) {
            let view = &rows.views[rows.view_of_slot[last.slot]];
            let outputs = rows.outputs.iter().copied();
            self.narrow_attention.fill(view, outputs, n_head, n_kv_head, pass_shape.split_lists);
        }
        if pass_shape.split_lists {
            let chunks = longest_list(rows).div_ceil(attention::CHUNK);
            self.buffers.make_room_for_parts(&self.model.plan.dims, n_rows, chunks);
        }
    }
}

impl Backend for CpuBackend {
    fn describe(&self) -> String {
        let threads = self.team.threads();
        format!("CPU, {}, {threads} thread{}", self.isa, if threads == 1 { "" } else { "s" })
    }

    fn threads(&self) -> usize {
        self.team.threads()
    }

    fn max_rows(&self) -> usize {
        self.buffers.max_rows()
    }

    fn keeps_hidden(&self) -> bool {
        true
    }

    fn run_segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        let Output::Logits(logits) = output else { unreachable!("this backend gives logits only") };
        if let Some(hidden) = crossing.hidden_in {
            self.buffers.hidden(rows.tokens.len()).copy_from_slice(hidden);
        }
        let pass_shape = self.pass_shape(steps, rows, crossing.hidden_out.is_some());
        let has_head = steps.iter().any(|step| step.unit == crate::plan::Unit::Head);
        assert!(!has_head || logits.len() == pass_shape.outputs * self.model.plan.dims.n_vocab);
        schedule::schedule(&self.model, steps, &pass_shape, &mut self.phases);
        self.prepare(steps, rows, &pass_shape);
        self.counters.iter_mut().for_each(WorkCounter::reset);
        if self.counters.len() < self.phases.len() {
            self.counters.resize_with(self.phases.len(), WorkCounter::default);
        }
        let pass = Pass {
            model: &self.model,
            weights: &self.weights,
            isa: self.isa,
            keys: &self.keys,
            values: &self.values,
            buffers: self.buffers.lend(&self.model.plan.dims, &pass_shape),
            vectors: &self.vectors,
            rows,
            shape: pass_shape,
            turns: &self.turns,
            attention: &self.attention,
            narrow_attention: &self.narrow_attention,
            logits: rows::SharedOut::new(logits),
            counters: &self.counters,
        };
        let phases = &self.phases;
        let started = Instant::now();
        if let Some(read_ahead) = &mut self.read_ahead {
            read_ahead.begin(phases);
        }
        let read_ahead = &self.read_ahead;
        self.team.run(|member| {
            for (i, phase) in phases.iter().enumerate() {
                if phase.sync {
                    member.sync();
                    if let (Some(read_ahead), 0) = (read_ahead, member.index) {
                        read_ahead.reached(i);
                    }
                }
                pass.run(i, phase, &member);
            }
        });
        let file = self.read_ahead.as_ref().map_or(0.0, ReadAhead::end);
        self.spent.file += file;
        self.spent.ram += started.elapsed().as_secs_f64() - file;
        if let Some(hidden) = crossing.hidden_out {
            hidden.copy_from_slice(self.buffers.hidden(rows.tokens.len()));
        }
        Ok(())
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        self.weights.bytes_read(&self.model, id, coarse)
    }

    fn crowded(&self) -> f64 {
        self.team.crowded()
    }

    fn spent(&self) -> Spent {
        self.spent
    }

    fn shift_keys(&mut self, moves: &[CellMove], delta: i64) -> Result<()> {
        let dims = &self.model.plan.dims;
        let turn = Turn::on(&self.model.plan.rope, delta);
        let mut head = vec![0.0; dims.head_dim];
        for slot in 0..self.keys.n_slots() {
            for kv_head in 0..dims.n_kv_head {
                let (keys, values) = (self.keys.head(slot, kv_head), self.values.head(slot, kv_head));
                for &CellMove { src, dst } in moves {
                    // SAFETY: no pass is running; `src` and `dst` are the same cell or disjoint.
                    unsafe {
                        ops::load_row(self.keys.ty, keys.row(src), &mut head);
                        self.isa.dispatch(Rotate { by: &turn, head: &mut head });
                        self.isa.dispatch(ops::StoreRow {
                            ty: self.keys.ty,
                            x: &head,
                            row: keys.row_mut(dst),
                        });
                        if src != dst {
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
    rows.views.iter().flat_map(|view| &view.visible).map(|&(_, len)| len).max().unwrap_or(0)
}

/// Threads for loading, whose work comes in uneven pieces: rayon deals it better than a team.
fn loaders(threads: usize) -> Result<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|e| Error::Memory(format!("cannot start {threads} threads: {e}: fewer `threads`")))
}

/// Of keys, values and work buffers.
pub fn overhead_bytes(
    model: &Model,
    n_cells: usize,
    n_slots: usize,
    types: [KvType; 2],
    max_rows: usize,
) -> u128 {
    let dims = &model.plan.dims;
    let row: usize = types.iter().map(|ty| ty.row_bytes(dims.head_dim)).sum();
    let cache = [n_slots, n_cells, dims.n_kv_head, row].into_iter().map(|n| n as u128).product::<u128>();
    cache + u128::from(Buffers::bytes_for(dims, max_rows))
}

/// Refuses what the machine cannot hold, where it tells how much it has: the system would grant the memory
/// and end the program later.
fn check_memory(model: &Model, config: &CpuConfig, shape: &KvShape) -> Result<()> {
    let types = [config.key_type, config.value_type];
    let needed = overhead_bytes(model, shape.n_cells, shape.n_slots, types, config.max_rows)
        + u128::from(KvCache::bytes_for(shape.n_cells));
    let Some(available) = available_memory() else { return Ok(()) };
    if needed > u128::from(available) {
        let gib = |bytes: u128| bytes as f64 / (1u64 << 30) as f64;
        return Err(Error::Memory(format!(
            "a context of {} tokens needs {:.1} GiB for keys, values and work buffers, {:.1} GiB are free: use a smaller `n_ctx`, or `key_type` and `value_type` q8_0",
            config.n_cells,
            gib(needed),
            gib(u128::from(available))
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

fn physical_cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    num_cpus::get_physical().clamp(1, allowed)
}
