//! One pass on several devices: the steps run in order, each on the device that holds its unit. Where the next step is on
//! another device, the buffers that later steps need are copied to it, unless it has them already. A product whose low planes
//! are in RAM crosses as well: its rows leave the GPU, and come back as sums.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, mem, ops::Add, sync::Arc, time::Instant};

use crate::{
    Model, Result,
    backend::{
        Abilities, Account, Backend, Crossing, Output, Rows, SmallJob, Spent, Traffic, cpu::CpuBackend,
        planes::LowProduct,
    },
    kv::{CellMove, Replay},
    plan::{BufSet, Linear, Op, Step, Unit, UnitSet, WeightId},
};

/// A GPU and what it holds.
pub struct Part {
    pub gpu: Box<dyn Backend>,
    pub held: UnitSet,
    /// The products of which it computes the high planes' part.
    pub low_products: Vec<LowProduct>,
}

pub struct HybridBackend {
    model: Arc<Model>,
    gpus: Vec<Part>,
    /// Holds the units that no GPU holds.
    cpu: Option<CpuBackend>,
    /// Products of which a GPU computes the high planes' part and the CPU the low planes' part, by their first matrix.
    low_products: HashMap<u32, LowProduct>,
    lows: Vec<f32>,
    /// By weight id: the index of the GPU that holds it, or the number of GPUs for the CPU.
    device_of: Vec<usize>,
    /// Rows on their way to a segment, and from it.
    arriving: Vec<f32>,
    leaving: Vec<f32>,
    /// The numbers of a pass's rows.
    every_row: Vec<usize>,
    gpu_seconds: f64,
    /// Transfers that the GPUs do not count themselves.
    crossings: Traffic,
}

impl HybridBackend {
    /// Each GPU holds its units, the CPU all others.
    pub fn new(model: Arc<Model>, mut gpus: Vec<Part>, cpu: Option<CpuBackend>) -> Self {
        let mut device_of = vec![gpus.len(); model.weights.len()];
        for (i, part) in gpus.iter().enumerate() {
            for op in part.held.ops(&model.plan).into_iter().flatten() {
                model.plan.operands(&op).weights().for_each(|id| device_of[id.0 as usize] = i);
            }
        }
        let low_products = gpus.iter_mut().flat_map(|part| mem::take(&mut part.low_products));
        HybridBackend {
            low_products: low_products.map(|of| (of.weights[0].0, of)).collect(),
            lows: Vec::new(),
            model,
            gpus,
            cpu,
            device_of,
            arriving: Vec::new(),
            leaving: Vec::new(),
            every_row: Vec::new(),
            gpu_seconds: 0.0,
            crossings: Traffic::default(),
        }
    }

    fn devices(&self) -> impl Iterator<Item = &dyn Backend> {
        self.gpus.iter().map(|part| part.gpu.as_ref()).chain(self.cpu.iter().map(|cpu| cpu as &dyn Backend))
    }

    fn devices_mut(&mut self) -> impl Iterator<Item = &mut dyn Backend> {
        let cpu = self.cpu.iter_mut().map(|cpu| cpu as &mut dyn Backend);
        self.gpus.iter_mut().map(|part| part.gpu.as_mut() as &mut dyn Backend).chain(cpu)
    }

    /// The GPU that has the head, where one does.
    fn head(&self) -> Option<&Part> {
        self.gpus.iter().find(|part| part.held.head)
    }
}

/// The index of the device that holds a unit. The CPU comes after the GPUs.
fn holder(gpus: &[Part], unit: Unit) -> usize {
    gpus.iter().position(|part| part.held.holds(unit)).unwrap_or(gpus.len())
}

/// The product that a step begins, if the CPU computes a part of it. A coarse step needs the high planes only.
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
        self.devices().map(|device| device.describe()).collect::<Vec<_>>().join("; ")
    }

    fn identity(&self) -> String {
        self.devices().map(|device| device.identity()).collect::<Vec<_>>().join("; ")
    }

    fn threads(&self) -> usize {
        self.cpu.as_ref().map_or(1, |cpu| cpu.threads())
    }

    fn together(&mut self, job: SmallJob) {
        match &mut self.cpu {
            Some(cpu) => cpu.together(job),
            None => self.gpus[0].gpu.together(job),
        }
    }

    fn max_rows(&self) -> usize {
        self.devices().map(|device| device.max_rows()).min().expect("there are devices")
    }

    fn abilities(&self) -> Abilities {
        let of_cpu = self.cpu.as_ref().map(|cpu| cpu.abilities());
        Abilities {
            most_top: self.head().map_or(0, |part| part.gpu.abilities().most_top),
            takes_shortlists: self.head().is_none() && of_cpu.is_some_and(|cpu| cpu.takes_shortlists),
            keeps_hidden: false,
            gives_last_rows: false,
        }
    }

    fn account(&self) -> Account {
        let of_cpu = self.cpu.as_ref().map_or(Account::default(), |cpu| cpu.account());
        let of_gpus = self.gpus.iter().filter_map(|part| part.gpu.account().traffic);
        Account {
            traffic: of_gpus.reduce(Traffic::add).map(|of_gpus| of_gpus + self.crossings),
            spent: Spent { vram: self.gpu_seconds, ..of_cpu.spent },
            crowded: of_cpu.crowded,
        }
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
        // The buffers of which each device has the current contents.
        let mut held = vec![BufSet::NONE; self.gpus.len() + 1];
        let mut rest = steps;
        let (mut output, mut leaving_last) = (Some(output), Some(leaving_last));
        while let Some(first) = rest.first() {
            let here = holder(&self.gpus, first.unit);
            let ends = |s: &Step| holder(&self.gpus, s.unit) != here || low_product(s).is_some();
            let until = 1 + rest[1..].iter().position(ends).unwrap_or(rest.len() - 1);
            let (segment, after) = rest.split_at(until);
            rest = after;
            self.lows.clear();
            if let Some(of) = low_product(first) {
                // Only the product's own rows were copied from the GPU.
                let cpu = self.cpu.as_mut().expect("low planes lie there");
                self.crossings.low_planes += cpu.low_sums(of, n, &self.arriving, &mut self.lows)?;
            }
            let written = ops(segment).fold(BufSet::NONE, |all, op| all.union(plan.operands(op).writes));
            let arrived = held[here].union(arrives).union(written);
            held.iter_mut().for_each(|held| *held = held.without(written));
            held[here] = arrived;
            let next = after.first().and_then(low_product);
            // After a border its device has all that is needed from there on, also what only a later device needs.
            let leaves = match (after.first(), next) {
                (None, _) => leaves_last,
                (Some(_), Some(next)) => BufSet::of([next.src]),
                (Some(step), None) => {
                    let there = holder(&self.gpus, step.unit);
                    let leaves = plan.live(ops(after), leaves_last).without(held[there]);
                    held[there] = held[there].union(leaves);
                    leaves
                }
            };
            let is_last = after.is_empty();
            let leaving = match leaving_last.take_if(|_| is_last) {
                Some(leaving) => leaving,
                None => {
                    self.leaving.resize(plan.crossing_len(leaves, n), 0.0);
                    &mut self.leaving
                }
            };
            let border = Crossing { arrives, arriving: &self.arriving, leaves, leaving, lows: &self.lows };
            // Only the head has an output, and it comes last. The steps before it run for all rows.
            let output = output.take_if(|_| is_last).unwrap_or(Output::none());
            let rows = if is_last { rows } else { &all_rows };
            match self.gpus.get_mut(here) {
                Some(part) => {
                    let arrive = plan.crossing_len(arrives, n) + self.lows.len();
                    self.crossings.crossed += 4 * (arrive + plan.crossing_len(leaves, n)) as u64;
                    let started = Instant::now();
                    part.gpu.run_segment(segment, rows, border, output)?;
                    self.gpu_seconds += started.elapsed().as_secs_f64();
                }
                None => {
                    let cpu = self.cpu.as_mut().expect("it has what no GPU has");
                    cpu.run_segment(segment, rows, border, output)?;
                }
            }
            mem::swap(&mut self.arriving, &mut self.leaving);
            // The input of the product's other part stays on the GPU.
            arrives = if next.is_some() { BufSet::NONE } else { leaves };
        }
        Ok(())
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        // A weight that no device holds is one that was left out.
        let device = self.devices().nth(self.device_of[id.0 as usize]);
        device.map_or(0, |device| device.weight_bytes(id, coarse))
    }

    fn profile(&self) -> Option<String> {
        let all: Vec<String> = self.gpus.iter().filter_map(|part| part.gpu.profile()).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    fn replay_states(&mut self, replay: &Replay) {
        self.devices_mut().for_each(|device| device.replay_states(replay));
    }

    fn shift_keys(&mut self, moves: &[Vec<CellMove>], delta: i64) -> Result<()> {
        self.devices_mut().try_for_each(|device| device.shift_keys(moves, delta))
    }
}
