//! The contract of `backend::cpu::matmul`: the same bits on every tier, for any number of columns, any split of the
//! rows; and the right numbers, against f64 sums over what the scalar dequantizer gives.

use crate::weights;
use spec_run::{
    context::Isa,
    quant::{GgmlType, dequantize},
};
use spec_run_kernels::matmul::{Acts, Mode, OutMatrix, QuantRows, Weight, matmul};

use weights::{Random, bits, fields, tame_blocks, weight, wild_blocks};

fn types() -> impl Iterator<Item = GgmlType> {
    GgmlType::ALL.iter().copied().filter(|ty| ty.readable())
}

/// `[columns, rows]`
fn product(isa: Isa, w: &Weight, x: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / w.cols() * w.rows()];
    let quantized = if w.wants_quantized() { Some(QuantRows::of(isa, x, w.cols())) } else { None };
    let acts = quantized.as_ref().map_or(Acts::Float(x), Acts::Quantized);
    matmul(isa, w, acts, &mut OutMatrix::new(&mut out, w.rows(), Mode::Store).whole());
    out
}

#[test]
fn every_tier_every_shape_the_same_bits() {
    const ROWS: usize = 31;
    const COLUMNS: usize = 17;
    for ty in types() {
        let mut random = Random(ty as u64);
        let mut ks = vec![ty.block_len().max(32), 256, 768, 11008];
        if ty.row_bytes(19).is_some() {
            ks.extend([1, 19, 100]);
        }
        for k in ks {
            let bytes = wild_blocks(&mut random, ty, ROWS * k / ty.block_len());
            let x = random.floats(COLUMNS * k);
            let expected = product(Isa::Scalar, &weight(ty, &bytes, ROWS, k), &x);
            assert!(expected.iter().all(|y| y.is_finite()), "{ty} k {k}");
            for isa in Isa::available() {
                for rows in [1, 3, 8, 9, 16, ROWS] {
                    for columns in [1, 2, 3, 5, 8, COLUMNS] {
                        if isa == Isa::Scalar && rows * columns != 9 * 3 {
                            continue;
                        }
                        let w = weight(ty, &bytes, rows, k);
                        let got = product(isa, &w, &x[..columns * k]);
                        for (c, got) in got.chunks_exact(rows).enumerate() {
                            let expected = &expected[c * ROWS..][..rows];
                            assert_eq!(
                                bits(got),
                                bits(expected),
                                "{ty} {isa} k {k} rows {rows} column {c} of {columns}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Also more columns than share an unpacking, and a neighbour that is not finite.
#[test]
fn a_column_does_not_know_its_neighbours() {
    const ROWS: usize = 21;
    const COLUMNS: usize = 134;
    for ty in types() {
        let mut random = Random(100 + ty as u64);
        let k = 512;
        let bytes = tame_blocks(&mut random, ty, ROWS * k / ty.block_len());
        let w = weight(ty, &bytes, ROWS, k);
        let mut x = random.floats(COLUMNS * k);
        x[5 * k + 300] = f32::INFINITY;
        x[6 * k..7 * k].fill(0.0);
        for isa in Isa::available() {
            let together = product(isa, &w, &x);
            for c in [0, 4, 5, 6, 7, 63, 64, 69, 127, 128, 133] {
                let alone = product(isa, &w, &x[c * k..][..k]);
                assert_eq!(bits(&alone), bits(&together[c * ROWS..][..ROWS]), "{ty} {isa} column {c}");
                assert_eq!(alone.iter().all(|y| y.is_finite()), c != 5, "{ty} {isa} column {c}");
            }
        }
    }
}

#[test]
fn stripes_join_to_the_whole_and_add_to_what_was_there() {
    const ROWS: usize = 45;
    const COLUMNS: usize = 3;
    for ty in types() {
        let mut random = Random(200 + ty as u64);
        let k = 768;
        let bytes = tame_blocks(&mut random, ty, ROWS * k / ty.block_len());
        let w = weight(ty, &bytes, ROWS, k);
        let x = random.floats(COLUMNS * k);
        let before = random.floats(COLUMNS * ROWS);
        for isa in Isa::available() {
            let whole = product(isa, &w, &x);
            let expected: Vec<f32> = before.iter().zip(&whole).map(|(a, b)| a + b).collect();
            let quantized = QuantRows::of(isa, &x, k);
            let acts = if w.wants_quantized() { Acts::Quantized(&quantized) } else { Acts::Float(&x) };
            for cuts in [vec![0, ROWS], vec![0, 1, 2, 20, ROWS], vec![0, 16, 17, 43, ROWS]] {
                let mut out = before.clone();
                let matrix = OutMatrix::new(&mut out, ROWS, Mode::Add);
                std::thread::scope(|scope| {
                    for cut in cuts.windows(2) {
                        // SAFETY: the stripes of different threads have no row in common.
                        let mut stripe = unsafe { matrix.stripe(cut[0]..cut[1]) };
                        let w = &w;
                        scope.spawn(move || matmul(isa, w, acts, &mut stripe));
                    }
                });
                assert_eq!(bits(&out), bits(&expected), "{ty} {isa} {cuts:?}");
            }
        }
    }
}

/// Weights of one row as f64, and what bounds the terms of each: scale · integer and minimum can be
/// larger than their difference.
fn oracle_weights(ty: GgmlType, row: &[u8], k: usize) -> (Vec<f64>, Vec<f64>) {
    let numbers = |bytes: &[u8]| {
        let mut out = vec![0.0; k];
        dequantize(ty, bytes, &mut out);
        out.into_iter().map(f64::from).collect::<Vec<_>>()
    };
    let w = numbers(row);
    let mut without_quants = row.to_vec();
    for block in without_quants.chunks_exact_mut(ty.block_bytes()) {
        block[fields(ty).1].fill(0);
    }
    let minimum = numbers(&without_quants);
    let bound = w.iter().zip(&minimum).map(|(w, m)| (w - m).abs() + m.abs()).collect();
    (w, bound)
}

#[test]
fn close_to_the_exact_product() {
    const EPS: f64 = 1.0 / (1 << 24) as f64;
    const ROWS: usize = 5;
    const COLUMNS: usize = 2;
    for ty in types() {
        let mut random = Random(300 + ty as u64);
        for k in [256, 4096] {
            let bytes = tame_blocks(&mut random, ty, ROWS * k / ty.block_len());
            let w = weight(ty, &bytes, ROWS, k);
            let x = random.floats(COLUMNS * k);
            let got = product(Isa::Scalar, &w, &x);
            let quantized = QuantRows::of(Isa::Scalar, &x, k);
            for c in 0..COLUMNS {
                let x = &x[c * k..][..k];
                // What the kernel is given, and how far that may be from x: half a step.
                let (seen, half_step): (Vec<f64>, Vec<f64>) = if w.wants_quantized() {
                    let row = quantized.row(c);
                    let d = |i: usize| f64::from(row[i / 32].d);
                    let q = |i: usize| f64::from(row[i / 32].q[i % 32]);
                    (0..k).map(|i| (d(i) * q(i), d(i) * (0.5 + 512.0 * EPS))).unzip()
                } else {
                    x.iter().map(|&x| (f64::from(x), 0.0)).unzip()
                };
                for r in 0..ROWS {
                    let (w, bound) = oracle_weights(ty, w.row(r), k);
                    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                    let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                    let size: f64 = bound.iter().zip(&seen).map(|(w, x)| w * x.abs()).sum();
                    let y = f64::from(got[c * ROWS + r]);
                    // Per term at most 8 roundings beside those of the sums: at most 3 per block of 32, or
                    // one per 16 numbers and 4 of the tree.
                    let limit = size * EPS * (8.0 + 3.0 * (k / 16) as f64);
                    let error = (y - sum(&w, &seen)).abs();
                    assert!(error <= limit, "{ty} k {k}: {y}, error {error:e} > {limit:e}");
                    assert!(limit < 2e-4 * size, "the limit means something");
                    let limit = limit + w.iter().zip(&half_step).map(|(w, s)| w.abs() * s).sum::<f64>();
                    let error = (y - sum(&w, &x)).abs();
                    assert!(error <= limit, "{ty} k {k} unquantized: {y}, error {error:e} > {limit:e}");
                }
            }
        }
    }
}

/// MXFP4's exponents at both ends, where the scale is subnormal or the largest power of two.
#[test]
fn extreme_exponents() {
    for e in [0u8, 1, 2, 3, 127, 254, 255] {
        let mut block = [0x21; 17];
        block[0] = e;
        let x: Vec<f32> = (0..32).map(|i| if i == 0 { 127.0 } else { 0.0 }).collect();
        // Nibble 1 is 0.5, doubled 1; d = 1, q = 127.
        let expected = (127.0 * 2f64.powi(i32::from(e) - 128)) as f32;
        for isa in Isa::available() {
            assert_eq!(product(isa, &weight(GgmlType::MXFP4, &block, 1, 32), &x), [expected], "{isa} {e}");
        }
    }
}

/// NVFP4's codes: subnormal ones, one that is none, and those with a sign, which counts for nothing.
#[test]
fn every_scale_of_eight_bits() {
    for code in 0..=255u8 {
        let mut block = [0x21; 36];
        block[..4].fill(code);
        let (e, m) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        let scale = match (code, e) {
            (0x7f, _) => 0.0,
            (_, 0) => m * 2f64.powi(-9),
            _ => (1.0 + m / 8.0) * 2f64.powi(e - 7),
        };
        for part in 0..4 {
            let x: Vec<f32> = (0..64).map(|i| if i == 16 * part { 127.0 } else { 0.0 }).collect();
            // Nibble 1 is 0.5; d = 1, q = 127.
            let expected = (127.0 * 0.5 * scale) as f32;
            for isa in Isa::available() {
                let got = product(isa, &weight(GgmlType::NVFP4, &block, 1, 64), &x);
                assert_eq!(got, [expected], "{isa} {code:#x} {part}");
            }
        }
    }
}

/// A number for the whole matrix is multiplied last, before what stands there is added.
#[test]
fn factors_are_multiplied_into_results() {
    const ROWS: usize = 21;
    for ty in [GgmlType::NVFP4, GgmlType::Q8_0, GgmlType::F16] {
        let mut random = Random(400 + ty as u64);
        let bytes = tame_blocks(&mut random, ty, ROWS * 256 / ty.block_len());
        let w = weight(ty, &bytes, ROWS, 256);
        let (x, before) = (random.floats(3 * 256), random.floats(3 * ROWS));
        for isa in Isa::available() {
            let plain = product(isa, &w, &x);
            let scaled: Vec<f32> = plain.iter().map(|y| y * 0.37).collect();
            assert_eq!(bits(&product(isa, &w.times(0.37), &x)), bits(&scaled), "{ty} {isa}");
            let quantized = QuantRows::of(isa, &x, 256);
            let acts = if w.wants_quantized() { Acts::Quantized(&quantized) } else { Acts::Float(&x) };
            let mut out = before.clone();
            matmul(isa, &w.times(0.37), acts, &mut OutMatrix::new(&mut out, ROWS, Mode::Add).whole());
            let expected: Vec<f32> = std::iter::zip(&before, &scaled).map(|(a, b)| a + b).collect();
            assert_eq!(bits(&out), bits(&expected), "{ty} {isa}");
        }
    }
}

#[test]
#[should_panic(expected = "float activations")]
fn float_weights_refuse_quantized_activations() {
    let mut out = [0.0];
    let x = QuantRows::of(Isa::Scalar, &[0.0; 32], 32);
    let bytes = [0; 128];
    let mut out = OutMatrix::new(&mut out, 1, Mode::Store);
    matmul(Isa::Scalar, &Weight::new(GgmlType::F32, &bytes, 1, 32), Acts::Quantized(&x), &mut out.whole());
}
