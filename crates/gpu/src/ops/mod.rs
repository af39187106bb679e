//! The plan's operations on the device: for each its kernel, its bind group and its slot of parameters, made at
//! load (those of a K/V slot when it is first used).

mod attention;
mod experts;
mod lower;
pub mod mixers;
mod per_head;
mod products;
mod small;
mod stored;
mod unscaled;

use std::collections::HashMap;

use attention::{Attention, AttentionKey};
use experts::{Experts, ExpertsKey};
use lower::Lowering;
pub use lower::{Borders, HeadPiece, Pass, Tap};
use mixers::Mixer;
use per_head::PerHead;
use products::Matmul;
use small::{Factor, NormRows, Source, Taken};
use stored::MOST_PARTS as MOST_STORING_PARTS;
use unscaled::DeferredNorm;

use super::{
    command::Binding,
    device::Gpu,
    layout::BufLayout,
    params::Params,
    pipelines::{Bindings, Kernel, Pipelines},
    rows::RowData,
    states::StateStore,
    variants::Arith,
    weights::{Apart, Held, Joined, MatrixPart, Weights, join},
    work::{KvBuffers, MOST_PIECES, OUTPUTS_AT_ONCE, WorkBuffers},
};
use crate::{
    Model,
    plan::{Buf, MixerId, MoeId, Op, OpId, Plan, PlanOp, WeightId},
};

/// A kernel that takes each row by itself, in so many workgroups.
struct RowStep {
    kernel: Kernel,
    bound: Binding,
    groups: u32,
}

/// Numbers of a row that a workgroup makes, in kernels that make each number by itself.
const AT_ONCE: usize = 64;

impl RowStep {
    fn lower(&self, out: &mut Lowering) {
        out.dispatch(self.kernel, &self.bound, [self.groups, out.rows as u32, 1]);
        if matches!(self.kernel, Kernel::Norm(arith) if arith != Arith::Float) {
            out.add_ready(Buf::H);
        }
    }
}

/// Bindings that the matrices of a layer's experts come to at most, with a margin.
const EXPERT_PARTS: usize = 16;

pub struct Ops {
    pub params: Params,
    /// How many rows at a time can have long contexts split.
    split_rows: usize,
    /// Rows of a piece of attention.
    piece_rows: usize,
    /// Capacity of the buffer for sums of lanes.
    lane_sums_bytes: usize,
    /// How norms prepare rows for products.
    arith: Arith,
    /// Operations on each row by itself; those of the head are the norms of each piece of a batch's outputs.
    on_rows: HashMap<OpId, Vec<RowStep>>,
    /// Norms whose scale is left to the products that read them.
    unscaled: DeferredNorm,
    /// By the first of the weights that are joined.
    matmuls: HashMap<WeightId, Matmul>,
    /// What prepares a buffer's rows for products that do not take floats.
    preparers: HashMap<Buf, RowStep>,
    /// Made when a pass first needs them.
    choices: HashMap<ExpertsKey, RowStep>,
    experts: HashMap<ExpertsKey, Experts>,
    expert_matrices: HashMap<MoeId, Vec<Joined>>,
    per_head: HashMap<OpId, PerHead>,
    mixers: HashMap<MixerId, Mixer>,
    /// Scales and caps logits, where the plan asks for it.
    cap: Option<RowStep>,
    attentions: HashMap<AttentionKey, Attention>,
}

/// Everything that operations bind.
pub struct Stage<'a> {
    pub gpu: &'a Gpu,
    pub model: &'a Model,
    pub pipelines: &'a Pipelines,
    pub weights: &'a Weights,
    pub work: &'a WorkBuffers,
    pub cache: &'a KvBuffers,
    pub rows: &'a RowData,
    pub states: &'a StateStore,
}

impl Stage<'_> {
    fn bind(
        &self,
        params: &Params,
        bindings: impl Into<Bindings>,
        storage: &[wgpu::BufferBinding],
    ) -> wgpu::BindGroup {
        self.pipelines.bind(self.gpu, bindings, params.buffer(), storage)
    }

    /// What products bind: a part of the matrix that begins with a weight, its biases, rows, and what is made of them.
    fn product<'b>(
        &'b self,
        first: WeightId,
        part: &MatrixPart,
        x: wgpu::BufferBinding<'b>,
        made: impl IntoIterator<Item = wgpu::BufferBinding<'b>>,
    ) -> Vec<wgpu::BufferBinding<'b>> {
        let [high, low, scales] = part.streams.map(|s| self.weights.binding(s));
        [high, low, scales, self.weights.bias_of(first, part), x].into_iter().chain(made).collect()
    }

    /// Where a buffer's rows lie.
    fn rows_of(&self, buf: Buf) -> BufLayout {
        self.work.layout.rows_of(buf)
    }

    fn buffer(&self, buf: Buf) -> wgpu::BufferBinding<'_> {
        self.work.buffer(buf).as_entire_buffer_binding()
    }

    /// Where an up matrix writes its products if its gate has another format.
    fn up_rows(&self) -> wgpu::BufferBinding<'_> {
        self.work.up.as_ref().expect("made for such a plan").as_entire_buffer_binding()
    }

    /// Heads' parts of rows, copied to whole blocks.
    fn head_parts(&self) -> wgpu::BufferBinding<'_> {
        self.work.head_parts.as_ref().expect("made for such a plan").as_entire_buffer_binding()
    }

    /// The same, prepared for products that do not take floats.
    fn head_parts_prepared(&self) -> wgpu::BufferBinding<'_> {
        self.work.head_parts_prepared.as_ref().expect("made for such products").as_entire_buffer_binding()
    }

    fn logits(&self) -> wgpu::BufferBinding<'_> {
        self.work.logits.as_ref().expect("the head lives here").as_entire_buffer_binding()
    }

    /// A buffer's rows in the form that such products read.
    fn input(&self, buf: Buf, arith: Arith) -> wgpu::BufferBinding<'_> {
        if arith == Arith::Float { self.buffer(buf) } else { self.prepared(buf) }
    }

    /// A buffer's rows, prepared for products that do not take floats.
    fn prepared(&self, buf: Buf) -> wgpu::BufferBinding<'_> {
        let prepared = self.work.prepared.as_ref().expect("made for such products");
        prepared.of(buf).as_entire_buffer_binding()
    }
}

impl Ops {
    /// The most parameter slots that a plan may need. `matrix_parts`: parts of all its matrices.
    pub fn count(plan: &Plan, matrix_parts: usize, n_slots: usize, max_rows: usize) -> usize {
        let n_layer = plan.layers.len();
        // One for each part; one to multiply a gate by an up matrix of another format, or to copy and prepare heads' parts;
        // and one for a product that also does the next norm.
        let products = 3 * matrix_parts;
        let on_rows = plan.ops().count();
        // Choice, sorting, sum, and the matrices, for each number that a row may take.
        let experts: usize = plan.experts.iter().map(|moe| moe.n_used * (3 + 2 * EXPERT_PARTS)).sum();
        let head = plan.heads().count() * (max_rows.div_ceil(OUTPUTS_AT_ONCE) + 1);
        let preparers = plan.widths.len();
        // Storing takes up to three, or one for each part of the products that store; attention takes one for each piece. Each
        // layer has a slot of its own, and may use any slot that no layer owns.
        let attentions = (3 + MOST_STORING_PARTS + MOST_PIECES.min(max_rows))
            * n_layer
            * (1 + n_slots.saturating_sub(n_layer));
        products + on_rows + experts + head + preparers + attentions
    }

    pub fn new(stage: &Stage, held: Held, params: Params) -> Self {
        let mut ops = Ops {
            params,
            split_rows: stage.work.split_rows,
            piece_rows: stage.work.piece_rows,
            lane_sums_bytes: stage.work.lane_sums.size() as usize,
            arith: stage.work.arith,
            unscaled: DeferredNorm::of(stage),
            on_rows: HashMap::new(),
            matmuls: HashMap::new(),
            preparers: HashMap::new(),
            choices: HashMap::new(),
            experts: HashMap::new(),
            expert_matrices: HashMap::new(),
            per_head: HashMap::new(),
            mixers: HashMap::new(),
            cap: None,
            attentions: HashMap::new(),
        };
        for part in held.units.ops(&stage.model.plan) {
            for &op in &part {
                ops.make(stage, op);
            }
            for joined in join(stage.model, &stage.work.layout, &part, held.by_planes) {
                match joined.apart {
                    Some(Apart::Experts(id)) => ops.expert_matrices.entry(id).or_default().push(joined),
                    Some(Apart::Heads) => {}
                    None => ops.add_matmul(stage, &joined),
                }
            }
        }
        ops.bind_unscaled(stage, held.units);
        ops
    }

    /// A kernel with parameters of its own, in so many workgroups for each row.
    fn row_step<T: bytemuck::NoUninit>(
        &mut self,
        stage: &Stage,
        kernel: Kernel,
        given: &T,
        storage: &[wgpu::BufferBinding],
        groups: usize,
    ) -> RowStep {
        let params = self.params.add(given);
        let bound = Binding { group: stage.bind(&self.params, kernel, storage), params };
        RowStep { kernel, bound, groups: groups as u32 }
    }

    /// An operation that is made at load by itself: attention and experts are made
    /// when a pass first needs them, and products are joined.
    fn make(&mut self, stage: &Stage, PlanOp { id: op_id, op }: PlanOp) {
        // What sublayers share is among the operations of both.
        if self.on_rows.contains_key(&op_id) || self.per_head.contains_key(&op_id) {
            return;
        }
        let steps = match *op {
            Op::Embed { table, by, dst, scale, add } => self.embed(stage, table, by, dst, scale, add),
            // Bound when the product before it is known.
            Op::Norm { .. } if self.unscaled.has(op_id) => return,
            Op::Norm { norm, group, src, dst, add } => {
                vec![self.norm(stage, op, &norm, NormRows { group, src, dst, add, list_at: None })]
            }
            Op::Multiply { dst, f, by, g, column } => {
                let (dst, by) = (Factor { buf: dst, activation: f }, Factor { buf: by, activation: g });
                vec![self.multiply(stage, dst, by, column)]
            }
            Op::Add { src, dst, scale, gate } => vec![self.add(stage, src, dst, scale, gate)],
            Op::Scale { buf, by } => vec![self.scale(stage, buf, by)],
            Op::Weigh { buf, adapter } => vec![self.weigh(stage, buf, adapter)],
            Op::Take { src, from, group, dst, to } => {
                let parts = stage.rows_of(src).width / from.every;
                let source = Source { src, from, parts, taken: group };
                vec![self.take(stage, source, Taken::into_parts(stage, dst, to, group))]
            }
            Op::Head { norm, scale, cap, .. } => {
                self.cap = self.logits(stage, scale, cap);
                let first = stage.rows.sections.outputs();
                let lists = (first..first + stage.work.max_rows).step_by(OUTPUTS_AT_ONCE);
                let rows = NormRows { group: 0, src: Buf::X, dst: Buf::H, add: false, list_at: None };
                let rows = lists.map(|list_at| NormRows { list_at: Some(list_at), ..rows });
                rows.map(|rows| self.norm(stage, op, &norm, rows)).collect()
            }
            Op::PerHead { .. } => return self.add_per_head(stage, PlanOp { id: op_id, op }),
            // With its scan.
            Op::Convolve(id) => return self.add_mixer(stage, id),
            Op::MatMul { .. }
            | Op::Gate { .. }
            | Op::Store(_)
            | Op::Attend(_)
            | Op::Choose(_)
            | Op::ExpertsGate(_)
            | Op::ExpertsDown(_)
            | Op::Scan(_)
            | Op::ExpertsSum(_) => return,
        };
        self.on_rows.insert(op_id, steps);
    }
}

/// A grid of so many workgroups: in two dimensions if there are too many for one.
pub fn in_two(groups: u32, limits: &wgpu::Limits) -> [u32; 3] {
    let most = limits.max_compute_workgroups_per_dimension;
    let y = groups.div_ceil(most);
    [groups.div_ceil(y), y, 1]
}
