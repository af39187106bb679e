//! A context shift: the keys of cells turned, on copies where cells are shared.

use wgpu::util::{BufferInitDescriptor, DeviceExt};

use super::{
    device::Gpu,
    ops::{Bound, in_two},
    params::SLOT_BYTES,
    pipelines::{Family, Kernel, Pipelines},
    record::Recorder,
    rows::{halves, turns},
    work::Cache,
};
use crate::{
    Result,
    kv::CellMove,
    plan::{Rope, Uniform},
};

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
pub struct ShiftParams {
    pub kv_heads: u32,
    pub head_dim: u32,
    pub turned: u32,
    pub halves: u32,
    pub cells: u32,
    pub key_words: u32,
    pub value_words: u32,
    pub moves: u32,
}

/// Copies keys and values of cells, in every slot that lives here, and turns the keys by `delta` positions.
pub fn shift(
    gpu: &Gpu,
    pipelines: &mut Pipelines,
    cache: &Cache,
    (dims, rope): (&Uniform, &Rope),
    moves: &[CellMove],
    delta: i64,
) -> Result<()> {
    if moves.is_empty() {
        return Ok(());
    }
    let [key_words, value_words] = cache.words(dims);
    let params = ShiftParams {
        kv_heads: dims.n_kv_head as u32,
        head_dim: dims.head_dim as u32,
        turned: rope.freqs.len() as u32,
        halves: halves(rope),
        cells: cache.n_cells as u32,
        key_words: key_words as u32,
        value_words: value_words as u32,
        moves: moves.len() as u32,
    };
    let made = |label, contents: &[u8], usage| {
        gpu.device.create_buffer_init(&BufferInitDescriptor { label: Some(label), contents, usage })
    };
    let mut padded_params = [0u8; SLOT_BYTES as usize];
    padded_params[..size_of::<ShiftParams>()].copy_from_slice(bytemuck::bytes_of(&params));
    let params = made("shift", &padded_params, wgpu::BufferUsages::UNIFORM);
    let pairs: Vec<[u32; 2]> = moves.iter().map(|m| [m.src, m.dst]).collect();
    let storage = wgpu::BufferUsages::STORAGE;
    let move_list = made("moves", bytemuck::cast_slice(&pairs), storage);
    // Where a key is already turned, the magnitude is in it.
    let turns: Vec<[f32; 2]> = turns(rope, delta as f64, 1.0).collect();
    let turns = made("rotation", bytemuck::cast_slice(&turns), storage);
    let [x, y, _] = in_two(moves.len() as u32, &gpu.limits);
    let groups: Vec<_> = cache
        .held()
        .map(|slot| {
            let (keys, values) = cache.slot(slot);
            let storage = [&move_list, &turns, keys, values].map(|b| b.as_entire_buffer_binding());
            Bound { group: pipelines.bind(gpu, Family::Shift, &params, &storage), params: 0 }
        })
        .collect();
    let mut recorder = Recorder::new(gpu, pipelines, None);
    for bound in &groups {
        recorder.dispatch(Kernel::Shift { keys: cache.stored.keys }, bound, [x, y, dims.n_kv_head as u32])?;
    }
    recorder.submit();
    gpu.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::gpu::{
            readback,
            tests::{gpu, numbers},
        },
        plan::RopePairs,
    };

    /// More cells than a row of workgroups may have, every second one shared and so copied.
    #[test]
    fn any_number_of_cells_is_shifted() {
        let Some(gpu) = gpu("any_number_of_cells_is_shifted") else { return };
        const MOVES: usize = 65_600;
        const WORDS: usize = 8;
        let mut pipelines = Pipelines::new(&gpu);
        let dims = Uniform { n_layer: 1, n_vocab: 1, dim: 2, n_head: 1, n_kv_head: 1, head_dim: 2, ffn: 1 };
        let rope = Rope { pairs: RopePairs::Halves, freqs: vec![0.5], magnitude: 1.0 };
        // A cell has its own number in its key and in its value.
        let cell = |i: usize| [i as f32, 1.0].into_iter().chain([0.0; WORDS - 2]);
        let start: Vec<f32> = (0..2 * MOVES).flat_map(cell).collect();
        let (keys, values) = (numbers(&gpu, &start), numbers(&gpu, &start));
        let cache = Cache::of(keys, values, 2 * MOVES);
        let to = |i: usize| if i.is_multiple_of(2) { MOVES + i } else { i };
        let moves: Vec<_> = (0..MOVES).map(|i| CellMove { src: i as u32, dst: to(i) as u32 }).collect();
        shift(&gpu, &mut pipelines, &cache, (&dims, &rope), &moves, -2).unwrap();
        let (keys, values) = cache.slot(0);
        let read = |gpu: &Gpu, pipelines: &mut Pipelines, buffer: &wgpu::Buffer| -> Vec<f32> {
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            let readable = gpu.buffer("result", buffer.size(), usage).unwrap();
            let mut recorder = Recorder::new(gpu, pipelines, None);
            recorder.copy((buffer, 0), (&readable, 0), buffer.size());
            recorder.submit();
            readback::read(gpu, &readable, buffer.size(), bytemuck::pod_collect_to_vec).unwrap()
        };
        let (keys, values) = (read(&gpu, &mut pipelines, keys), read(&gpu, &mut pipelines, values));
        let (sin, cos) = (-1f64).sin_cos();
        for i in 0..MOVES {
            let at = WORDS * to(i);
            let (x, y) = (i as f64, 1.0);
            for (got, want) in [(keys[at], x * cos - y * sin), (keys[at + 1], x * sin + y * cos)] {
                assert!((f64::from(got) - want).abs() <= 4e-7 * (x + 1.0), "cell {i}: {got}, {want}");
            }
            assert_eq!(values[at], i as f32, "the value of cell {i}");
            // What was copied is still there.
            assert!(to(i) == i || keys[WORDS * i] == i as f32, "cell {i}");
        }
    }
}
