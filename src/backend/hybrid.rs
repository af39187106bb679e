//! One pass on two devices: the steps go in order, by turns on the GPU and on the CPU as the units are placed. At each
//! border those buffers cross that are needed behind it and that the other device does not have already. A product whose
//! low planes lie in RAM is a border, too: its rows leave the GPU, and come back as sums.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, mem, sync::Arc, time::Instant};

use super::{Backend, Crossing, Output, Rows, Spent, Traffic, planes::LowProduct};
use crate::{
    Model, Result,
    kv::{CellMove, Replay},
    plan::{BufSet, Linear, Op, Step, UnitSet, WeightId},
};

pub struct HybridBackend {
    model: Arc<Model>,
    gpu: Box<dyn Backend>,
    cpu: Box<dyn Backend>,
    on_gpu: UnitSet,
    /// By the first matrix: products that the GPU makes of the high planes and the CPU of the low ones.
    low_products: HashMap<u32, LowProduct>,
    lows: Vec<f32>,
    /// By weight id: whether it is a GPU's.
    of_gpu: Vec<bool>,
    /// Rows on their way to a segment, and from it.
    arriving: Vec<f32>,
    leaving: Vec<f32>,
    /// The numbers of a pass's rows.
    every_row: Vec<usize>,
    gpu_seconds: f64,
}

impl HybridBackend {
    /// The GPU holds these units, the CPU all others.
    pub fn new(model: Arc<Model>, gpu: Box<dyn Backend>, cpu: Box<dyn Backend>, on_gpu: UnitSet) -> Self {
        let mut of_gpu = vec![false; model.weights.len()];
        for op in on_gpu.ops(&model.plan).into_iter().flatten() {
            model.plan.operands(op).weights().for_each(|id| of_gpu[id.0 as usize] = true);
        }
        let low_products = gpu.low_products().into_iter().map(|of| (of.weights[0].0, of)).collect();
        HybridBackend {
            low_products,
            lows: Vec::new(),
            model,
            gpu,
            cpu,
            on_gpu,
            of_gpu,
            arriving: Vec::new(),
            leaving: Vec::new(),
            every_row: Vec::new(),
            gpu_seconds: 0.0,
        }
    }
}

/// The product that a step begins, if the CPU makes a part of it: not where the high planes suffice.
fn low_product<'p>(products: &'p HashMap<u32, LowProduct>, step: &Step) -> Option<&'p LowProduct> {
    match *step.op {
        Op::MatMul { weight: first, .. } | Op::Gate { gate: Linear { weight: first, .. }, .. }
            if !step.coarse =>
        {
            products.get(&first.0)
        }
        _ => None,
    }
}

fn ops<'a>(steps: &'a [Step<'a>]) -> impl DoubleEndedIterator<Item = &'a Op> {
    steps.iter().map(|step| step.op)
}

impl Backend for HybridBackend {
    fn describe(&self) -> String {
        format!("{}; {}", self.gpu.describe(), self.cpu.describe())
    }

    fn threads(&self) -> usize {
        self.cpu.threads()
    }

    fn max_rows(&self) -> usize {
        self.cpu.max_rows().min(self.gpu.max_rows())
    }

    fn most_top(&self) -> usize {
        if self.on_gpu.head { self.gpu.most_top() } else { 0 }
    }

    fn takes_shortlists(&self) -> bool {
        !self.on_gpu.head && self.cpu.takes_shortlists()
    }

    fn run_segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        let plan = &self.model.plan;
        let n = rows.tokens.len();
        self.every_row.extend(self.every_row.len()..n);
        let all_rows = Rows { outputs: &self.every_row[..n], ..*rows };
        let Crossing { mut arrives, arriving, leaves: leaves_last, leaving: leaving_last, lows: _ } =
            crossing;
        let low_product = |step: &Step| low_product(&self.low_products, step);
        self.arriving.clear();
        self.arriving.extend_from_slice(arriving);
        // The buffers that the GPU has as they are now, and the CPU.
        let mut held = [BufSet::NONE; 2];
        let mut rest = steps;
        let (mut output, mut leaving_last) = (Some(output), Some(leaving_last));
        while let Some(first) = rest.first() {
            let on_gpu = self.on_gpu.holds(first.unit);
            let ends = |s: &Step| self.on_gpu.holds(s.unit) != on_gpu || low_product(s).is_some();
            let until = 1 + rest[1..].iter().position(ends).unwrap_or(rest.len() - 1);
            let (segment, after) = rest.split_at(until);
            rest = after;
            self.lows.clear();
            if let Some(of) = low_product(first) {
                // Its rows are all that has left the GPU, where they were made.
                self.cpu.low_sums(of, n, &self.arriving, &mut self.lows)?;
            }
            let written = ops(segment).fold(BufSet::NONE, |all, op| all.union(plan.operands(op).writes));
            let [here, there] = if on_gpu { [0, 1] } else { [1, 0] };
            held[here] = held[here].union(arrives).union(written);
            held[there] = held[there].without(written);
            let is_last = after.is_empty();
            let next = after.first().and_then(low_product);
            let leaves = match next {
                _ if is_last => leaves_last,
                Some(next) => BufSet::of([next.src]),
                None => plan.live(ops(after), leaves_last).without(held[there]),
            };
            if next.is_none() {
                held[there] = held[there].union(leaves);
            }
            let leaving = match leaving_last.take_if(|_| is_last) {
                Some(leaving) => leaving,
                None => {
                    self.leaving.resize(plan.crossing_len(leaves, n), 0.0);
                    &mut self.leaving
                }
            };
            let border = Crossing { arrives, arriving: &self.arriving, leaves, leaving, lows: &self.lows };
            // Only the head has an output, and it comes last. What comes before it is done for all rows.
            let output = output.take_if(|_| is_last).unwrap_or(Output::none());
            let rows = if is_last { rows } else { &all_rows };
            if on_gpu {
                let started = Instant::now();
                self.gpu.run_segment(segment, rows, border, output)?;
                self.gpu_seconds += started.elapsed().as_secs_f64();
            } else {
                self.cpu.run_segment(segment, rows, border, output)?;
            }
            mem::swap(&mut self.arriving, &mut self.leaving);
            // What a product's other part is made of stays on the GPU.
            arrives = if next.is_some() { BufSet::NONE } else { leaves };
        }
        Ok(())
    }

    fn traffic(&self) -> Option<Traffic> {
        self.gpu.traffic()
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        let device = if self.of_gpu[id.0 as usize] { &self.gpu } else { &self.cpu };
        device.weight_bytes(id, coarse)
    }

    fn crowded(&self) -> f64 {
        self.cpu.crowded()
    }

    fn spent(&self) -> Spent {
        Spent { vram: self.gpu_seconds, ..self.cpu.spent() }
    }

    fn profile(&self) -> Option<String> {
        self.gpu.profile()
    }

    fn replay_states(&mut self, replay: &Replay) {
        self.gpu.replay_states(replay);
        self.cpu.replay_states(replay);
    }

    fn shift_keys(&mut self, moves: &[Vec<CellMove>], delta: i64) -> Result<()> {
        self.gpu.shift_keys(moves, delta)?;
        self.cpu.shift_keys(moves, delta)
    }
}
