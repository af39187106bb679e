//! Parts of rows taken elsewhere, and products whose heads have matrices of their own against those of the matrices alone.

use super::{
    super::{
        formats::BLOCK,
        harness::{How, Matrix, Random, bind, blocks, numbers, plain, run},
        params::{ProductParams, TakeParams},
        pipelines::{Bindings, Kernel, Pipelines},
        tuning::TILE_ROWS,
        tuning::Tuning,
        variants::{Arith, Variants},
        work::padded,
    },
    Gpu, bits, gpu, gpu_with,
};
use crate::quant::GgmlType;

#[test]
fn parts_of_rows_are_taken_with_zeros_behind_them() {
    let Some(gpu) = gpu("parts_of_rows_are_taken_with_zeros_behind_them") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, parts, src_stride, dst_stride) = (3usize, 5usize, 131usize, 210usize);
    let (src_first, src_every, dst_first, dst_every) = (4usize, 25usize, 7usize, 40usize);
    let mut random = Random::new(61);
    let src = random.floats(rows * src_stride);
    let before = random.floats(rows * dst_stride);
    for (taken, each) in [(24, 24), (17, 32), (1, 1)] {
        let params = TakeParams {
            parts: parts as u32,
            taken: taken as u32,
            each: each as u32,
            src_stride: src_stride as u32,
            src_first: src_first as u32,
            src_every: src_every as u32,
            dst_stride: dst_stride as u32,
            dst_first: dst_first as u32,
            dst_every: dst_every as u32,
        };
        let [from, to] = [&src, &before].map(|x| numbers(&gpu, x).unwrap());
        let bound = bind(&gpu, &pipelines, Kernel::Take, &params, &[&from.buffer, &to.buffer]).unwrap();
        let groups = [(parts * each).div_ceil(64) as u32, rows as u32, 1];
        let steps = [(Kernel::Take, bound, groups)];
        let got = run(&gpu, &mut pipelines, &steps, &to.buffer, before.len()).unwrap();
        let mut want = before.clone();
        for (row, part) in (0..rows).flat_map(|row| (0..parts).map(move |part| (row, part))) {
            for n in 0..each {
                let x = src[row * src_stride + src_first + part * src_every + n.min(taken)];
                want[row * dst_stride + dst_first + part * dst_every + n] = if n < taken { x } else { 0.0 };
            }
        }
        assert_eq!(got, want, "{taken} of {each}");
    }
}

#[test]
fn products_of_heads_are_those_of_their_matrices_alone() {
    const TEST: &str = "products_of_heads_are_those_of_their_matrices_alone";
    let Some(mut gpu) = gpu(TEST) else { return };
    for tuning in [Tuning::SOFTWARE, Tuning::HARDWARE] {
        gpu.tuning = tuning.within(&gpu.limits);
        check_products(&gpu, Arith::Summed);
    }
    if let Some(gpu) = gpu_with(TEST, Variants::DOT4) {
        check_products(&gpu, Arith::Int8);
    }
}

fn check_products(gpu: &Gpu, arith: Arith) {
    let mut pipelines = Pipelines::new(gpu);
    let (heads, each) = (3usize, 70usize);
    for ty in [GgmlType::Q4_0, GgmlType::Q6_K, GgmlType::F32] {
        let k = if ty.block_len() == 1 { 100 } else { 256 };
        let mut random = Random::new(ty as u64 + 78);
        let bytes = blocks(&mut random, ty, heads * each * k / ty.block_len());
        let whole = Matrix::new(gpu, ty, &bytes, heads * each, k).unwrap();
        let arith = arith.of(whole.format);
        // A head's part has something before it and the next one behind it.
        let (before, every) = (BLOCK, padded(k) + 2 * BLOCK);
        let (stride, y_every) = (heads * every + BLOCK, each + 9);
        let y_stride = heads * y_every + 5;
        let units = |numbers: usize| (numbers / BLOCK) as u32;
        let params = ProductParams {
            rows: each as u32,
            blocks: whole.blocks as u32,
            x_stride: units(stride),
            x_first: units(before),
            x_every: units(every),
            y_stride: y_stride as u32,
            y_first: 4,
            y_every: y_every as u32,
            ..ProductParams::default()
        };
        for rows in [1, 3, 8, 33usize] {
            let x: Vec<f32> = random.floats(rows * stride).iter().map(|x| x / 8.0).collect();
            let part = |row: usize, head: usize| &x[row * stride + before + head * every..][..k];
            let of_head =
                |head: usize| (0..rows).flat_map(|row| part(row, head).to_vec()).collect::<Vec<_>>();
            let alone: Vec<Vec<f32>> = (0..heads)
                .map(|head| {
                    let len = bytes.len() / heads;
                    let matrix = Matrix::new(gpu, ty, &bytes[head * len..][..len], each, k).unwrap();
                    let how = How { arith, ..plain(rows, rows > 8) };
                    matrix.product(gpu, &mut pipelines, &of_head(head), &how).unwrap()
                })
                .collect();
            let room_rows = rows.next_multiple_of(TILE_ROWS);
            let floats = {
                let mut padded = x.clone();
                padded.resize(room_rows * stride, 0.0);
                numbers(gpu, &padded).unwrap()
            };
            // The whole rows are prepared at once.
            let row = Matrix::empty(gpu, whole.format, 1, stride / BLOCK).unwrap();
            let prepared = row.scratch_for(gpu, arith, rows).unwrap();
            let mut steps = Vec::new();
            if arith != Arith::Float {
                let how = How { arith, ..plain(rows, false) };
                steps.push(row.prepare(gpu, &pipelines, &floats, &prepared, &how).unwrap());
            }
            let y = numbers(gpu, &vec![7.0; room_rows * y_stride]).unwrap();
            let nothing = numbers(gpu, &[0.0; 4]).unwrap();
            let x_room = if arith == Arith::Float { &floats } else { &prepared };
            let [high, low, scales] = &whole.streams;
            let buffers = [high, low, scales, &nothing, x_room, &y].map(|scratch| &scratch.buffer);
            let bound = bind(gpu, &pipelines, Bindings::MATMUL, &params, &buffers).unwrap();
            let (format, lanes, coarse) = (whole.format, gpu.tuning.lanes(whole.blocks), false);
            steps.push(if rows > 8 {
                let kernel = Kernel::HeadTile { format, lanes, coarse, arith };
                (kernel, bound, [each.div_ceil(64) as u32, rows.div_ceil(TILE_ROWS) as u32, heads as u32])
            } else {
                let kernel = Kernel::HeadRows { format, lanes, columns: rows as u32, coarse, arith };
                let groups = (each as u32).div_ceil(kernel.rows_at_once(&gpu.tuning));
                (kernel, bound, [groups, 1, heads as u32])
            });
            let got = run(gpu, &mut pipelines, &steps, &y.buffer, rows * y_stride).unwrap();
            for (row, got) in got.chunks_exact(y_stride).enumerate() {
                for (head, alone) in alone.iter().enumerate() {
                    let got = &got[4 + head * y_every..][..y_every];
                    assert!(
                        bits(&got[..each]) == bits(&alone[row * each..][..each]),
                        "{ty}, {rows} rows: row {row}, head {head}"
                    );
                    assert!(got[each..].iter().all(|&x| x == 7.0), "{ty}: behind head {head}");
                }
                assert_eq!(got[..4], [7.0; 4], "{ty}: before the first head");
            }
        }
    }
}
