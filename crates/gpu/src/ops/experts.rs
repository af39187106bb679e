//! Experts: a row's choice, products with the matrices that it chose, and their sum. A few rows go through their experts
//! one by one; many are sorted by expert first. Either way a row's products are those of any other matrix.

use super::{
    super::{
        command::{Binding, Load},
        formats::BLOCK,
        params::{ChooseParams, ExpertsSortParams, ExpertsSumParams, ProductParams},
        pipelines::{Bindings, Kernel, Mode, numbers_of},
        weights::{Joined, Numbers, To},
        work::{most_tiles, tiles_words},
    },
    AT_ONCE, Lowering, Ops, RowStep, Stage,
    products::Matrices,
};
use crate::plan::{Gating, MoeId, MoeSpec, Plan, Step, WeightId};

/// With more rows to an expert than this on average it is worth sorting them.
const ROWS_TO_SORT: usize = 4;

/// The commands' bindings for a layer's experts, if each row takes a given number of them.
pub struct Experts {
    sort: Binding,
    /// Gates and up matrices, together or apart, and then what comes behind them.
    gates: Vec<ExpertMatmul>,
    down: Vec<ExpertMatmul>,
    sum: RowStep,
}

/// A matrix of each expert, of the same size.
struct ExpertMatmul {
    matrices: Matrices,
    mode: Mode,
    /// Rows of one of the matrices.
    rows: u32,
    parts: Vec<Part>,
    /// Multiplies the gate by an up matrix of another format.
    then_activate: Option<RowStep>,
}

/// Experts whose matrices lie in one binding.
struct Part {
    by_pair: Binding,
    by_tile: Binding,
}

/// What the commands of a layer's experts depend on, besides the number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertsKey {
    pub id: MoeId,
    /// How many a row takes.
    pub taken: usize,
}

/// The layer's experts, and how many a row takes.
#[derive(Clone, Copy)]
struct Of<'a> {
    moe: &'a MoeSpec,
    taken: usize,
}

/// What a step of a pass takes of a layer's experts.
#[derive(Clone, Copy)]
pub struct Taking<'a> {
    id: MoeId,
    of: Of<'a>,
    coarse: bool,
}

impl<'a> Taking<'a> {
    pub fn new(plan: &'a Plan, id: MoeId, step: &Step) -> Self {
        let moe = plan.moe(id);
        Taking { id, of: Of { moe, taken: moe.taken(step.experts) }, coarse: step.coarse }
    }

    fn key(self) -> ExpertsKey {
        ExpertsKey { id: self.id, taken: self.of.taken }
    }
}

impl Ops {
    /// Makes a layer's experts for rows that take so many, unless they are there.
    pub(super) fn prepare_experts(&mut self, stage: &Stage, taking: Taking) {
        let (key, of) = (taking.key(), taking.of);
        if self.experts.contains_key(&key) {
            return;
        }
        let joined = self.expert_matrices[&key.id].clone();
        let (down, gates): (Vec<&Joined>, Vec<&Joined>) =
            joined.iter().partition(|joined| joined.src == of.moe.hidden);
        let sort = self.sorting(stage, of);
        let gates = gates.into_iter().map(|joined| self.matrices(stage, joined, of)).collect();
        let down = down.into_iter().map(|joined| self.matrices(stage, joined, of)).collect();
        let sum = self.experts_sum(stage, of);
        self.experts.insert(key, Experts { sort, gates, down, sum });
    }

    /// Makes a row's choice of so many, which may be for experts elsewhere, unless it is there.
    pub(super) fn prepare_choice(&mut self, stage: &Stage, taking: Taking) {
        if !self.choices.contains_key(&taking.key()) {
            let choice = self.choice(stage, taking.of);
            self.choices.insert(taking.key(), choice);
        }
    }

    fn choice(&mut self, stage: &Stage, Of { moe, taken }: Of) -> RowStep {
        let (scores, chosen) = (stage.rows_of(moe.scores), stage.rows_of(moe.chosen));
        let given = ChooseParams {
            experts: moe.n_expert as u32,
            used: taken as u32,
            scores_stride: scores.stride as u32,
            scores_first: scores.column as u32,
            chosen_stride: chosen.stride as u32,
            gating: match moe.gating {
                Gating::Softmax => 0,
                Gating::Sigmoid => 1,
                Gating::SoftmaxOfChosen => 2,
            },
            has_bias: u32::from(moe.choice_bias.is_some()),
            has_factors: u32::from(moe.expert_scale.is_some()),
            groups: moe.groups.map_or(1, |groups| groups.count as u32),
            groups_used: moe.groups.map_or(1, |groups| groups.used as u32),
            renormalises: u32::from(moe.renormalise),
            scale: moe.scale,
            weights_at: moe.n_used as u32,
        };
        let vector = |id: Option<WeightId>| stage.weights.numbers_if_any(id.map(Numbers::Vector));
        let (bias, factors) = (vector(moe.choice_bias), vector(moe.expert_scale));
        let storage = [stage.buffer(moe.scores), bias, factors, stage.buffer(moe.chosen)];
        self.row_step(stage, Kernel::Choose, &given, &storage, 1)
    }

    fn experts_sum(&mut self, stage: &Stage, Of { moe, taken }: Of) -> RowStep {
        let to = stage.rows_of(moe.dst);
        let given = ExpertsSumParams {
            width: to.width as u32,
            used: taken as u32,
            result_stride: (stage.rows_of(moe.results).stride / moe.n_used) as u32,
            chosen_stride: stage.rows_of(moe.chosen).stride as u32,
            dst_stride: to.stride as u32,
            dst_first: to.column as u32,
            adds: u32::from(moe.add),
            weights_at: moe.n_used as u32,
        };
        let storage = [moe.results, moe.chosen, moe.dst].map(|buf| stage.buffer(buf));
        self.row_step(stage, Kernel::ExpertsSum, &given, &storage, to.width.div_ceil(AT_ONCE))
    }

    fn sorting(&mut self, stage: &Stage, Of { moe, taken }: Of) -> Binding {
        let sections = &stage.rows.sections;
        let params = self.params.add(&ExpertsSortParams {
            experts: moe.n_expert as u32,
            used: taken as u32,
            chosen_stride: stage.rows_of(moe.chosen).stride as u32,
            count_at: sections.count() as u32,
            pairs_at: tiles_words(moe.n_expert, sections.max_rows * moe.n_used) as u32,
        });
        let rows = stage.rows.rows.as_entire_buffer_binding();
        let storage = [rows, stage.buffer(moe.chosen), sorted(stage)];
        Binding { group: stage.bind(&self.params, Kernel::ExpertsSort, &storage), params }
    }

    fn matrices(&mut self, stage: &Stage, joined: &Joined, Of { moe, taken }: Of) -> ExpertMatmul {
        let first = joined.weights[0];
        let matrix = &stage.weights.matrices[&first];
        let rows = matrix.rows / moe.n_expert;
        let (dst, out) = match joined.to {
            To::Rows(dst) => (dst, stage.buffer(dst)),
            To::UpRows(dst) => (dst, stage.up_rows()),
            To::Logits => unreachable!("experts make no logits"),
        };
        let matrices = Matrices::new(stage, first, joined.format, joined.src);
        self.add_preparer(stage, joined.src, matrices.arith);
        let x = || stage.input(joined.src, matrices.arith);
        // What each expert reads: the same row, or its own part of one.
        let (src, pairs_in_row) =
            (stage.rows_of(joined.src), if joined.src == moe.hidden { 1 } else { taken });
        let read = if joined.src == moe.hidden { src.stride / moe.n_used } else { src.stride };
        let bias = stage.weights.biases.get(&first);
        let parts = matrix.parts.iter().map(|part| {
            let params = self.params.add(&ProductParams {
                numbers: numbers_of(joined.activation),
                rows: rows as u32,
                blocks: matrix.blocks as u32,
                x_stride: (read / BLOCK) as u32,
                y_stride: (stage.rows_of(dst).stride / moe.n_used) as u32,
                y_first: 0,
                has_bias: u32::from(bias.is_some()),
                used: taken as u32,
                pairs_in_row: pairs_in_row as u32,
                chosen_stride: stage.rows_of(moe.chosen).stride as u32,
                first_expert: (part.first_row / rows) as u32,
                experts: (part.rows / rows) as u32,
                pairs_at: tiles_words(moe.n_expert, stage.rows.sections.max_rows * moe.n_used) as u32,
                ..ProductParams::default()
            });
            let bind = |by| {
                let storage = stage.product(first, part, x(), [out.clone(), by]);
                Binding { group: stage.bind(&self.params, Bindings::EXPERT_MATMUL, &storage), params }
            };
            Part { by_pair: bind(stage.buffer(moe.chosen)), by_tile: bind(sorted(stage)) }
        });
        let parts = parts.collect();
        let then_activate = self.activation(stage, joined);
        ExpertMatmul { matrices, mode: joined.mode, rows: rows as u32, parts, then_activate }
    }

    pub(super) fn choose_experts(&self, out: &mut Lowering, taking: Taking) {
        self.choices[&taking.key()].lower(out);
    }

    pub(super) fn sum_experts(&self, out: &mut Lowering, taking: Taking) {
        self.experts[&taking.key()].sum.lower(out);
    }

    /// The first products of each row's experts.
    pub(super) fn gate_experts(&self, out: &mut Lowering, taking: Taking) {
        let Experts { sort, gates, .. } = &self.experts[&taking.key()];
        if sorts(taking.of, out.rows) {
            out.dispatch(Kernel::ExpertsSort, sort, [1, 1, 1]);
        }
        gates.iter().for_each(|matrix| self.expert_products(out, matrix, taking));
    }

    /// What comes out of them.
    pub(super) fn finish_experts(&self, out: &mut Lowering, taking: Taking) {
        let Experts { down, .. } = &self.experts[&taking.key()];
        down.iter().for_each(|matrix| self.expert_products(out, matrix, taking));
    }

    fn expert_products(&self, out: &mut Lowering, matmul: &ExpertMatmul, taking: Taking) {
        let (Taking { of, coarse, .. }, rows) = (taking, out.rows);
        let &ExpertMatmul { matrices, mode, .. } = matmul;
        let Matrices { format, lanes, arith, src, work, .. } = matrices;
        self.make_ready(out, src, arith);
        let (coarse, bytes) = matrices.read(coarse);
        let (n_expert, pairs) = (of.moe.n_expert, rows * of.taken);
        let (all, read) = (n_expert as u64, pairs.min(n_expert) as u64);
        out.weigh(Load::of_product(work / all * pairs as u64, bytes * read / all));
        for part in &matmul.parts {
            if sorts(of, rows) {
                let kernel = Kernel::ExpertTile { format, mode, lanes, coarse, arith };
                let tiles = most_tiles(n_expert, pairs) as u32;
                out.dispatch(kernel, &part.by_tile, [matmul.rows.div_ceil(64), tiles, 1]);
            } else {
                let kernel = Kernel::ExpertRows { format, mode, lanes, coarse, arith };
                let at_once = kernel.rows_at_once(&out.gpu.tuning);
                out.dispatch(kernel, &part.by_pair, [matmul.rows.div_ceil(at_once), pairs as u32, 1]);
            }
        }
        matmul.then_activate.iter().for_each(|step| step.lower(out));
    }
}

fn sorts(Of { moe, taken }: Of, rows: usize) -> bool {
    rows * taken > ROWS_TO_SORT * moe.n_expert
}

fn sorted<'a>(stage: &Stage<'a>) -> wgpu::BufferBinding<'a> {
    stage.work.sorted.as_ref().expect("made for such a plan").as_entire_buffer_binding()
}
