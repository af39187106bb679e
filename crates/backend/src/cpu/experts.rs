//! Experts: the rows that chose one are gathered and multiplied with its matrices together, by the kernels that every
//! product takes, so that a row's bits are those that it has alone.

use std::ops::Range;

use super::{
    choice::{self, ChoiceScratch},
    matmul::{self, Acts, Mode, OutMatrix, QuantRows, Weight},
    offload::{Bundle, OffloadDevice},
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
    /// Those of them whose products another device makes.
    offload: Vec<u32>,
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

    /// Puts experts apart whose products another device takes, by their number and how many rows there are.
    fn offload(&mut self, takes: impl Fn(usize, usize) -> bool) {
        let ByExpert { begins, active, offload, .. } = self;
        let takes = |expert: usize| takes(expert, begins[expert + 1] - begins[expert]);
        offload.clear();
        offload.extend(active.iter().filter(|&&expert| takes(expert as usize)));
        active.retain(|&expert| !takes(expert as usize));
    }
}

/// Rows that chose an expert, side by side, in the forms that its matrices take.
#[derive(Default)]
pub struct Gathered {
    int8s: QuantRows,
    pub f32s: Vec<f32>,
    /// What an adapter's first matrix makes of some.
    pub thin: Vec<f32>,
}

/// One thread's part of a phase that multiplies with experts.
struct Products<'a> {
    pass: &'a Pass<'a>,
    moe: &'a MoeSpec,
    phase: &'a Phase,
    member: &'a Member<'a>,
    /// Its number.
    index: usize,
    /// What each expert multiplies the same rows with: their matrices, the first expert's.
    firsts: &'a [Linear],
    src: Buf,
    /// Where a row's part for a place in its choice begins, if not at its start.
    by_place: bool,
    /// Where results go.
    to: Buf,
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
        let firsts = [moe.gate.unwrap_or(moe.up), moe.up];
        let firsts = if moe.gate.is_some() { &firsts[..] } else { &firsts[..1] };
        let (src, to) = (moe.src, moe.hidden);
        let products = Products { pass: self, moe, phase, member, index, firsts, src, by_place: false, to };
        let activate = |gate: &mut [f32], up: Option<&[f32]>| {
            Activate { activation: moe.activation, gate, up }.on(self.isa);
        };
        let here = |expert: usize, columns: Range<usize>, scratch: &mut ExpertScratch| {
            let ExpertScratch { by_expert, gathered, products: [gates, ups], .. } = scratch;
            let rows = by_expert.of(expert);
            products.gather(rows, gathered);
            for (&first, to) in firsts.iter().zip([&mut *gates, &mut *ups]) {
                products.multiply(first, expert, columns.clone(), rows, gathered, to);
            }
            products.put_down(rows, columns.clone(), |i, out| {
                let part = i * moe.ffn + columns.start..i * moe.ffn + columns.end;
                out.copy_from_slice(&gates[part.clone()]);
                activate(out, moe.gate.map(|_| &ups[part]));
            });
        };
        let offload =
            |offload: &OffloadDevice, expert: usize, columns: Range<usize>, by_expert: &ByExpert| {
                let rows = by_expert.of(expert);
                products.put_down(rows, columns.clone(), |i, gate| {
                    products.add_bias(firsts[0], expert, columns.clone(), gate);
                    let up = moe.gate.map(|_| {
                        let part = products.place_apart(rows[i], columns.clone());
                        // SAFETY: these columns of this expert's rows were dealt to this thread.
                        let up = unsafe { offload.apart().row_mut(0, part) };
                        products.add_bias(moe.up, expert, columns.clone(), up);
                        &*up
                    });
                    activate(gate, up);
                });
            };
        products.for_experts(here, offload);
    }

    pub fn experts_down(&self, moe: &MoeSpec, index: usize, phase: &Phase, member: &Member) {
        let (firsts, src, to) = (&[moe.down], moe.hidden, moe.results);
        let products = Products { pass: self, moe, phase, member, index, firsts, src, by_place: true, to };
        let dim = products.width();
        let here = |expert: usize, columns: Range<usize>, scratch: &mut ExpertScratch| {
            let ExpertScratch { by_expert, gathered, products: [results, _], .. } = scratch;
            let rows = by_expert.of(expert);
            products.gather(rows, gathered);
            products.multiply(moe.down, expert, columns.clone(), rows, gathered, results);
            products.put_down(rows, columns.clone(), |i, out| {
                out.copy_from_slice(&results[i * dim + columns.start..i * dim + columns.end]);
            });
        };
        let offload = |_: &OffloadDevice, expert: usize, columns: Range<usize>, by_expert: &ByExpert| {
            products.put_down(by_expert.of(expert), columns.clone(), |_, out| {
                products.add_bias(moe.down, expert, columns.clone(), out);
            });
        };
        products.for_experts(here, offload);
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
    /// Of an expert's result.
    fn width(&self) -> usize {
        self.pass.buffers.f32s(self.to).width() / self.moe.n_used
    }

    fn weight(&self, first: Linear, expert: usize) -> Weight<'_> {
        self.pass.weights.get(self.pass.model, first.weight.after(expert))
    }

    /// Where in a row of `src` the part of a place in its choice begins.
    fn begin(&self, choice: Choice) -> usize {
        if self.by_place { choice.place as usize * self.moe.ffn } else { 0 }
    }

    /// Calls with this thread's parts of what each expert that some row chose writes, where the results of a row's
    /// experts stand side by side: `here` to make them, `offload` where another device has put products there.
    fn for_experts(
        &self,
        here: impl Fn(usize, Range<usize>, &mut ExpertScratch),
        offload: impl Fn(&OffloadDevice, usize, Range<usize>, &ByExpert),
    ) {
        let Products { pass, moe, phase, member, index, .. } = *self;
        let chosen = pass.buffers.f32s(moe.chosen);
        // SAFETY: the choice is settled.
        let choices = (0..pass.n_rows(phase)).map(|row| unsafe { chosen.row(row) });
        // Taken out, so that products may look at what this thread has for itself.
        // SAFETY: no reference to it is kept.
        let mut scratch = std::mem::take(&mut unsafe { pass.buffers.own(member) }.experts);
        scratch.by_expert.sort(moe.n_expert, moe.taken(phase.experts), choices);
        let width = self.width();
        // Pieces do not cross from one expert to the next.
        let padded = width.next_multiple_of(ROW_GRAIN);
        let pieces = |part: Range<usize>| {
            (part.start / padded..part.end.div_ceil(padded)).filter_map(move |i| {
                let columns = part.start.max(i * padded) - i * padded..(part.end - i * padded).min(width);
                (!columns.is_empty()).then_some((i, columns))
            })
        };
        match self.offload(&mut scratch.by_expert) {
            None => {
                let all = scratch.by_expert.active.len() * padded;
                for (i, columns) in pass.deal(index, all, phase, member).flat_map(pieces) {
                    let expert = scratch.by_expert.active[i] as usize;
                    here(expert, columns, &mut scratch);
                }
            }
            Some(device) => {
                if member.index == 0 {
                    self.multiply_there(device, &scratch.by_expert);
                }
                // Meanwhile the others take one expert after the other of those that stay.
                while let Some(&expert) = scratch.by_expert.active.get(pass.counters[index].next()) {
                    here(expert as usize, 0..width, &mut scratch);
                }
                member.sync();
                let all = scratch.by_expert.offload.len() * padded;
                for (i, columns) in member.deal(None, all, ROW_GRAIN).flat_map(pieces) {
                    let expert = scratch.by_expert.offload[i] as usize;
                    match device.is_declined(index) {
                        true => here(expert, columns, &mut scratch),
                        false => offload(device, expert, columns, &scratch.by_expert),
                    }
                }
                // The next products may take the room of those that stood apart.
                member.sync();
            }
        }
        // SAFETY: as above.
        unsafe { pass.buffers.own(member) }.experts = scratch;
    }

    /// Puts experts apart whose products another device makes; says which, if there are any.
    fn offload(&self, by_expert: &mut ByExpert) -> Option<&OffloadDevice> {
        let device = self.pass.offload.filter(|_| !self.phase.coarse)?;
        by_expert.offload(|expert, rows| {
            let takes = |weight| device.takes(weight, rows) && !self.pass.is_adapted(weight);
            self.firsts.iter().all(|first| takes(first.weight.after(expert)))
        });
        (!by_expert.offload.is_empty()).then_some(device)
    }

    /// Has the other device make the products of all experts that were put apart.
    fn multiply_there(&self, device: &OffloadDevice, by_expert: &ByExpert) {
        let Products { pass, phase, member, firsts, src, to, .. } = *self;
        let x = pass.int8s(src, phase, member);
        let (out, width) = (pass.buffers.f32s(to), self.width());
        let bundle = |&expert: &u32| {
            let expert = expert as usize;
            let rows = by_expert.of(expert);
            let place = |i: usize, choice: Choice| {
                let first = choice.place as usize * width;
                // SAFETY: no other thread touches what this expert writes, or what stands apart, until the barrier; and each
                // of its rows has a place of its own.
                unsafe {
                    match i {
                        0 => out.row_mut(choice.row as usize, first..first + width),
                        _ => device.apart().row_mut(0, self.place_apart(choice, 0..width)),
                    }
                }
            };
            let with = |(i, &first): (usize, &Linear)| {
                (self.weight(first, expert), rows.iter().map(|&choice| place(i, choice)).collect())
            };
            Bundle {
                x,
                parts: rows.iter().map(|&choice| (choice.row as usize, self.begin(choice))).collect(),
                with: firsts.iter().enumerate().map(with).collect(),
            }
        };
        let mut bundles: Vec<Bundle> = by_expert.offload.iter().map(bundle).collect();
        device.multiply(self.index, &mut bundles);
    }

    /// Where the products with an expert's second matrix stand apart.
    fn place_apart(&self, choice: Choice, columns: Range<usize>) -> Range<usize> {
        let width = self.width();
        let first = (choice.row as usize * self.moe.n_used + choice.place as usize) * width;
        first + columns.start..first + columns.end
    }

    /// Puts the rows that chose an expert side by side, in each form that one of its matrices takes.
    fn gather(&self, rows: &[Choice], to: &mut Gathered) {
        let Products { pass, phase, member, firsts, src, .. } = *self;
        let quantized = |first: &Linear| pass.weights.get(pass.model, first.weight).wants_quantized();
        let width = pass.model.weight(firsts[0].weight).cols;
        if firsts.iter().any(quantized) {
            let from = pass.int8s(src, phase, member);
            let parts = rows.iter().map(|&choice| (choice.row as usize, self.begin(choice)));
            to.int8s.gather(from, width, parts);
        }
        let as_floats = |first: &Linear| !quantized(first) || pass.is_adapted(first.weight);
        if firsts.iter().any(as_floats) {
            let from = pass.floats(src, pass.n_rows(phase), member);
            let stride = pass.buffers.f32s(src).width();
            to.f32s.clear();
            for &choice in rows {
                let first = choice.row as usize * stride + self.begin(choice);
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
        rows: &[Choice],
        gathered: &mut Gathered,
        to: &mut Vec<f32>,
    ) {
        let n = rows.len();
        let weight = self.weight(first, expert).coarse(self.phase.coarse);
        let width = weight.rows();
        to.resize(to.len().max(n * width), 0.0);
        let mut out = OutMatrix::new(&mut to[..n * width], width, Mode::Store);
        let acts = match weight.wants_quantized() {
            true => Acts::Quantized(&gathered.int8s),
            false => Acts::Float(&gathered.f32s),
        };
        matmul::matmul(self.pass.isa, &weight, acts, &mut out.part(columns.clone()));
        let (id, numbers) = (first.weight.after(expert), rows.iter().map(|choice| choice.row as usize));
        let out = (&mut to[..n * width], width);
        self.pass.adapt_gathered(id, numbers, gathered, out, columns.clone(), self.phase);
        for row in to[..n * width].chunks_exact_mut(width) {
            self.add_bias(first, expert, columns.clone(), &mut row[columns.clone()]);
        }
    }

    /// Adds these columns of an expert's bias to a row's.
    fn add_bias(&self, first: Linear, expert: usize, columns: Range<usize>, to: &mut [f32]) {
        let Some(bias) = first.bias else { return };
        let begin = expert * self.pass.model.weight(first.weight).rows;
        add(to, &self.pass.vector(bias)[begin + columns.start..begin + columns.end]);
    }

    /// Calls with each row's part of the buffer where these columns of an expert's result belong.
    fn put_down(&self, rows: &[Choice], columns: Range<usize>, mut each: impl FnMut(usize, &mut [f32])) {
        let (out, width) = (self.pass.buffers.f32s(self.to), self.width());
        for (i, choice) in rows.iter().enumerate() {
            let first = choice.place as usize * width;
            // SAFETY: these columns of this expert's rows were dealt to this thread.
            let out = unsafe { out.row_mut(choice.row as usize, first + columns.start..first + columns.end) };
            each(i, out);
        }
    }
}
