//! Kernels with sums over workgroups, on data of their own.

use super::super::{
    device::Gpu,
    lab::{Dispatch, Random, Room, bind, numbers, room, run, storage},
    params::{AttendParams, NormParams},
    pipelines::{Family, Kernel, Pipelines},
    variants::Arith,
    work::{CHUNK, Stored},
};
use super::{K, U};
use crate::{Result, kv_type::KvType};

/// A step that is made of what it binds.
type Steps<'a> = Box<dyn Fn(&Gpu, &Pipelines) -> Result<Vec<Dispatch>> + 'a>;

/// Kernels with sums over workgroups, and data for them.
pub struct Scene<'a> {
    pub name: &'static str,
    steps: Steps<'a>,
    out: wgpu::Buffer,
    len: usize,
    /// What two orders of the same sums may differ by, to the largest result.
    pub rounding: f64,
}

impl Scene<'_> {
    pub fn steps(&self, gpu: &Gpu, pipelines: &Pipelines) -> Result<Vec<Dispatch>> {
        (self.steps)(gpu, pipelines)
    }

    pub fn run(&self, gpu: &Gpu, pipelines: &mut Pipelines) -> Result<Vec<f32>> {
        let steps = self.steps(gpu, pipelines)?;
        run(gpu, pipelines, &steps, &self.out, self.len)
    }
}

pub fn norm(gpu: &Gpu) -> Result<Scene<'_>> {
    let mut random = Random::new(2);
    let rows = storage(gpu, &[0; 16])?;
    let [weight, x, h] = [random.floats(K), random.floats(K), vec![0.0; K]].map(|x| numbers(gpu, &x));
    let (weight, x, h) = (weight?, x?, h?);
    let params = NormParams { dim: K as u32, stride: (K / 4) as u32, eps: 1e-5, listed: 0, list_at: 0 };
    let out = h.buffer.clone();
    let steps: Steps = Box::new(move |gpu, pipelines| {
        let buffers = [&rows, &weight, &x, &h].map(|b: &Room| &b.buffer);
        let bound = bind(gpu, pipelines, Family::Norm, &params, &buffers)?;
        Ok(vec![(Kernel::Norm(Arith::Float), bound, [1, 1, 1])])
    });
    Ok(Scene { name: "norm", steps, out, len: K, rounding: (K as f64 / 8.0 + 16.0) * U })
}

pub fn attention(gpu: &Gpu) -> Result<Scene<'_>> {
    const HEADS: usize = 8;
    const KV_HEADS: usize = 2;
    const DIM: usize = 128;
    const CELLS: usize = 700;
    let chunks = CELLS.div_ceil(CHUNK);
    let mut random = Random::new(3);
    // A view, its span (all cells), and no more.
    let rows = storage(gpu, bytemuck::cast_slice(&[0u32, 0, CELLS as u32]))?;
    let list: Vec<u32> = (0..CELLS as u32).collect();
    let list = storage(gpu, bytemuck::cast_slice(&list))?;
    let q = numbers(gpu, &random.floats(HEADS * DIM))?;
    let mut halves = || -> Vec<u16> {
        (0..KV_HEADS * CELLS * DIM).map(|_| half::f16::from_f32(random.float()).to_bits()).collect()
    };
    let keys = storage(gpu, bytemuck::cast_slice(&halves()))?;
    let values = storage(gpu, bytemuck::cast_slice(&halves()))?;
    let parts = room(gpu, (4 * HEADS * chunks * (DIM + 2)) as u64)?;
    let result = room(gpu, (4 * HEADS * DIM) as u64)?;
    let out = result.buffer.clone();
    let stored = Stored { keys: KvType::F16, values: KvType::F16 };
    let arith = Arith::Float;
    let params = AttendParams {
        heads: HEADS as u32,
        group: (HEADS / KV_HEADS) as u32,
        head_dim: DIM as u32,
        head_stride: DIM as u32,
        cells: CELLS as u32,
        key_words: (DIM / 2) as u32,
        value_words: (DIM / 2) as u32,
        scale: (DIM as f32).sqrt().recip(),
        cap: 0.0,
        has_sinks: 0,
        out_stride: (HEADS * DIM) as u32,
        view_at: 0,
        spans_at: 1,
        view_rows: 1,
        most_chunks: chunks as u32,
    };
    let steps: Steps = Box::new(move |gpu, pipelines| {
        let buffers = [&rows, &list, &q, &keys, &values, &q, &parts].map(|b: &Room| &b.buffer);
        let attend = bind(gpu, pipelines, Family::Attend, &params, &buffers)?;
        let buffers = [&rows, &parts, &q, &result].map(|b: &Room| &b.buffer);
        let join = bind(gpu, pipelines, Family::AttendJoin, &params, &buffers)?;
        Ok(vec![
            (
                Kernel::Attend { split: true, shared: false, long: false, stored, arith },
                attend,
                [HEADS as u32, chunks as u32, 1],
            ),
            (Kernel::AttendJoin(arith), join, [HEADS as u32, 1, 1]),
        ])
    });
    // Scores are made alike; only sums of up to 256 weights are added in another order.
    Ok(Scene { name: "attention", steps, out, len: HEADS * DIM, rounding: 4.0 * CHUNK as f64 * U })
}
