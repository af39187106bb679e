//! Experts: the rows that chose one are gathered and multiplied with its matrices together, by the kernels that every
//! product takes, so that a row's bits are those that it has alone.

use std::ops::Range;

use super::{
    matmul::{self, Acts, Mode, OutMatrix, QuantRows},
    ops::Activate,
    pass::Pass,
    schedule::Phase,
    team::Member,
};
use crate::plan::{Gating, MoeSpec, WeightId};

/// Pieces of a matrix that threads take.
const ROW_GRAIN: usize = 32;

/// The smallest sum of weights that others are divided by.
const LEAST_SUM: f32 = 6.103_515_6e-5;

/// Per thread, kept from pass to pass.
#[derive(Default)]
pub struct ExpertScratch {
    /// By expert: where its rows begin in `rows`.
    begins: Vec<usize>,
    /// Row and place in its choice, expert by expert.
    rows: Vec<(u32, u32)>,
    /// Experts that some row chose.
    active: Vec<u32>,
    gathered: QuantRows,
    gathered_f32: Vec<f32>,
    products: [Vec<f32>; 2],
    /// By expert: its score, and what it is chosen by.
    probabilities: Vec<f32>,
    order: Vec<u32>,
}

impl ExpertScratch {
    /// Sorts the choices of all rows by expert.
    fn group<'a>(&mut self, n_expert: usize, n_used: usize, chosen: impl Iterator<Item = &'a [f32]> + Clone) {
        self.begins.clear();
        self.begins.resize(n_expert + 1, 0);
        let experts = |row: &'a [f32]| row[..n_used].iter().map(|&expert| expert as usize);
        for expert in chosen.clone().flat_map(experts) {
            self.begins[expert + 1] += 1;
        }
        self.active.clear();
        self.active.extend((0..n_expert as u32).filter(|&expert| self.begins[expert as usize + 1] > 0));
        for expert in 0..n_expert {
            self.begins[expert + 1] += self.begins[expert];
        }
        self.rows.clear();
        self.rows.resize(self.begins[n_expert], (0, 0));
        // Each begin moves to its end, which is the next one's begin.
        for (row, chosen) in chosen.enumerate() {
            for (place, expert) in experts(chosen).enumerate() {
                self.rows[self.begins[expert]] = (row as u32, place as u32);
                self.begins[expert] += 1;
            }
        }
    }

    fn rows_of(&self, expert: usize) -> Range<usize> {
        range_before(&self.begins, expert)
    }
}

// SAFETY comments as in `pass`: barriers between phases, shares within one.
impl Pass<'_> {
    /// Numbers of the chosen experts, the best first, then their weights.
    pub fn choose(&self, moe: &MoeSpec, phase: &Phase, member: &Member) {
        let (scores, chosen) = (self.buffers.f32s(moe.scores), self.buffers.f32s(moe.chosen));
        for row in member.share(self.n_rows(phase), 1) {
            // SAFETY: scores are settled, the row of the choice is this thread's share; the only reference to what this
            // thread has for itself, until the row is done.
            let (scores, out, scratch) = unsafe {
                (
                    scores.row(row),
                    chosen.row_mut(row, 0..chosen.width()),
                    &mut self.buffers.own(member).experts,
                )
            };
            let bias = moe.choice_bias.map(|id| self.vector(id));
            let factors = moe.expert_scale.map(|id| self.vector(id));
            choose_row(moe, scores, bias, factors, scratch, out);
        }
    }

    pub fn experts_gate(&self, moe: &MoeSpec, index: usize, phase: &Phase, member: &Member) {
        let gate = moe.gate.map(|gate| (gate, moe.gate_bias));
        let matrices = [gate.unwrap_or((moe.up, moe.up_bias)), (moe.up, moe.up_bias)];
        let matrices = if gate.is_some() { &matrices[..] } else { &matrices[..1] };
        let out = self.buffers.f32s(moe.hidden);
        self.for_experts(moe, moe.ffn, index, phase, member, |expert, columns, scratch| {
            self.gather(moe, expert, matrices[0].0, false, phase, member, scratch);
            for (i, &(first, bias)) in matrices.iter().enumerate() {
                self.multiply(first, bias, expert, moe.ffn, columns.clone(), i, phase, scratch);
            }
            let ExpertScratch { rows, begins, products: [gates, ups], .. } = scratch;
            for (i, &(row, place)) in rows[range_before(begins, expert)].iter().enumerate() {
                let part = i * moe.ffn + columns.start..i * moe.ffn + columns.end;
                let up = gate.map(|_| &ups[part.clone()]);
                let gate = &mut gates[part];
                self.isa.dispatch(Activate { activation: moe.activation, gate: &mut *gate, up });
                let first = place as usize * moe.ffn;
                // SAFETY: these columns of this expert's rows were dealt to this thread.
                unsafe { out.row_mut(row as usize, first + columns.start..first + columns.end) }
                    .copy_from_slice(gate);
            }
        });
    }

    pub fn experts_down(&self, moe: &MoeSpec, index: usize, phase: &Phase, member: &Member) {
        let out = self.buffers.f32s(moe.results);
        let dim = out.width() / moe.n_used;
        self.for_experts(moe, dim, index, phase, member, |expert, columns, scratch| {
            self.gather(moe, expert, moe.down, true, phase, member, scratch);
            self.multiply(moe.down, moe.down_bias, expert, dim, columns.clone(), 0, phase, scratch);
            let ExpertScratch { rows, products: [results, _], begins, .. } = scratch;
            for (i, &(row, place)) in rows[range_before(begins, expert)].iter().enumerate() {
                let first = place as usize * dim;
                // SAFETY: these columns of this expert's rows were dealt to this thread.
                unsafe { out.row_mut(row as usize, first + columns.start..first + columns.end) }
                    .copy_from_slice(&results[i * dim + columns.start..i * dim + columns.end]);
            }
        });
    }

    /// `dst = Σ weight · result`, in the order of the row's choice.
    pub fn experts_sum(&self, moe: &MoeSpec, phase: &Phase, member: &Member) {
        let buffers = &self.buffers;
        let (chosen, results, dst) =
            (buffers.f32s(moe.chosen), buffers.f32s(moe.results), buffers.f32s(moe.dst));
        let dim = dst.width();
        for item in member.share(self.n_rows(phase) * dim.div_ceil(ROW_GRAIN), 1) {
            let (row, piece) = (item / dim.div_ceil(ROW_GRAIN), item % dim.div_ceil(ROW_GRAIN));
            let columns = piece * ROW_GRAIN..dim.min((piece + 1) * ROW_GRAIN);
            // SAFETY: these columns of the row are this thread's share, the others are settled.
            let (weights, results, out) = unsafe {
                (&chosen.row(row)[moe.n_used..], results.row(row), dst.row_mut(row, columns.clone()))
            };
            for (out, column) in out.iter_mut().zip(columns) {
                let mut sum = 0.0;
                for (place, weight) in weights.iter().enumerate() {
                    sum += results[place * dim + column] * weight;
                }
                *out = if moe.add { *out + sum } else { sum };
            }
        }
    }

    /// Calls with this thread's parts of the matrices of all experts that some row chose.
    fn for_experts(
        &self,
        moe: &MoeSpec,
        rows: usize,
        index: usize,
        phase: &Phase,
        member: &Member,
        each: impl Fn(usize, Range<usize>, &mut ExpertScratch),
    ) {
        let chosen = self.buffers.f32s(moe.chosen);
        // SAFETY: the choice is settled.
        let choices = (0..self.n_rows(phase)).map(|row| unsafe { chosen.row(row) });
        // Taken out, so that products may look at what this thread has for itself.
        // SAFETY: no reference to it is kept.
        let mut scratch = std::mem::take(&mut unsafe { self.buffers.own(member) }.experts);
        scratch.group(moe.n_expert, moe.n_used, choices);
        // Pieces do not cross from one expert to the next.
        let padded = rows.next_multiple_of(ROW_GRAIN);
        for part in self.deal(index, scratch.active.len() * padded, phase, member) {
            for i in part.start / padded..part.end.div_ceil(padded) {
                let from = part.start.max(i * padded) - i * padded;
                let to = (part.end - i * padded).min(rows);
                if from < to {
                    let expert = scratch.active[i] as usize;
                    each(expert, from..to, &mut scratch);
                }
            }
        }
        // SAFETY: as above.
        unsafe { self.buffers.own(member) }.experts = scratch;
    }

    /// Puts the rows that chose an expert side by side, in the form that its matrix takes: those of `src`, or their parts
    /// of `hidden`.
    #[allow(clippy::too_many_arguments)]
    fn gather(
        &self,
        moe: &MoeSpec,
        expert: usize,
        first: WeightId,
        hidden: bool,
        phase: &Phase,
        member: &Member,
        scratch: &mut ExpertScratch,
    ) {
        let range = scratch.rows_of(expert);
        let ExpertScratch { rows, gathered, gathered_f32, .. } = scratch;
        let rows = &rows[range];
        let width = self.model.weight(first).cols;
        let src = if hidden { moe.hidden } else { moe.src };
        let column = |place: u32| if hidden { place as usize * width } else { 0 };
        if self.weights.get(self.model, first).wants_quantized() {
            let from = self.int8s(src, phase, member);
            gathered.gather(from, width, rows.iter().map(|&(row, place)| (row as usize, column(place))));
        } else {
            let from = self.floats(src, self.n_rows(phase), member);
            let stride = self.buffers.f32s(src).width();
            gathered_f32.clear();
            for &(row, place) in rows {
                gathered_f32.extend_from_slice(&from[row as usize * stride + column(place)..][..width]);
            }
        }
    }

    /// Some rows of an expert's matrix times what was gathered, into one of the two products.
    #[allow(clippy::too_many_arguments)]
    fn multiply(
        &self,
        first: WeightId,
        bias: Option<WeightId>,
        expert: usize,
        n_rows: usize,
        columns: Range<usize>,
        to: usize,
        phase: &Phase,
        scratch: &mut ExpertScratch,
    ) {
        let n = scratch.rows_of(expert).len();
        let ExpertScratch { gathered, gathered_f32, products, .. } = scratch;
        let product = &mut products[to];
        product.resize(product.len().max(n * n_rows), 0.0);
        let weight = self.weights.get(self.model, first.after(expert)).coarse(phase.coarse);
        let mut out = OutMatrix::new(&mut product[..n * n_rows], n_rows, Mode::Store);
        let acts = match weight.wants_quantized() {
            true => Acts::Quantized(gathered),
            false => Acts::Float(gathered_f32),
        };
        matmul::matmul(self.isa, &weight, acts, &mut out.part(columns.clone()));
        if let Some(bias) = bias {
            let bias = &self.vector(bias)[expert * n_rows..][..n_rows];
            for row in product[..n * n_rows].chunks_exact_mut(n_rows) {
                let row = &mut row[columns.clone()];
                row.iter_mut().zip(&bias[columns.clone()]).for_each(|(out, b)| *out += b);
            }
        }
    }
}

/// Where an expert's rows stand, once begins have moved to their ends.
fn range_before(begins: &[usize], expert: usize) -> Range<usize> {
    let begin = if expert == 0 { 0 } else { begins[expert - 1] };
    begin..begins[expert]
}

/// A row's choice: equal scores go to the lower number.
fn choose_row(
    moe: &MoeSpec,
    scores: &[f32],
    bias: Option<&[f32]>,
    factors: Option<&[f32]>,
    scratch: &mut ExpertScratch,
    out: &mut [f32],
) {
    let ExpertScratch { probabilities, order, gathered_f32: keys, .. } = scratch;
    probabilities.clear();
    probabilities.extend_from_slice(scores);
    match moe.gating {
        Gating::Softmax => softmax(probabilities),
        Gating::Sigmoid => probabilities.iter_mut().for_each(|p| *p = 1.0 / (1.0 + (-*p).exp())),
        Gating::SoftmaxOfChosen => {}
    }
    keys.clear();
    keys.extend_from_slice(probabilities);
    if let Some(bias) = bias {
        keys.iter_mut().zip(bias).for_each(|(key, bias)| *key += bias);
    }
    // NaN counts as the least, so that every row has a choice.
    keys.iter_mut().filter(|key| key.is_nan()).for_each(|key| *key = f32::NEG_INFINITY);
    if let Some(groups) = moe.groups {
        let size = moe.n_expert / groups.count;
        let mut sums: Vec<(f32, usize)> = keys
            .chunks_exact(size)
            .enumerate()
            .map(|(group, keys)| {
                let (mut best, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
                for &key in keys {
                    if key > best {
                        (best, second) = (key, best);
                    } else if key > second {
                        second = key;
                    }
                }
                (best + second, group)
            })
            .collect();
        sums.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for &(_, group) in &sums[groups.used..] {
            keys[group * size..][..size].fill(f32::NEG_INFINITY);
        }
    }
    order.clear();
    order.extend(0..moe.n_expert as u32);
    let better = |&a: &u32, &b: &u32| keys[b as usize].total_cmp(&keys[a as usize]).then(a.cmp(&b));
    if moe.n_used < moe.n_expert {
        order.select_nth_unstable_by(moe.n_used, better);
    }
    order[..moe.n_used].sort_unstable_by(better);
    let (numbers, weights) = out.split_at_mut(moe.n_used);
    for ((number, weight), &expert) in numbers.iter_mut().zip(&mut *weights).zip(&*order) {
        (*number, *weight) = (expert as f32, probabilities[expert as usize]);
    }
    if moe.gating == Gating::SoftmaxOfChosen {
        softmax(weights);
    }
    if moe.renormalise {
        let sum: f32 = weights.iter().sum();
        let sum = sum.max(LEAST_SUM);
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    for (weight, &expert) in weights.iter_mut().zip(&*order) {
        *weight *= moe.scale * factors.map_or(1.0, |factors| factors[expert as usize]);
    }
}

fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}
