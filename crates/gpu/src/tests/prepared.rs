//! Kernels that also prepare what they make for the product that reads it: the same bits as the plain kernel's and what
//! the preparing kernel makes of them.

use super::{
    super::{
        command::Binding,
        device::Gpu,
        formats::{BLOCK, Format},
        harness::{How, Matrix, Random, Scratch, bind, blocks, numbers, plain, run, scratch, storage},
        params::{AttentionParams, NormParams, PrepareParams, ProductParams},
        pipelines::{Curve, Kernel, Mode, Pipelines},
        stored::Stored,
        tuning::Tuning,
        variants::Arith,
    },
    TUNINGS, bits, chosen_in_turn, gpu,
};
use crate::{kv_type::KvType, quant::GgmlType};

/// What a kernel binds before its results.
struct Step<'a> {
    plain: Kernel,
    preparing: Kernel,
    inputs: Vec<&'a Scratch<'a>>,
    groups: [[u32; 3]; 2],
}

/// Runs a step both ways: `rows` of `width` numbers.
fn check<T: bytemuck::NoUninit>(
    gpu: &Gpu,
    pipelines: &mut Pipelines,
    step: &Step,
    params: &T,
    (rows, width): (usize, usize),
    arith: Arith,
) {
    let (blocks, len) = (rows * width / BLOCK, rows * width);
    // Eight blocks may lie interleaved.
    let prepared_len = 4 * blocks.next_multiple_of(8) * arith.block_quads();
    let out = || numbers(gpu, &vec![7.0; len]).unwrap();
    let prepared = || scratch(gpu, 4 * prepared_len as u64).unwrap();
    let bound = |pipelines: &Pipelines, kernel: Kernel, results: &[&Scratch]| -> Binding {
        let buffers = step.inputs.iter().copied().chain(results.iter().copied());
        let buffers: Vec<_> = buffers.map(|scratch| &scratch.buffer).collect();
        bind(gpu, pipelines, kernel, params, &buffers).unwrap()
    };
    let (plain, separate) = (out(), prepared());
    let made = bound(pipelines, step.plain, &[&plain]);
    let prepare = PrepareParams { blocks: (width / BLOCK) as u32 };
    let buffers = [&plain.buffer, &separate.buffer];
    let then = bind(gpu, pipelines, Kernel::Prepare(arith), &prepare, &buffers).unwrap();
    let groups = [(width / BLOCK).div_ceil(32) as u32, rows as u32, 1];
    let steps = [(step.plain, made, step.groups[0]), (Kernel::Prepare(arith), then, groups)];
    let want_prepared = run(gpu, pipelines, &steps, &separate.buffer, prepared_len).unwrap();
    let want = run(gpu, pipelines, &[], &plain.buffer, len).unwrap();
    assert!(want.iter().any(|&x| x != 0.0 && x != 7.0));

    let (both, together) = (out(), prepared());
    let made = bound(pipelines, step.preparing, &[&both, &together]);
    let steps = [(step.preparing, made, step.groups[1])];
    let got_prepared = run(gpu, pipelines, &steps, &together.buffer, prepared_len).unwrap();
    let got = run(gpu, pipelines, &[], &both.buffer, len).unwrap();
    assert!(bits(&got) == bits(&want), "{:?}: in floats", step.preparing);
    assert!(bits(&got_prepared) == bits(&want_prepared), "{:?}: prepared", step.preparing);
}

fn ways() -> impl Iterator<Item = (Tuning, Arith)> {
    let of_tuning = |tuning| [Arith::Summed, Arith::Int8].map(|arith| (tuning, arith));
    TUNINGS.into_iter().flat_map(of_tuning)
}

#[test]
fn norms_prepare_rows_as_by_themselves() {
    let test = "norms_prepare_rows_as_by_themselves";
    let Some(mut gpu) = gpu(test) else { return };
    for (tuning, arith) in ways() {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        let mut random = Random::new(21);
        for width in [32usize, 288, 4096] {
            let rows = storage(&gpu, &[0; 16]).unwrap();
            let weight = numbers(&gpu, &random.floats(width)).unwrap();
            let x = numbers(&gpu, &random.floats(3 * width)).unwrap();
            let params = NormParams {
                dim: width as u32,
                stride: width as u32 / 4,
                eps: 1e-5,
                ..NormParams::default()
            };
            let step = Step {
                plain: Kernel::Norm(Arith::Float),
                preparing: Kernel::Norm(arith),
                inputs: vec![&rows, &weight, &x],
                groups: [[1, 3, 1]; 2],
            };
            check(&gpu, &mut pipelines, &step, &params, (3, width), arith);
        }
    }
}

#[test]
fn attention_prepares_rows_as_by_itself() {
    let test = "attention_prepares_rows_as_by_itself";
    let Some(mut gpu) = gpu(test) else { return };
    const CELLS: usize = 300;
    let stored = Stored { keys: KvType::F32, values: KvType::F32 };
    for (tuning, arith) in ways() {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        let mut random = Random::new(22);
        for (heads, kv_heads, dim) in [(6usize, 2usize, 32usize), (4, 1, 128), (5, 1, 96)] {
            let q = numbers(&gpu, &random.floats(2 * heads * dim)).unwrap();
            let keys = numbers(&gpu, &random.floats(kv_heads * CELLS * dim)).unwrap();
            let values = numbers(&gpu, &random.floats(kv_heads * CELLS * dim)).unwrap();
            let list: Vec<u32> = (0..CELLS as u32).collect();
            let list = storage(&gpu, bytemuck::cast_slice(&list)).unwrap();
            // One view, two rows.
            let row_data = storage(&gpu, bytemuck::cast_slice(&[0u32, 0, CELLS as u32, 0, 17])).unwrap();
            let params = AttentionParams {
                heads: heads as u32,
                group: (heads / kv_heads) as u32,
                head_dim: dim as u32,
                head_stride: dim as u32,
                cells: CELLS as u32,
                key_words: dim as u32,
                value_words: dim as u32,
                scale: 0.1,
                cap: 0.0,
                has_sinks: 0,
                out_stride: (heads * dim) as u32,
                view_at: 0,
                spans_at: 1,
                view_rows: 2,
                most_chunks: 2,
                first_row: 0,
                zero: 0,
            };
            let group = (heads / kv_heads) as u32;
            for shared in [false, true] {
                let x = if shared { kv_heads as u32 * group.div_ceil(4) } else { heads as u32 };
                let attend = |arith| Kernel::Attend { split: false, shared, stored, arith };
                let step = Step {
                    plain: attend(Arith::Float),
                    preparing: attend(arith),
                    inputs: vec![&row_data, &list, &q, &keys, &values, &q],
                    groups: [[x, 1, 2]; 2],
                };
                check(&gpu, &mut pipelines, &step, &params, (2, heads * dim), arith);
            }
            // Chunks: numbers, then a maximum and a sum, which is not zero.
            let chunks: Vec<f32> = (0..2 * heads * 2)
                .flat_map(|_| random.floats(dim + 1).into_iter().chain([1.5]).collect::<Vec<_>>())
                .collect();
            let chunks = numbers(&gpu, &chunks).unwrap();
            let step = Step {
                plain: Kernel::AttendJoin(Arith::Float),
                preparing: Kernel::AttendJoin(arith),
                inputs: vec![&row_data, &chunks, &q],
                groups: [[heads as u32, 1, 2]; 2],
            };
            check(&gpu, &mut pipelines, &step, &params, (2, heads * dim), arith);
        }
    }
}

/// For few columns and many, and as many lanes to a row as there may be.
#[test]
fn gates_prepare_rows_as_by_themselves() {
    let test = "gates_prepare_rows_as_by_themselves";
    let Some(mut gpu) = gpu(test) else { return };
    let numbers_of_columns: [&[usize]; 2] = [&[1, 5], &[4, 8]];
    for (way, (tuning, arith)) in ways().enumerate() {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        let mut random = Random::new(23);
        let types = [(GgmlType::Q4_0, 288usize), (GgmlType::Q8_0, 2304), (GgmlType::Q6_K, 4352)];
        for (i, (ty, k)) in types.into_iter().enumerate() {
            if !arith.fits_gate_rows(Format::of(ty).unwrap()) {
                continue;
            }
            let outputs = 96usize;
            let bytes = blocks(&mut random, ty, 2 * outputs * k / ty.block_len());
            let matrix = Matrix::new(&gpu, ty, &bytes, 2 * outputs, k).unwrap();
            let none = numbers(&gpu, &[0.0]).unwrap();
            for columns in chosen_in_turn(way + way / 2 + i, &numbers_of_columns) {
                let how = How { arith, ..plain(columns, false) };
                let x: Vec<f32> = random.floats(columns * k).iter().map(|x| x / 8.0).collect();
                let (floats, x) = (
                    matrix.input(&gpu, &x, columns).unwrap(),
                    matrix.scratch_for(&gpu, arith, columns).unwrap(),
                );
                let ready = matrix.prepare(&gpu, &pipelines, &floats, &x, &how).unwrap();
                run(&gpu, &mut pipelines, &[ready], &x.buffer, 1).unwrap();
                let (curve, mode) = (Curve::Silu, Mode::Gate(Curve::Silu));
                let params = ProductParams {
                    rows: 2 * outputs as u32,
                    blocks: matrix.blocks as u32,
                    x_stride: matrix.blocks as u32,
                    y_stride: outputs as u32,
                    y_first: 0,
                    has_bias: 0,
                    ..ProductParams::default()
                };
                let (format, lanes) = (matrix.format, tuning.lanes(matrix.blocks));
                let (columns, coarse, scales) = (columns as u32, false, false);
                let in_floats = Kernel::MatmulRows { format, mode, lanes, columns, coarse, arith, scales };
                let preparing = Kernel::GateRows { format, curve, lanes, columns, coarse, arith, scales };
                let [high, low, scales] = &matrix.streams;
                let step = Step {
                    plain: in_floats,
                    preparing,
                    inputs: vec![high, low, scales, &none, &x],
                    groups: [
                        [1, (2 * outputs as u32).div_ceil(in_floats.rows_at_once(&tuning)), 1],
                        [3, 1, 1],
                    ],
                };
                check(&gpu, &mut pipelines, &step, &params, (columns as usize, outputs), arith);
            }
        }
    }
}
