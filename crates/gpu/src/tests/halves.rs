//! Halves by whole numbers, against another program's.

use half::f16;
use spec_run_shaders::shader;
use wgpu::BufferUsages as Usage;

use super::{
    super::{device::Gpu, harness, readback},
    Random, gpu,
};

const TEXT: &str = "
    @group(0) @binding(0) var<storage, read> given: array<u32>;
    @group(0) @binding(1) var<storage, read_write> made: array<vec3<u32>>;

    @compute @workgroup_size(64)
    fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
        let i = 64u * group.x + thread;
        // The words given are padded to sixteen bytes.
        if i < arrayLength(&made) {
            let x = bitcast<f32>(given[i]);
            let read = bitcast<vec2<u32>>(halves_in(given[i]));
            made[i] = vec3<u32>(two_halves_of(vec2<f32>(x, -x)), read);
        }
    }";

/// For each word: its number and the opposite one as halves, and its two halves as numbers.
fn made(gpu: &Gpu, given: &[u32], flushes: bool) -> Vec<[u32; 3]> {
    let module = gpu.shader("halves", [shader("common/halves"), TEXT].concat());
    let pipeline = gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &[("FLUSHES_HALVES", f64::from(u8::from(flushes)))],
            ..Default::default()
        },
        cache: None,
    });
    let given_room = harness::storage(gpu, bytemuck::cast_slice(given)).unwrap();
    let bytes = 16 * given.len() as u64;
    let made = harness::scratch(gpu, bytes).unwrap();
    let readable = gpu.buffer("halves", bytes, Usage::MAP_READ | Usage::COPY_DST).unwrap();
    let entries = [(0, &given_room.buffer), (1, &made.buffer)]
        .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() });
    let bound = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &entries,
    });
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &bound, &[]);
    pass.dispatch_workgroups(given.len().div_ceil(64) as u32, 1, 1);
    drop(pass);
    encoder.copy_buffer_to_buffer(&made.buffer, 0, &readable, 0, bytes);
    gpu.queue.submit([encoder.finish()]);
    let words: Vec<u32> = readback::read(gpu, &readable, bytes, bytemuck::pod_collect_to_vec).unwrap();
    words.as_chunks::<4>().0.iter().map(|&[a, b, c, _]| [a, b, c]).collect()
}

/// Every half, what lies in the middle of it and the next one, and what is nearest to that on both sides; numbers too
/// small or too large for halves, among them subnormal ones; and any others.
#[test]
fn numbers_become_the_nearest_halves() {
    let Some(gpu) = gpu("numbers_become_the_nearest_halves") else { return };
    let mut given = Vec::new();
    for bits in 0..0x7c00u16 {
        let x = f16::from_bits(bits).to_f32();
        // Behind the largest half comes what would be the next one.
        let next = if bits == 0x7bff { 65536.0 } else { f16::from_bits(bits + 1).to_f32() };
        let tie = (x + next) / 2.0;
        given.extend([x, tie.next_down(), tie, tie.next_up()].map(f32::to_bits));
    }
    given.extend(
        [0.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN, 65535.9, 65536.0].map(f32::to_bits),
    );
    given.extend([1, 0x007f_ffff, 0x7f80_0001]);
    let mut random = Random::new(12);
    given.extend((0..100_000).map(|_| random.next() as u32));
    for (&given, [two, ..]) in given.iter().zip(made(&gpu, &given, false)) {
        let x = f32::from_bits(given);
        for (x, got) in [(x, two as u16), (-x, (two >> 16) as u16)] {
            let (got, want) = (f16::from_bits(got), f16::from_f32(x));
            assert!(
                got.to_bits() == want.to_bits() || (got.is_nan() && x.is_nan()),
                "{x:e} ({given:#x}): {got:e}, {want:e}"
            );
        }
    }
}

/// Every half in either place of a word.
#[test]
fn halves_become_their_numbers() {
    let Some(gpu) = gpu("halves_become_their_numbers") else { return };
    let given: Vec<u32> = (0..=u16::MAX).map(|bits| u32::from(bits) | u32::from(!bits) << 16).collect();
    for (&given, [_, low, high]) in given.iter().zip(made(&gpu, &given, true)) {
        for (bits, got) in [(given as u16, low), ((given >> 16) as u16, high)] {
            let (got, want) = (f32::from_bits(got), f16::from_bits(bits).to_f32());
            let is_same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(is_same, "{bits:#x}: {got:e}, {want:e}");
        }
    }
}
