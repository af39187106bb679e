//! Experts: the rows that chose one are gathered and multiplied with its matrices together, by the kernels that every
//! product takes, so that a row's bits are those that it has alone.

use std::ops::Range;

use super::{
    choice::{self, ChoiceScratch},
    matmul::{self, Acts, Mode, OutMatrix, QuantRows},
    ops::Activate,
    pass::{Pass, ROW_GRAIN, add},
    schedule::Phase,
    team::Member,
};
use crate::plan::{Buf, Linear, MoeSpec};

/// Per thread, kept from pass to pass.
#[derive(Default)]
pub struct ExpertScratch {
    choice: ChoiceScratch,
    by_expert: ByExpert,
    gathered: Gathered,
    products: [Vec<f32>; 2],
}

/// The choices of a pass's rows, sorted by expert.
#[derive(Default)]
struct ByExpert {
    /// By expert: where its choices begin.
    begins: Vec<usize>,
    choices: Vec<Choice>,
    /// Experts that some row chose.
    active: Vec<u32>,
}

/// Where an expert stands in the choice of a row.
#[derive(Clone, Copy, Default)]
struct Choice {
    row: u32,
    place: u32,
}

impl ByExpert {
    fn sort<'a>(&mut self, n_expert: usize, n_used: usize, chosen: impl Iterator<Item = &'a [f32]> + Clone) {
        let experts = |row: &'a [f32]| row[..n_used].iter().map(|&expert| expert as usize);
        // Counts stand two places behind their expert. Summed up they are the next expert's begin, one place behind
        // it, which moves to its end as the choices are put down.
        self.begins.clear();
        self.begins.resize(n_expert + 2, 0);
        for expert in chosen.clone().flat_map(experts) {
            self.begins[expert + 2] += 1;
        }
        self.active.clear();
        self.active.extend((0..n_expert as u32).filter(|&expert| self.begins[expert as usize + 2] > 0));
        for expert in 0..n_expert {
            self.begins[expert + 2] += self.begins[expert + 1];
        }
        self.choices.clear();
        self.choices.resize(self.begins[n_expert + 1], Choice::default());
        for (row, chosen) in chosen.enumerate() {
            for (place, expert) in experts(chosen).enumerate() {
                let at = &mut self.begins[expert + 1];
                self.choices[*at] = Choice { row: row as u32, place: place as u32 };
                *at += 1;
            }
        }
    }

    fn of(&self, expert: usize) -> &[Choice] {
        &self.choices[self.begins[expert]..self.begins[expert + 1]]
    }
}

/// Rows that chose an expert, side by side, in the forms that its matrices take.
#[derive(Default)]
struct Gathered {
    int8s: QuantRows,
    f32s: Vec<f32>,
}

/// One thread's part of a phase that multiplies with experts.
struct Products<'a> {
    pass: &'a Pass<'a>,
    moe: &'a MoeSpec,
    phase: &'a Phase,
    member: &'a Member<'a>,
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
                    &mut self.buffers.own(member).experts.choice,
                )
            };
            let bias = moe.choice_bias.map(|id| self.vector(id));
            let factors = moe.expert_scale.map(|id| self.vector(id));
            choice::choose(moe, moe.taken(phase.experts), scores, bias, factors, scratch, out);
        }
    }

    /// The experts that rows have chosen, row by row, where that is settled.
    pub fn chosen(&self, moe: &MoeSpec, phase: &Phase) -> impl Iterator<Item = usize> {
        let chosen = self.buffers.f32s(moe.chosen);
        // SAFETY: the choice is settled.
        let rows = (0..self.n_rows(phase)).map(|row| unsafe { chosen.row(row) });
        let n_used = moe.taken(phase.experts);
        rows.flat_map(move |row| row[..n_used].iter().map(|&expert| expert as usize))
    }

    pub fn experts_gate(&self, moe: &MoeSpec, index: usize, phase: &Phase, member: &Member) {
        let products = Products { pass: self, moe, phase, member };
        let firsts = [moe.gate.unwrap_or(moe.up), moe.up];
        let firsts = if moe.gate.is_some() { &firsts[..] } else { &firsts[..1] };
        products.for_experts(moe.hidden, index, |expert, columns, scratch| {
            let ExpertScratch { by_expert, gathered, products: [gates, ups], .. } = scratch;
            let rows = by_expert.of(expert);
            products.gather(firsts, moe.src, |_| 0, rows, gathered);
            for (&first, to) in firsts.iter().zip([&mut *gates, &mut *ups]) {
                products.multiply(first, expert, columns.clone(), rows.len(), gathered, to);
            }
            products.put_down(moe.hidden, rows, columns.clone(), |i, out| {
                let part = i * moe.ffn + columns.start..i * moe.ffn + columns.end;
                out.copy_from_slice(&gates[part.clone()]);
                let up = moe.gate.map(|_| &ups[part]);
                self.isa.dispatch(Activate { activation: moe.activation, gate: out, up });
            });
        });
    }

    pub fn experts_down(&self, moe: &MoeSpec, index: usize, phase: &Phase, member: &Member) {
        let products = Products { pass: self, moe, phase, member };
        let dim = self.buffers.f32s(moe.results).width() / moe.n_used;
        products.for_experts(moe.results, index, |expert, columns, scratch| {
            let ExpertScratch { by_expert, gathered, products: [results, _], .. } = scratch;
            let rows = by_expert.of(expert);
            let part_of = |choice: Choice| choice.place as usize * moe.ffn;
            products.gather(&[moe.down], moe.hidden, part_of, rows, gathered);
            products.multiply(moe.down, expert, columns.clone(), rows.len(), gathered, results);
            products.put_down(moe.results, rows, columns.clone(), |i, out| {
                out.copy_from_slice(&results[i * dim + columns.start..i * dim + columns.end]);
            });
        });
    }

    /// `dst = Σ weight · result`, in the order of the row's choice.
    pub fn experts_sum(&self, moe: &MoeSpec, phase: &Phase, member: &Member) {
        let buffers = &self.buffers;
        let (chosen, results, dst) =
            (buffers.f32s(moe.chosen), buffers.f32s(moe.results), buffers.f32s(moe.dst));
        let (dim, n_used) = (dst.width(), moe.taken(phase.experts));
        for item in member.share(self.n_rows(phase) * dim.div_ceil(ROW_GRAIN), 1) {
            let (row, piece) = (item / dim.div_ceil(ROW_GRAIN), item % dim.div_ceil(ROW_GRAIN));
            let columns = piece * ROW_GRAIN..dim.min((piece + 1) * ROW_GRAIN);
            // SAFETY: these columns of the row are this thread's share, the others are settled.
            let (weights, results, out) = unsafe {
                (
                    &chosen.row(row)[moe.n_used..][..n_used],
                    results.row(row),
                    dst.row_mut(row, columns.clone()),
                )
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
}

impl Products<'_> {
    /// Calls with this thread's parts of what each expert that some row chose writes to a buffer, where the results of
    /// a row's experts stand side by side.
    fn for_experts(&self, to: Buf, index: usize, each: impl Fn(usize, Range<usize>, &mut ExpertScratch)) {
        let Products { pass, moe, phase, member } = *self;
        let chosen = pass.buffers.f32s(moe.chosen);
        // SAFETY: the choice is settled.
        let choices = (0..pass.n_rows(phase)).map(|row| unsafe { chosen.row(row) });
        // Taken out, so that products may look at what this thread has for itself.
        // SAFETY: no reference to it is kept.
        let mut scratch = std::mem::take(&mut unsafe { pass.buffers.own(member) }.experts);
        scratch.by_expert.sort(moe.n_expert, moe.taken(phase.experts), choices);
        let width = pass.buffers.f32s(to).width() / moe.n_used;
        // Pieces do not cross from one expert to the next.
        let padded = width.next_multiple_of(ROW_GRAIN);
        for part in pass.deal(index, scratch.by_expert.active.len() * padded, phase, member) {
            for i in part.start / padded..part.end.div_ceil(padded) {
                let from = part.start.max(i * padded) - i * padded;
                let to = (part.end - i * padded).min(width);
                if from < to {
                    let expert = scratch.by_expert.active[i] as usize;
                    each(expert, from..to, &mut scratch);
                }
            }
        }
        // SAFETY: as above.
        unsafe { pass.buffers.own(member) }.experts = scratch;
    }

    /// Puts the rows that chose an expert side by side, in each form that one of its matrices takes: from `column` of
    /// `src` on.
    fn gather(
        &self,
        firsts: &[Linear],
        src: Buf,
        column: impl Fn(Choice) -> usize,
        rows: &[Choice],
        to: &mut Gathered,
    ) {
        let Products { pass, phase, member, .. } = *self;
        let quantized = |first: &Linear| pass.weights.get(pass.model, first.weight).wants_quantized();
        let width = pass.model.weight(firsts[0].weight).cols;
        if firsts.iter().any(quantized) {
            let from = pass.int8s(src, phase, member);
            to.int8s.gather(from, width, rows.iter().map(|&choice| (choice.row as usize, column(choice))));
        }
        if !firsts.iter().all(quantized) {
            let from = pass.floats(src, pass.n_rows(phase), member);
            let stride = pass.buffers.f32s(src).width();
            to.f32s.clear();
            for &choice in rows {
                let first = choice.row as usize * stride + column(choice);
                to.f32s.extend_from_slice(&from[first..][..width]);
            }
        }
    }

    /// Some rows of an expert's matrix times what was gathered.
    fn multiply(
        &self,
        first: Linear,
        expert: usize,
        columns: Range<usize>,
        n: usize,
        rows: &Gathered,
        to: &mut Vec<f32>,
    ) {
        let Products { pass, phase, .. } = *self;
        let weight = pass.weights.get(pass.model, first.weight.after(expert)).coarse(phase.coarse);
        let width = pass.model.weight(first.weight).rows;
        to.resize(to.len().max(n * width), 0.0);
        let mut out = OutMatrix::new(&mut to[..n * width], width, Mode::Store);
        let acts = match weight.wants_quantized() {
            true => Acts::Quantized(&rows.int8s),
            false => Acts::Float(&rows.f32s),
        };
        matmul::matmul(pass.isa, &weight, acts, &mut out.part(columns.clone()));
        if let Some(bias) = first.bias {
            let bias = &pass.vector(bias)[expert * width..][columns.clone()];
            for row in to[..n * width].chunks_exact_mut(width) {
                add(&mut row[columns.clone()], bias);
            }
        }
    }

    /// Calls with each row's part of a buffer where these columns of an expert's result belong.
    fn put_down(
        &self,
        to: Buf,
        rows: &[Choice],
        columns: Range<usize>,
        mut each: impl FnMut(usize, &mut [f32]),
    ) {
        let out = self.pass.buffers.f32s(to);
        let width = out.width() / self.moe.n_used;
        for (i, choice) in rows.iter().enumerate() {
            let first = choice.place as usize * width;
            // SAFETY: these columns of this expert's rows were dealt to this thread.
            let out = unsafe { out.row_mut(choice.row as usize, first + columns.start..first + columns.end) };
            each(i, out);
        }
    }
}
