//! One pass on two devices: the steps go in order, by turns on the GPU and on the CPU as the sublayers are placed,
//! and the hidden rows cross at each border.

use std::{mem, sync::Arc, time::Instant};

use super::{Backend, Crossing, Output, Rows, Spent, Traffic, cpu::CpuBackend, gpu::GpuBackend};
use crate::{
    Model, Result,
    kv::CellMove,
    plan::{Step, UnitSet, WeightId},
};

pub struct HybridBackend {
    model: Arc<Model>,
    gpu: GpuBackend,
    cpu: CpuBackend,
    on_gpu: UnitSet,
    /// Rows on their way, `[rows, dim]`: those that arrive at a segment, and those that leave it.
    arriving: Vec<f32>,
    leaving: Vec<f32>,
    gpu_seconds: f64,
}

impl HybridBackend {
    pub fn new(model: Arc<Model>, gpu: GpuBackend, cpu: CpuBackend, on_gpu: UnitSet) -> Self {
        HybridBackend { model, gpu, cpu, on_gpu, arriving: Vec::new(), leaving: Vec::new(), gpu_seconds: 0.0 }
    }

    fn runs_on_gpu(&self, step: &Step) -> bool {
        self.on_gpu.holds(step.unit)
    }
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

    fn run_segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        let len = rows.tokens.len() * self.model.plan.dims.dim;
        self.arriving.resize(len, 0.0);
        self.leaving.resize(len, 0.0);
        let mut has_arrived = crossing.hidden_in.is_some();
        if let Some(hidden) = crossing.hidden_in {
            self.arriving.copy_from_slice(hidden);
        }
        let mut output = Some(output);
        let mut rest = steps;
        while let Some(first) = rest.first() {
            let on_gpu = self.runs_on_gpu(first);
            let until = rest.iter().position(|s| self.runs_on_gpu(s) != on_gpu).unwrap_or(rest.len());
            let (segment, after) = rest.split_at(until);
            let goes_on = !after.is_empty() || crossing.hidden_out.is_some();
            let border = Crossing {
                hidden_in: has_arrived.then_some(&self.arriving),
                hidden_out: goes_on.then_some(&mut self.leaving),
            };
            // Only the head has an output, and it comes last.
            let output = output.take_if(|_| after.is_empty()).unwrap_or(Output::none());
            if on_gpu {
                let started = Instant::now();
                self.gpu.run_segment(segment, rows, border, output)?;
                self.gpu_seconds += started.elapsed().as_secs_f64();
            } else {
                self.cpu.run_segment(segment, rows, border, output)?;
            }
            mem::swap(&mut self.arriving, &mut self.leaving);
            has_arrived = true;
            rest = after;
        }
        if let Some(hidden) = crossing.hidden_out {
            hidden.copy_from_slice(&self.arriving);
        }
        Ok(())
    }

    fn traffic(&self) -> Option<Traffic> {
        self.gpu.traffic()
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        if self.gpu.holds(id) { self.gpu.weight_bytes(id, coarse) } else { self.cpu.weight_bytes(id, coarse) }
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

    fn shift_keys(&mut self, moves: &[Vec<CellMove>], delta: i64) -> Result<()> {
        self.gpu.shift_keys(moves, delta)?;
        self.cpu.shift_keys(moves, delta)
    }
}
