//! A context shift: the keys of cells are rotated, on copies where cells are shared.

use wgpu::util::{BufferInitDescriptor, DeviceExt};

use super::{
    command::Binding,
    device::Gpu,
    ops::in_two,
    params::{SLOT_BYTES, ShiftParams},
    pipelines::{Kernel, Pipelines},
    record::Recorder,
    rows::{halves, turns},
    work::KvBuffers,
};
use crate::{Result, kv::CellMove, plan::Rope};

/// Copies keys and values of cells, in every slot on this device, and rotates the keys by `delta` positions.
pub fn shift(
    gpu: &Gpu,
    pipelines: &mut Pipelines,
    cache: &KvBuffers,
    ropes: &[Rope],
    moves: &[Vec<CellMove>],
    delta: i64,
) -> Result<()> {
    let made = |label, contents: &[u8], usage| {
        gpu.device.create_buffer_init(&BufferInitDescriptor { label: Some(label), contents, usage })
    };
    let storage = wgpu::BufferUsages::STORAGE;
    let lists = moves.iter().map(|moves| {
        let pairs: Vec<[u32; 2]> = moves.iter().map(|m| [m.src, m.dst]).collect();
        // Nothing can not be bound.
        let bytes = if pairs.is_empty() { &[0; 8] } else { bytemuck::cast_slice(&pairs) };
        made("moves", bytes, storage)
    });
    let lists: Vec<_> = lists.collect();
    let mut recorder = Recorder::new(gpu, pipelines, None);
    for (slot, lying) in cache.held().filter(|(_, lying)| !moves[lying.class].is_empty()) {
        let count = moves[lying.class].len() as u32;
        let [x, y, _] = in_two(count, &gpu.limits);
        let rope = lying.rope.map(|id| &ropes[id.0 as usize]);
        // A stored key has its magnitude already.
        let mut by: Vec<[f32; 2]> = rope.map_or(Vec::new(), |rope| turns(rope, delta as f64, 1.0).collect());
        let [key_words, value_words] = cache.words(lying.head_dim, lying.keys_only);
        let params = ShiftParams {
            kv_heads: lying.n_kv_head as u32,
            head_dim: lying.head_dim as u32,
            turned: by.len() as u32,
            halves: rope.map_or(0, halves),
            cells: lying.n_cells as u32,
            key_words: key_words as u32,
            value_words: if lying.keys_only { 0 } else { value_words as u32 },
            moves: count,
        };
        let mut slot_of_params = [0u8; SLOT_BYTES as usize];
        slot_of_params[..size_of::<ShiftParams>()].copy_from_slice(bytemuck::bytes_of(&params));
        let params = made("shift", &slot_of_params, wgpu::BufferUsages::UNIFORM);
        by.push([1.0, 0.0]);
        let by = made("rotation", bytemuck::cast_slice(&by), storage);
        let slot = cache.slot(slot);
        let values = slot.values.as_ref().unwrap_or(&cache.nothing);
        let storage = [&lists[lying.class], &by, &slot.keys, values].map(|b| b.as_entire_buffer_binding());
        let kernel = Kernel::Shift { keys: cache.stored(lying.keys_only).keys };
        let group = recorder.bind(kernel, &params, &storage);
        recorder.dispatch(kernel, &Binding { group, params: 0 }, [x, y, lying.n_kv_head as u32])?;
    }
    recorder.submit();
    gpu.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::run,
        plan::{RopeId, RopePairs},
        tests::{gpu, numbers},
        work::{Slot, SlotKeys},
    };

    /// More cells than a row of workgroups may have, every second one shared and so copied.
    #[test]
    fn any_number_of_cells_is_shifted() {
        let Some(gpu) = gpu("any_number_of_cells_is_shifted") else { return };
        const MOVES: usize = 65_600;
        const WORDS: usize = 8;
        let mut pipelines = Pipelines::new(&gpu);
        let (n_cells, rope_id) = (2 * MOVES, Some(RopeId(0)));
        let lying =
            SlotKeys { n_kv_head: 1, head_dim: 2, class: 0, n_cells, rope: rope_id, keys_only: false };
        let rope = Rope { pairs: RopePairs::Halves, freqs: vec![0.5], magnitude: 1.0, beyond: None };
        // A cell has its own number in its key and in its value.
        let cell = |i: usize| [i as f32, 1.0].into_iter().chain([0.0; WORDS - 2]);
        let start: Vec<f32> = (0..2 * MOVES).flat_map(cell).collect();
        let (keys, values) = (numbers(&gpu, &start), numbers(&gpu, &start));
        let cache = KvBuffers::of((keys, values), lying);
        let to = |i: usize| if i.is_multiple_of(2) { MOVES + i } else { i };
        let moves: Vec<_> = (0..MOVES).map(|i| CellMove { src: i as u32, dst: to(i) as u32 }).collect();
        shift(&gpu, &mut pipelines, &cache, &[rope], &[moves], -2).unwrap();
        let Slot { keys, values: Some(values) } = cache.slot(0) else { panic!("made with values") };
        let [keys, values] = [keys, values]
            .map(|buffer| run(&gpu, &mut pipelines, &[], buffer, buffer.size() as usize / 4).unwrap());
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
