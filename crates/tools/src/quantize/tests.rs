use super::{
    FileType, WRITTEN,
    encode::{Rows, encode},
    mix::Category,
};
use crate::{
    backend::cpu::simd::Isa,
    quant::{GgmlType, dequantize, quantize},
    rng::Rng,
};

const COLUMNS: usize = 1024;

/// Rows as weights are, and some that are not: zeros, one value, large and tiny ones, no negative ones.
fn rows() -> Vec<f32> {
    let mut rng = Rng::new(7);
    let mut noise = move || (0..4).map(|_| rng.next_u64() as u16 as f32 / 65536.0 - 0.5).sum::<f32>();
    let mut x: Vec<f32> = (0..21 * COLUMNS).map(|_| 0.05 * noise()).collect();
    x[COLUMNS..2 * COLUMNS].fill(0.0);
    x[2 * COLUMNS..3 * COLUMNS].fill(-0.7);
    x[3 * COLUMNS..4 * COLUMNS].iter_mut().for_each(|x| *x *= 1e4);
    x[4 * COLUMNS..5 * COLUMNS].iter_mut().for_each(|x| *x *= 1e-7);
    x[5 * COLUMNS..6 * COLUMNS].iter_mut().for_each(|x| *x = x.abs() + 1.0);
    x[6 * COLUMNS + 100] = 3.0;
    x
}

/// Some columns matter a thousand times more than others, and some not at all.
fn importance() -> Vec<f32> {
    let mut rng = Rng::new(8);
    let of = |i: usize, random: f32| if i.is_multiple_of(97) { 0.0 } else { 1000f32.powf(random) };
    (0..COLUMNS).map(|i| of(i, rng.next_u64() as u16 as f32 / 65536.0)).collect()
}

fn written(isa: Isa, ty: GgmlType, x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(isa, ty, Rows { x, columns: COLUMNS, importance }, &mut out);
    assert_eq!(out.len(), ty.row_bytes(x.len()).unwrap(), "{ty}");
    out
}

/// The error of each weight, squared, times what it counts.
fn error(ty: GgmlType, bytes: &[u8], x: &[f32], counts: impl Fn(usize) -> f32) -> f64 {
    let mut out = vec![0.0; x.len()];
    dequantize(ty, bytes, &mut out);
    let errors = out.iter().zip(x).map(|(a, b)| f64::from(a - b).powi(2));
    errors.enumerate().map(|(i, error)| error * f64::from(counts(i))).sum()
}

fn searched() -> impl Iterator<Item = GgmlType> {
    WRITTEN.iter().copied().filter(|ty| ty.block_len() > 1)
}

#[test]
fn all_tiers_write_the_same_bytes() {
    let (x, importance) = (rows(), importance());
    for ty in searched() {
        for importance in [None, Some(&importance[..])] {
            let expected = written(Isa::Scalar, ty, &x, importance);
            for isa in Isa::available() {
                assert!(
                    written(isa, ty, &x, importance) == expected,
                    "{ty} on {isa}, {}",
                    importance.is_some()
                );
            }
        }
    }
}

/// What lies beside a row is no part of it.
#[test]
fn rows_are_written_the_same_alone() {
    let (x, importance) = (rows(), importance());
    for ty in searched() {
        for importance in [None, Some(&importance[..])] {
            let together = written(Isa::detect(), ty, &x, importance);
            let alone = x.chunks(COLUMNS).flat_map(|row| written(Isa::detect(), ty, row, importance));
            assert!(alone.eq(together), "{ty}, {}", importance.is_some());
        }
    }
}

#[test]
fn searched_scales_are_better_than_plain_ones() {
    let x = &rows()[7 * COLUMNS..];
    for ty in [GgmlType::Q4_K, GgmlType::Q5_K, GgmlType::Q6_K] {
        let mut plain = Vec::new();
        quantize(ty, x, &mut plain).unwrap();
        let [plain, searched] =
            [plain, written(Isa::detect(), ty, x, None)].map(|bytes| error(ty, &bytes, x, |_| 1.0));
        assert!(searched < 0.97 * plain, "{ty}: {searched} and plain {plain}");
    }
}

#[test]
fn importance_moves_the_error_to_where_it_matters_less() {
    let (x, importance) = (&rows()[7 * COLUMNS..], importance());
    for ty in searched().filter(|ty| !matches!(ty, GgmlType::Q8_0 | GgmlType::MXFP4)) {
        let [without, with] = [None, Some(&importance[..])]
            .map(|given| error(ty, &written(Isa::detect(), ty, x, given), x, |i| importance[i % COLUMNS]));
        assert!(with < 0.97 * without, "{ty}: {with} with importance, {without} without");
    }
}

/// A weight is never farther from what is written than a step of the coarsest sub-block: a level that lies in the
/// wrong place, or a scale, would be.
#[test]
fn errors_are_those_of_so_many_bits() {
    let x = &rows()[7 * COLUMNS..];
    let size = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    // Noise over signal of bell-shaped weights, by what each format has of bits; Q8_0's from 127 levels to 3.5 sigma.
    for (ty, most) in [
        (GgmlType::Q8_0, 1e-4),
        (GgmlType::Q6_K, 6e-4),
        (GgmlType::Q5_K, 2e-3),
        (GgmlType::Q5_1, 2.5e-3),
        (GgmlType::Q5_0, 3e-3),
        (GgmlType::Q4_K, 1e-2),
        (GgmlType::IQ4_XS, 1e-2),
        (GgmlType::IQ4_NL, 1e-2),
        (GgmlType::Q4_1, 1e-2),
        (GgmlType::Q4_0, 1.2e-2),
        (GgmlType::MXFP4, 2.5e-2),
        (GgmlType::Q3_K, 4e-2),
        (GgmlType::Q2_K, 0.16),
    ] {
        let error = error(ty, &written(Isa::detect(), ty, x, None), x, |_| 1.0) / size;
        assert!(error < most && error > most / 12.0, "{ty}: {error:e}");
    }
}

#[test]
fn file_types_have_names_and_numbers() {
    for &ty in FileType::ALL {
        assert_eq!(ty.name().to_lowercase().parse::<FileType>().unwrap(), ty);
        assert_eq!(ty.id().to_string().parse::<FileType>().unwrap(), ty);
    }
    assert_eq!("q4_k".parse::<FileType>().unwrap(), FileType::Q4_K_M);
    assert!("IQ2_XS".parse::<FileType>().unwrap_err().to_string().contains("Q2_K_S"));
}

#[test]
fn names_tell_what_a_tensor_is() {
    for (name, category) in [
        ("output.weight", Category::Head),
        ("token_embd.weight", Category::Embedding),
        ("blk.3.attn_qkv.weight", Category::Value),
        ("blk.3.ffn_down_exps.weight", Category::Down),
        ("blk.3.ffn_gate_up_exps.weight", Category::Gate),
        ("blk.3.attn_output.weight", Category::AttnOutput),
        ("blk.3.ssm_out.weight", Category::Other),
    ] {
        assert_eq!(Category::of(name), category, "{name}");
    }
}
