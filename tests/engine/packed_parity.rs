//! Packed weights compute what the rows of the file do, to the bit; and coarse products are those of weights whose low
//! bits stand at the middle of what they could be.

use std::ops::Range;

use crate::weights;
use spec_run::{
    context::{Isa, Planes},
    quant::{GgmlType, dequantize},
};
use spec_run_kernels::matmul::{
    Acts, HighBits, Mode, OutMatrix, Packed, PackedMemory, QuantRows, Weight, matmul,
};
use weights::{Random, bits, tame_blocks, weight, wild_blocks};

const TYPES: [GgmlType; 25] = {
    use GgmlType::*;
    [
        Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4, IQ1_S,
        IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, TQ1_0, TQ2_0, Q1_0, Q2_0,
    ]
};

/// `[columns, rows]`, the rows in stripes that end at `cuts`.
fn product(isa: Isa, w: &Weight, x: &[f32], cuts: &[usize]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / w.cols() * w.rows()];
    let x = QuantRows::of(isa, x, w.cols());
    let out_matrix = OutMatrix::new(&mut out, w.rows(), Mode::Store);
    let mut start = 0;
    for &end in cuts.iter().chain([&w.rows()]) {
        // SAFETY: one stripe after the other.
        matmul(isa, w, Acts::Quantized(&x), &mut unsafe { out_matrix.stripe(start..end) });
        start = end;
    }
    out
}

fn packed(isa: Isa, w: &Weight, planes: Planes) -> Packed {
    Packed::new(isa, w, planes, |_| ()).unwrap()
}

#[test]
fn packed_rows_have_the_bits_of_the_files_rows() {
    for ty in TYPES {
        let mut random = Random(ty as u64 + 40);
        for k in [ty.block_len(), 256, 768, 11008, 14336] {
            for rows in [1, 3, 16, 31, 40] {
                if rows * k > 31 * 14336 || (k > 1000 && rows < 31) {
                    continue;
                }
                let bytes = wild_blocks(&mut random, ty, rows * k / ty.block_len());
                let x = random.floats(41 * k);
                let of_file = weight(ty, &bytes, rows, k);
                let expected = product(Isa::Scalar, &of_file, &x, &[]);
                assert!(expected.iter().all(|y| y.is_finite()), "{ty} k {k}");
                for (isa, planes) in combinations() {
                    let packed = packed(isa, &of_file, planes);
                    let w = Weight::packed(&packed);
                    for columns in (1..=18).chain([41]) {
                        if isa == Isa::Scalar && columns != 3 {
                            continue;
                        }
                        let got = product(isa, &w, &x[..columns * k], &[]);
                        for (c, (got, expected)) in
                            got.chunks_exact(rows).zip(expected.chunks_exact(rows)).enumerate()
                        {
                            assert_eq!(
                                bits(got),
                                bits(expected),
                                "{ty} {isa} {planes:?} k {k} rows {rows} column {c} of {columns}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn more_columns_than_share_an_unpacking() {
    const ROWS: usize = 21;
    const COLUMNS: usize = 134;
    for ty in TYPES {
        let mut random = Random(ty as u64 + 60);
        let bytes = wild_blocks(&mut random, ty, ROWS * 512 / ty.block_len());
        let x = random.floats(COLUMNS * 512);
        let of_file = weight(ty, &bytes, ROWS, 512);
        let expected = product(Isa::Scalar, &of_file, &x, &[]);
        for (isa, planes) in combinations() {
            let packed = packed(isa, &of_file, planes);
            let got = product(isa, &Weight::packed(&packed), &x, &[]);
            assert_eq!(bits(&got), bits(&expected), "{ty} {isa} {planes:?}");
        }
    }
}

fn combinations() -> impl Iterator<Item = (Isa, Planes)> {
    Isa::available().into_iter().flat_map(|isa| [(isa, Planes::Never), (isa, Planes::All)])
}

#[test]
fn stripes_may_end_anywhere() {
    const ROWS: usize = 50;
    for ty in TYPES {
        let mut random = Random(ty as u64 + 80);
        let bytes = wild_blocks(&mut random, ty, ROWS * 512 / ty.block_len());
        let of_file = weight(ty, &bytes, ROWS, 512);
        let x = random.floats(19 * 512);
        for (isa, planes) in combinations() {
            let packed = packed(isa, &of_file, planes);
            let w = Weight::packed(&packed);
            for columns in [1, 5, 19] {
                let x = &x[..columns * 512];
                let expected = product(isa, &w, x, &[]);
                for cuts in [&[16, 32][..], &[1, 17, 49], &[8], &[3, 5, 7, 9, 11, 13]] {
                    let got = product(isa, &w, x, cuts);
                    assert_eq!(bits(&got), bits(&expected), "{ty} {isa} {planes:?} {cuts:?}");
                }
            }
        }
    }
}

/// The integer of weight `i` of a block, and how many low bits are its low plane's, as the format's own text says; read
/// off a block by changing one field at a time would be the same, slower.
fn low_bits(ty: GgmlType) -> u32 {
    match ty {
        GgmlType::Q4_0 | GgmlType::Q4_1 | GgmlType::Q4_K | GgmlType::Q6_K => 2,
        GgmlType::Q3_K | GgmlType::Q5_0 | GgmlType::Q5_1 | GgmlType::Q5_K => 1,
        GgmlType::Q8_0 => 4,
        _ => 0,
    }
}

/// Of the low plane that a high plane leaves.
fn low_bits_of(ty: GgmlType, high: HighBits) -> u32 {
    match (high, ty) {
        (HighBits::Two, GgmlType::Q5_K) => 3,
        (HighBits::Two, GgmlType::Q6_K) => 4,
        (HighBits::Two, GgmlType::Q8_0) => 6,
        _ => low_bits(ty),
    }
}

/// Sets so many of every integer's low bits in the block's bytes to `value`.
fn with_low_bits(ty: GgmlType, bits: u32, block: &mut [u8], value: u8) {
    let set = |bytes: &mut [u8], mask: u8, to: u8| bytes.iter_mut().for_each(|b| *b = *b & !mask | to);
    let mask = (1 << bits) - 1;
    let mut set_nibbles = |bytes: Range<usize>| set(&mut block[bytes], mask * 0x11, value * 0x11);
    match ty {
        GgmlType::Q4_0 => set_nibbles(2..18),
        GgmlType::Q4_1 => set_nibbles(4..20),
        GgmlType::Q4_K => set_nibbles(16..144),
        GgmlType::Q5_0 => set_nibbles(6..22),
        GgmlType::Q5_1 => set_nibbles(8..24),
        GgmlType::Q5_K => set_nibbles(48..176),
        GgmlType::Q6_K => set_nibbles(0..128),
        GgmlType::Q3_K => set(&mut block[32..96], 0x55, value * 0x55),
        // Signed: its bits but for the top one are those of the number that is 128 larger.
        GgmlType::Q8_0 => set(&mut block[2..], mask, value),
        other => panic!("{other} has one plane"),
    }
}

/// Against sums in f64 over what the scalar dequantizer makes of the lowest and the highest weights that have the same
/// high bits: a coarse weight is their mean.
#[test]
fn a_coarse_weight_is_the_middle_of_its_interval() {
    const EPS: f64 = 1.0 / (1 << 24) as f64;
    const ROWS: usize = 19;
    for ty in TYPES.into_iter().filter(|&ty| low_bits(ty) > 0) {
        let mut random = Random(ty as u64 + 120);
        for k in [256, 2048] {
            let bytes = tame_blocks(&mut random, ty, ROWS * k / ty.block_len());
            let mut ends = [bytes.clone(), bytes.clone()];
            for (end, value) in ends.iter_mut().zip([0, (1 << low_bits(ty)) - 1]) {
                end.chunks_exact_mut(ty.block_bytes())
                    .for_each(|block| with_low_bits(ty, low_bits(ty), block, value));
            }
            let numbers = |bytes: &[u8]| {
                let mut out = vec![0.0; ROWS * k];
                dequantize(ty, bytes, &mut out);
                out
            };
            let ends = ends.map(|bytes| numbers(&bytes));
            let middle: Vec<f64> =
                ends[0].iter().zip(&ends[1]).map(|(a, b)| (f64::from(*a) + f64::from(*b)) / 2.0).collect();
            assert!(
                middle.iter().zip(&numbers(&bytes)).any(|(m, w)| *m != f64::from(*w)),
                "some bits are lost"
            );
            let of_file = weight(ty, &bytes, ROWS, k);
            let x = random.floats(6 * k);
            let seen = QuantRows::of(Isa::Scalar, &x, k);
            let mut of_scalar = Vec::new();
            for isa in Isa::available() {
                let packed = packed(isa, &of_file, Planes::All);
                assert!(packed.has_coarse() && packed.bytes_read(true) < packed.bytes_read(false));
                let got = product(isa, &Weight::packed(&packed).coarse(true), &x, &[7]);
                if isa == Isa::Scalar {
                    of_scalar = got.clone();
                }
                assert_eq!(bits(&got), bits(&of_scalar), "{ty} {isa} k {k}");
                for (c, got) in got.chunks_exact(ROWS).enumerate() {
                    let x: Vec<f64> = (0..k)
                        .map(|i| {
                            let group = seen.row(c)[i / 32];
                            f64::from(group.d) * f64::from(group.q[i % 32])
                        })
                        .collect();
                    for (r, y) in got.iter().enumerate() {
                        let w = &middle[r * k..][..k];
                        let expected: f64 = w.iter().zip(&x).map(|(w, x)| w * x).sum();
                        // Minimums are larger than the weights that they make: their part is bounded by the ends.
                        let parts = ends[0][r * k..].iter().zip(&ends[1][r * k..]);
                        let size: f64 = parts
                            .zip(&x)
                            .map(|((a, b), x)| 4.0 * (a.abs().max(b.abs()) as f64 + 0.7) * x.abs())
                            .sum();
                        let limit = size * EPS * (8.0 + 3.0 * (k / 16) as f64);
                        let error = (f64::from(*y) - expected).abs();
                        assert!(error <= limit, "{ty} {isa} k {k}: {y}, error {error:e} > {limit:e}");
                        assert!(limit < 2e-3 * size, "the limit means something");
                    }
                }
            }
        }
    }
}

/// A low plane alone is what the weights are beyond those whose low bits are a one and zeros: against sums in f64 over what the
/// scalar dequantizer makes of both, and to the bit the same on every tier, for any number of columns.
#[test]
fn a_low_plane_alone_is_what_is_left_of_the_weights() {
    const EPS: f64 = 1.0 / (1 << 24) as f64;
    const ROWS: usize = 19;
    const COLUMNS: usize = 41;
    let mut planes = Vec::new();
    let each_high = |ty| HighBits::ALL.map(|high| (ty, high));
    for (ty, high_bits) in TYPES.into_iter().filter(|&ty| Packed::has_low_plane(ty)).flat_map(each_high) {
        let bits_of_low = low_bits_of(ty, high_bits);
        planes.push((ty, bits_of_low));
        let mut random = Random(ty as u64 + 200);
        let k = 768;
        let bytes = tame_blocks(&mut random, ty, ROWS * k / ty.block_len());
        let mut high = bytes.clone();
        let middle = 1 << (bits_of_low - 1);
        high.chunks_exact_mut(ty.block_bytes())
            .for_each(|block| with_low_bits(ty, bits_of_low, block, middle));
        let numbers = |bytes: &[u8]| {
            let mut out = vec![0.0; ROWS * k];
            dequantize(ty, bytes, &mut out);
            out
        };
        let (whole, high) = (numbers(&bytes), numbers(&high));
        let of_file = weight(ty, &bytes, ROWS, k);
        let x = random.floats(COLUMNS * k);
        let seen = QuantRows::of(Isa::Scalar, &x, k);
        let low = |isa| {
            Packed::low_plane_in(&mut PackedMemory::default(), isa, &of_file, high_bits, |_| ()).unwrap()
        };
        let of_scalar = product(Isa::Scalar, &Weight::packed(&low(Isa::Scalar)), &x, &[7]);
        for isa in Isa::available() {
            let low = low(isa);
            assert!(low.bytes() < packed(isa, &of_file, Planes::Never).bytes() && !low.has_coarse(), "{ty}");
            let rows = ROWS.next_multiple_of(low.lanes());
            assert_eq!(low.bytes() as u64, Packed::low_plane_bytes(ty, rows, k, high_bits), "{ty} {isa}");
            for columns in (1..=18).chain([COLUMNS]) {
                let got = product(isa, &Weight::packed(&low), &x[..columns * k], &[]);
                assert_eq!(
                    bits(&got),
                    bits(&of_scalar[..columns * ROWS]),
                    "{ty} {high_bits:?} {isa} x{columns}"
                );
            }
        }
        for (i, y) in of_scalar.iter().enumerate() {
            let (c, r) = (i / ROWS, i % ROWS);
            let (mut expected, mut size, mut of_high) = (0.0, 0.0, 0.0);
            for j in 0..k {
                let group = seen.row(c)[j / 32];
                let x = f64::from(group.d) * f64::from(group.q[j % 32]);
                let [whole, high] = [&whole, &high].map(|w| f64::from(w[r * k + j]));
                expected += (whole - high) * x;
                of_high += high * x;
                size += (whole.abs() + high.abs()) * x.abs();
            }
            let limit = size * EPS * (8.0 + (k / 16) as f64);
            let error = (f64::from(*y) - expected).abs();
            assert!(error <= limit, "{ty} row {r} of column {c}: {y}, error {error:e} > {limit:e}");
            assert!(limit < 1e-4 * size && of_high != expected, "the limit means something");
        }
    }
    planes.dedup();
    assert_eq!(planes.len(), 9, "{planes:?}");
}

#[test]
fn without_a_low_plane_coarse_is_full() {
    for ty in TYPES {
        let mut random = Random(ty as u64 + 160);
        let bytes = wild_blocks(&mut random, ty, 20 * 512 / ty.block_len());
        let of_file = weight(ty, &bytes, 20, 512);
        let x = random.floats(3 * 512);
        for isa in Isa::available() {
            for w in [of_file, Weight::packed(&packed(isa, &of_file, Planes::Never))] {
                if ty == GgmlType::Q6_K || low_bits(ty) == 1 {
                    // Their only packed form has two planes.
                    continue;
                }
                assert_eq!(bits(&product(isa, &w.coarse(true), &x, &[])), bits(&product(isa, &w, &x, &[])));
            }
        }
    }
}

#[test]
fn packing_tells_which_rows_are_done_and_takes_no_more_room_than_the_file() {
    let mut random = Random(7);
    for ty in TYPES {
        let (rows, k) = (64, 1024);
        let bytes = wild_blocks(&mut random, ty, rows * k / ty.block_len());
        let done = std::cell::RefCell::new(Vec::new());
        let packed = Packed::new(Isa::detect(), &weight(ty, &bytes, rows, k), Planes::All, |r| {
            done.borrow_mut().extend(r)
        })
        .unwrap();
        assert_eq!(done.into_inner(), (0..rows).collect::<Vec<_>>());
        assert_eq!(packed.bytes(), bytes.len(), "{ty}");
    }
}
