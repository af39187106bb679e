//! Matrix products of every format, regime and way of multiplying, against sums in f64.

use super::{
    super::{
        device::Gpu,
        formats::{
            BLOCK, FileType, Format, Streams, split_row,
            tests::{high_planes, with_low_bits},
        },
        harness::{How, Matrix, Random, blocks, blocks_of, plain, start},
        pipelines::{Curve, Mode, Pipelines},
        tuning::Tuning,
        variants::{Arith, Variants},
    },
    U, bits, chosen_in_turn, gpu, gpu_with,
};
use crate::quant::{GgmlType, dequantize};

/// The largest half of a block.
const LARGEST: f64 = 0.03;

/// The most that a minimum of these blocks takes off a weight, which may cancel; to their largest half.
fn minimum(ty: GgmlType) -> f64 {
    match ty {
        GgmlType::Q4_1 | GgmlType::Q5_1 => 1.0,
        GgmlType::Q4_K | GgmlType::Q5_K => 63.0,
        GgmlType::Q2_K => 15.0,
        _ => 0.0,
    }
}

/// Of a wide product: a whole tile and part of another.
const COLUMNS: usize = 38;

fn types() -> impl Iterator<Item = GgmlType> {
    GgmlType::ALL.iter().copied().filter(|ty| ty.readable())
}

/// Sum and sum of magnitudes of each output, in f64.
fn exact(ty: GgmlType, bytes: &[u8], rows: usize, k: usize, x: &[f32]) -> Vec<(f64, f64)> {
    exact_of(ty, bytes, rows, k, x, LARGEST)
}

/// The same of blocks whose halves are at most so large.
fn exact_of(ty: GgmlType, bytes: &[u8], rows: usize, k: usize, x: &[f32], largest: f64) -> Vec<(f64, f64)> {
    let mut w = vec![0.0; rows * k];
    dequantize(ty, bytes, &mut w);
    let minimum = 2.0 * largest * minimum(ty);
    let dot = |w: &[f32], x: &[f32]| {
        std::iter::zip(w, x).fold((0.0, 0.0), |(sum, size), (&w, &x)| {
            let (w, x) = (f64::from(w), f64::from(x));
            (sum + w * x, size + (w.abs() + minimum) * x.abs())
        })
    };
    x.chunks_exact(k).flat_map(|x| w.chunks_exact(k).map(move |w| dot(w, x)).collect::<Vec<_>>()).collect()
}

/// Roundings on the way of one product into a sum: its weight's (3), those of its lane, those of the lanes.
fn roundings(k: usize, lanes: u32) -> f64 {
    let blocks = k.div_ceil(BLOCK) as u32;
    f64::from(3 + blocks.div_ceil(lanes) * BLOCK as u32 + lanes)
}

/// Numbers of columns that a matrix has in turn, in narrow workgroups and in wide ones.
const NARROW: &[&[usize]] = &[&[1, 5], &[8, 2], &[1, 6], &[8, 3], &[1, 7], &[8, 4], &[1, 9]];
const WIDE: &[&[usize]] = &[&[1, 3], &[8, 2]];

#[test]
fn products_of_every_format_are_right_to_rounding() {
    let Some(gpu) = gpu("products_of_every_format_are_right_to_rounding") else { return };
    check_products(&gpu, NARROW);
}

/// What runs on a real GPU: more lanes to a row, more rows to a workgroup.
#[test]
fn products_are_right_in_wide_workgroups_too() {
    let Some(mut gpu) = gpu("products_are_right_in_wide_workgroups_too") else { return };
    gpu.tuning = Tuning::HARDWARE.within(&gpu.limits);
    check_products(&gpu, WIDE);
}

fn check_products(gpu: &Gpu, few: &[&[usize]]) {
    let mut pipelines = Pipelines::new(gpu);
    const ROWS: usize = 67;
    for (i, ty) in types().enumerate() {
        let ks: &[usize] = if ty.block_len() == 1 { &[1, 19, 100, 288] } else { &[256, 2304] };
        for (j, &k) in ks.iter().enumerate() {
            let mut random = Random::new(ty as u64 + k as u64);
            let bytes = blocks(&mut random, ty, ROWS * k / ty.block_len());
            let weights = Matrix::new(gpu, ty, &bytes, ROWS, k).unwrap();
            let x = random.floats(COLUMNS * k);
            let expected = exact(ty, &bytes, ROWS, k, &x);
            let limit = roundings(k, gpu.tuning.lanes(k.div_ceil(BLOCK))) * U;
            let all = weights.product(gpu, &mut pipelines, &x, &plain(COLUMNS, true)).unwrap();
            for (i, (&got, &(want, size))) in all.iter().zip(&expected).enumerate() {
                let off = (f64::from(got) - want).abs();
                assert!(
                    off <= limit * size,
                    "{ty} k {k}, column {}, row {}: {got}, {want}",
                    i / ROWS,
                    i % ROWS
                );
            }
            // The same bits in each regime, for any number of columns.
            for columns in chosen_in_turn(i * ks.len() + j, few) {
                let how = plain(columns, columns > 8);
                let got = weights.product(gpu, &mut pipelines, &x[..columns * k], &how).unwrap();
                assert!(bits(&got) == bits(&all[..columns * ROWS]), "{ty} k {k}, {columns} columns");
            }
            // And where workgroups share the lanes of a tile. That hangs on no format, so each matrix has it in one way.
            let lanes = gpu.tuning.lanes(k.div_ceil(BLOCK));
            let (columns, share) = [(9, 1), (16, lanes / 2), (33, 2)][(i + k) % 3];
            let how = How { share, ..plain(columns, true) };
            let got = weights.product(gpu, &mut pipelines, &x[..columns * k], &how).unwrap();
            assert!(
                bits(&got) == bits(&all[..columns * ROWS]),
                "{ty} k {k}, {columns} columns, shared {share}"
            );
        }
    }
}

/// Halves below 2^-14 are subnormal, and scales of real models are among them.
#[test]
fn the_smallest_scales_are_not_taken_for_zero() {
    let Some(gpu) = gpu("the_smallest_scales_are_not_taken_for_zero") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, k) = (66, 512);
    let least = 2f32.powi(-17);
    for ty in types().filter(|&ty| FileType::of(ty).is_some_and(|file| !file.halves.is_empty())) {
        let mut random = Random::new(ty as u64 + 11);
        let bytes = blocks_of(&mut random, ty, rows * k / ty.block_len(), least);
        let weights = Matrix::new(&gpu, ty, &bytes, rows, k).unwrap();
        let x = random.floats(9 * k);
        for arith in [Arith::Summed, Arith::Int8] {
            let how = |columns| How { arith, ..plain(columns, columns > 8) };
            let read = match arith {
                Arith::Float | Arith::Summed => x.clone(),
                Arith::Int8 => weights.rounded(&gpu, &mut pipelines, &x, 9).as_flattened().to_vec(),
            };
            let expected = exact_of(ty, &bytes, rows, k, &read, 3.0 * f64::from(least));
            let limit = roundings(k, gpu.tuning.lanes(k / BLOCK)) * U;
            for columns in [1, 4, 9] {
                let got = weights.product(&gpu, &mut pipelines, &x[..columns * k], &how(columns)).unwrap();
                for (i, (&got, &(want, size))) in got.iter().zip(&expected).enumerate() {
                    let off = (f64::from(got) - want).abs();
                    assert!(off <= limit * size, "{ty} {arith:?}, {i} of {columns} columns: {got}, {want}");
                }
            }
        }
    }
}

#[test]
fn sums_are_added_biased_and_gated() {
    const TEST: &str = "sums_are_added_biased_and_gated";
    let Some(gpu) = gpu(TEST) else { return };
    check_endings(&gpu, &[GgmlType::Q4_0, GgmlType::Q6_K], Arith::Summed);
    check_endings(&gpu, &[GgmlType::Q6_K, GgmlType::Q4_K], Arith::Int8);
    if let Some(gpu) = gpu_with(TEST, Variants::COOP) {
        check_endings(&gpu, &[GgmlType::Q6_K, GgmlType::Q4_K], Arith::Int8);
    }
}

fn check_endings(gpu: &Gpu, types: &[GgmlType], arith: Arith) {
    let mut pipelines = Pipelines::new(gpu);
    let (rows, k) = (70, 768);
    let mut random = Random::new(5);
    for &ty in types {
        let bytes = blocks(&mut random, ty, rows * k / ty.block_len());
        let weights = Matrix::new(gpu, ty, &bytes, rows, k).unwrap();
        let bias = random.floats(rows);
        for (columns, tile, share) in [(1, false, 0), (5, false, 0), (33, true, 0), (11, true, 2)] {
            let x: Vec<f32> = random.floats(columns * k).iter().map(|x| x / 16.0).collect();
            let how = |mode| How { mode, bias: Some(&bias[..]), arith, share, ..plain(columns, tile) };
            let stored = How { bias: None, ..how(Mode::Store) };
            let sums = weights.product(gpu, &mut pipelines, &x, &stored).unwrap();
            let added = weights.product(gpu, &mut pipelines, &x, &how(Mode::Add)).unwrap();
            let want: Vec<f32> =
                sums.iter().enumerate().map(|(i, sum)| sum + bias[i % rows] + start(i)).collect();
            assert!(bits(&added) == bits(&want), "{ty}, {columns} columns, added");
            let gate = How { bias: None, ..how(Mode::Gate(Curve::Silu)) };
            let gated = weights.product(gpu, &mut pipelines, &x, &gate).unwrap();
            for (got, pair) in gated.iter().zip(sums.as_chunks::<2>().0) {
                let (gate, up) = (f64::from(pair[0]), f64::from(pair[1]));
                let want = gate / (1.0 + (-gate).exp()) * up;
                // An exponential of 3 + 2·|x| units, as WGSL allows, and four operations.
                let limit = (8.0 + 2.0 * gate.abs()) * 2.0 * U * want.abs() + 1e-30;
                assert!((f64::from(*got) - want).abs() <= limit, "{ty}: {gate} {up}: {got}, {want}");
            }
        }
    }
}

/// The high plane alone stands for the middle of what the low bits could make it.
#[test]
fn coarse_products_use_the_middle_of_the_interval() {
    let Some(gpu) = gpu("coarse_products_use_the_middle_of_the_interval") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, k) = (66, 256);
    for ty in types().filter(|&ty| Format::of(ty).unwrap().has_planes()) {
        let mut random = Random::new(ty as u64);
        let bytes = blocks(&mut random, ty, rows * k / ty.block_len());
        let weights = Matrix::new(&gpu, ty, &bytes, rows, k).unwrap();
        // The mean over all settings of the low bits is that middle.
        let settings = 1u32 << (8 * weights.format.streams()[1].bytes / BLOCK);
        let mut mean = vec![0.0f64; rows];
        let x = random.floats(k);
        for setting in 0..settings {
            let mut streams = Streams::default();
            bytes
                .chunks_exact(ty.row_bytes(k).unwrap())
                .for_each(|row| split_row(ty, 1.0, row, &mut streams));
            let bits_each = settings.ilog2();
            let byte = (0..8 / bits_each).fold(0u8, |byte, i| byte | (setting as u8) << (i * bits_each));
            streams.0[1].fill(byte);
            let set = Matrix::of_streams(&gpu, weights.format, streams, rows, weights.blocks).unwrap();
            let got = set.product(&gpu, &mut pipelines, &x, &plain(1, false)).unwrap();
            mean.iter_mut().zip(&got).for_each(|(m, &y)| *m += f64::from(y) / f64::from(settings));
        }
        for (columns, tile) in [(1, false), (9, true)] {
            let how = How { coarse: true, ..plain(columns, tile) };
            let got = weights.product(&gpu, &mut pipelines, &x.repeat(columns), &how).unwrap();
            let sizes = exact(ty, &bytes, rows, k, &x);
            for (i, got) in got.iter().enumerate() {
                let (want, (_, size)) = (mean[i % rows], sizes[i % rows]);
                // The low bits may be most of a small weight, so the size is that of the full range.
                let limit = 4.0 * roundings(k, 8) * U * (size + 64.0 * 0.03 * 127.0);
                assert!((f64::from(*got) - want).abs() <= limit, "{ty}, row {i}: {got}, {want}");
            }
        }
    }
}

/// A high plane alone is what a low one is added to: the weights whose low bits are a one and zeros. Coarse, it is their mean.
#[test]
fn high_planes_alone_are_the_middle_of_what_low_ones_could_make_them() {
    const TEST: &str = "high_planes_alone_are_the_middle_of_what_low_ones_could_make_them";
    let Some(gpu) = gpu(TEST) else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, k) = (66, 512);
    for (ty, high) in high_planes() {
        let low_bits = high.high_alone().expect("it is one").low_bits;
        let mut random = Random::new(ty as u64 + 9);
        let bytes = blocks(&mut random, ty, rows * k / ty.block_len());
        let mut streams = Streams::default();
        bytes.chunks_exact(bytes.len() / rows).for_each(|row| split_row(ty, 1.0, row, &mut streams));
        let alone = Matrix::of_streams(&gpu, high, streams.clone().kept_by(high), rows, k / BLOCK).unwrap();
        let x = random.floats(9 * k);
        let sizes = exact(ty, &bytes, rows, k, &x);
        for arith in [Arith::Summed, Arith::Int8] {
            let read = match arith {
                Arith::Float | Arith::Summed => x.clone(),
                Arith::Int8 => alone.rounded(&gpu, &mut pipelines, &x, 9).as_flattened().to_vec(),
            };
            let of_number = |pipelines: &mut Pipelines, number| {
                let set = with_low_bits(streams.clone(), low_bits, number);
                let format = Format::of(ty).expect("it has a high plane");
                let set = Matrix::of_streams(&gpu, format, set, rows, k / BLOCK).unwrap();
                set.product(&gpu, pipelines, &read, &plain(9, true)).unwrap()
            };
            let numbers = [0, (1 << low_bits) - 1, 1 << (low_bits - 1)];
            let [least, most, middle] = numbers.map(|number| of_number(&mut pipelines, number));
            let mean = |i: usize| f64::midpoint(f64::from(least[i]), f64::from(most[i]));
            let mut tells_apart = false;
            for (columns, coarse) in [(1, false), (5, false), (9, false), (1, true), (9, true)] {
                let how = How { arith, coarse, ..plain(columns, columns > 8) };
                let got = alone.product(&gpu, &mut pipelines, &x[..columns * k], &how).unwrap();
                for (i, &got) in got.iter().enumerate() {
                    let want = if coarse { mean(i) } else { f64::from(middle[i]) };
                    let limit = 8.0 * roundings(k, 8) * U * (sizes[i].1 + 64.0 * 0.03 * 127.0);
                    let off = (f64::from(got) - want).abs();
                    let apart = (mean(i) - f64::from(middle[i])).abs();
                    assert!(
                        off <= limit,
                        "{high:?} {arith:?} coarse {coarse}, {i} of {columns}: {got}, {want}"
                    );
                    tells_apart |= apart > 2.0 * limit;
                }
            }
            assert!(tells_apart, "{high:?} {arith:?}: the limit means nothing");
        }
    }
}

/// Quantized types: those that another way of multiplying is for.
fn quantized() -> impl Iterator<Item = GgmlType> {
    types().filter(|&ty| !Format::of(ty).unwrap().is_float())
}

/// Activations are rounded to half a step of their block's scale; with what they are then, products are right to
/// rounding, and the same bits in each regime.
fn check_rounded_products(gpu: &Gpu, few: &[&[usize]]) {
    let mut pipelines = Pipelines::new(gpu);
    const ROWS: usize = 67;
    for (i, ty) in quantized().enumerate() {
        let k = if ty.block_len() == 32 { 352 } else { 2304 };
        let mut random = Random::new(ty as u64 + 77);
        let bytes = blocks(&mut random, ty, ROWS * k / ty.block_len());
        let weights = Matrix::new(gpu, ty, &bytes, ROWS, k).unwrap();
        let mut x = random.floats(COLUMNS * k);
        // Blocks of all sizes, among them one of zeros.
        for (i, block) in x.chunks_exact_mut(BLOCK).enumerate() {
            let size = [1.0, 300.0, 1e-4, 0.0, 30000.0][i % 5];
            block.iter_mut().for_each(|x| *x *= size);
        }
        let how = |columns| How { arith: Arith::Int8, ..plain(columns, columns > 8) };
        let rounded = weights.rounded(gpu, &mut pipelines, &x, COLUMNS);
        for (want, got) in x.as_chunks::<BLOCK>().0.iter().zip(&rounded) {
            let size = want.iter().fold(0.0f64, |size, &x| size.max(f64::from(x).abs()));
            // Half a step of 1/127, and roundings in f32.
            let step = 1.0 / 254.0;
            for (want, got) in want.iter().zip(got) {
                let off = (f64::from(*got) - f64::from(*want)).abs();
                assert!(off <= size * (step + 8.0 * U), "{ty}: {want} became {got}");
            }
        }
        let expected = exact(ty, &bytes, ROWS, k, rounded.as_flattened());
        let limit = roundings(k, gpu.tuning.lanes(k.div_ceil(BLOCK))) * U;
        let all = weights.product(gpu, &mut pipelines, &x, &how(COLUMNS)).unwrap();
        for (i, (&got, &(want, size))) in all.iter().zip(&expected).enumerate() {
            let off = (f64::from(got) - want).abs();
            assert!(off <= limit * size, "{ty}, column {}, row {}: {got}, {want}", i / ROWS, i % ROWS);
        }
        for columns in chosen_in_turn(i, few) {
            let got = weights.product(gpu, &mut pipelines, &x[..columns * k], &how(columns)).unwrap();
            assert!(bits(&got) == bits(&all[..columns * ROWS]), "{ty}, {columns} columns");
        }
        let how = How { share: 4, ..how(13) };
        let got = weights.product(gpu, &mut pipelines, &x[..13 * k], &how).unwrap();
        assert!(bits(&got) == bits(&all[..13 * ROWS]), "{ty}, lanes shared");
    }
}

#[test]
fn products_by_dot4_are_right_and_the_same_in_each_regime() {
    let Some(mut gpu) = gpu("products_by_dot4_are_right_and_the_same_in_each_regime") else { return };
    check_rounded_products(&gpu, NARROW);
    gpu.tuning = Tuning::HARDWARE.within(&gpu.limits);
    check_rounded_products(&gpu, WIDE);
}

#[test]
fn wide_tiles_have_the_bits_of_others() {
    let Some(mut gpu) = gpu("wide_tiles_have_the_bits_of_others") else { return };
    let (rows, columns) = (200, 128);
    for tuning in [Tuning::SOFTWARE, Tuning::HARDWARE] {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        for (ty, k) in quantized().zip([2304, 256].into_iter().cycle()) {
            if !Format::of(ty).unwrap().description().fits_wide_tiles {
                continue;
            }
            let mut random = Random::new(ty as u64 + 31);
            let bytes = blocks(&mut random, ty, rows * k / ty.block_len());
            let weights = Matrix::new(&gpu, ty, &bytes, rows, k).unwrap();
            let x: Vec<f32> = random.floats(columns * k).iter().map(|x| x / 16.0).collect();
            for mode in [Mode::Add, Mode::Gate(Curve::Silu)] {
                let how = How { mode, arith: Arith::Int8, ..plain(columns, true) };
                let [want, got] = [false, true]
                    .map(|wide| weights.product(&gpu, &mut pipelines, &x, &How { wide, ..how }).unwrap());
                assert!(bits(&got) == bits(&want), "{ty} k {k}, {mode:?}");
            }
        }
    }
}

/// However many turns there are: of nine rows both have one more than they need.
#[test]
fn rows_in_turns_have_the_bits_of_tiles() {
    let Some(mut gpu) = gpu("rows_in_turns_have_the_bits_of_tiles") else { return };
    let (rows, k) = (70, 768);
    for tuning in [Tuning::SOFTWARE, Tuning::HARDWARE] {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        for (ty, arith) in [
            (GgmlType::Q4_0, Arith::Int8),
            (GgmlType::Q6_K, Arith::Int8),
            (GgmlType::Q4_K, Arith::Summed),
            (GgmlType::F16, Arith::Float),
        ] {
            let mut random = Random::new(ty as u64 + 13);
            let bytes = blocks(&mut random, ty, rows * k / ty.block_len());
            let weights = Matrix::new(&gpu, ty, &bytes, rows, k).unwrap();
            let bias = random.floats(rows);
            for columns in [9, 16, 21] {
                let x: Vec<f32> = random.floats(columns * k).iter().map(|x| x / 16.0).collect();
                for mode in [Mode::Add, Mode::Gate(Curve::Silu)] {
                    let how = How { mode, arith, bias: Some(&bias), ..plain(columns, true) };
                    let [want, got] = [true, false]
                        .map(|tile| weights.product(&gpu, &mut pipelines, &x, &How { tile, ..how }).unwrap());
                    assert!(bits(&got) == bits(&want), "{ty}, {columns} columns, {mode:?}");
                }
            }
        }
    }
}

/// Rows are dot4's, so tiles have dot4's bits.
#[test]
fn products_by_cooperative_matrices_have_the_bits_of_rows() {
    let Some(mut gpu) = gpu_with("products_by_cooperative_matrices_have_the_bits_of_rows", Variants::COOP)
    else {
        return;
    };
    check_rounded_products(&gpu, &[&[1, 8, 9]]);
    gpu.tuning = Tuning::HARDWARE.within(&gpu.limits);
    check_rounded_products(&gpu, &[&[4]]);
}

/// A coarse weight is the middle of its interval in any way of multiplying.
#[test]
fn coarse_products_by_dot4_are_those_in_floats() {
    const TEST: &str = "coarse_products_by_dot4_are_those_in_floats";
    [gpu(TEST), gpu_with(TEST, Variants::COOP)].iter().flatten().for_each(check_coarse_products);
}

fn check_coarse_products(gpu: &Gpu) {
    let mut pipelines = Pipelines::new(gpu);
    let (rows, k) = (66, 256);
    for ty in types().filter(|&ty| Format::of(ty).unwrap().has_planes()) {
        let mut random = Random::new(ty as u64 + 5);
        let bytes = blocks(&mut random, ty, rows * k / ty.block_len());
        let weights = Matrix::new(gpu, ty, &bytes, rows, k).unwrap();
        let x = random.floats(9 * k);
        let how = |arith, columns| How { coarse: true, arith, ..plain(columns, columns > 8) };
        let rounded = weights.rounded(gpu, &mut pipelines, &x, 9);
        let want =
            weights.product(gpu, &mut pipelines, rounded.as_flattened(), &how(Arith::Summed, 9)).unwrap();
        let sizes = exact(ty, &bytes, rows, k, rounded.as_flattened());
        for columns in [1, 5, 9] {
            let x = &x[..columns * k];
            let got = weights.product(gpu, &mut pipelines, x, &how(Arith::Int8, columns)).unwrap();
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let limit = 4.0 * roundings(k, 8) * U * (sizes[i].1 + 64.0 * 0.03 * 127.0);
                let off = (f64::from(*got) - f64::from(*want)).abs();
                assert!(off <= limit, "{ty}, {i} of {columns} columns: {got}, {want}");
            }
        }
    }
}
