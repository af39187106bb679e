//! Products with matrices: against sums in f64, and the same bits for every number of columns.

use super::{
    super::{
        device::Gpu,
        formats::BLOCK,
        harness::{How, Matrix, Random, blocks, plain},
        pipelines::{Curve, Mode, Pipelines},
    },
    Extent, U, is_more, same_bits,
};
use crate::{
    Result,
    quant::{F16, GgmlType, dequantize},
};

const ROWS: usize = 66;
/// Of a row, in blocks of every format; with its blocks a real GPU deals them to more than eight lanes.
const K: usize = 1280;
/// More than rows are made for, so that these are tiles.
const TILE: usize = 9;

/// Formats of one scale for a block and of two, with one plane of bits and with two.
type Columns = &'static [usize];
const TYPES: [(GgmlType, Columns); 4] = [
    (GgmlType::Q4_0, &[1, 2, 3, 4, 5, 6, 7, 8]),
    (GgmlType::Q8_0, &[1, 8]),
    (GgmlType::Q4_K, &[1, 4]),
    (GgmlType::Q6_K, &[1, 4]),
];
const LEAST: [(GgmlType, Columns); 2] = [(GgmlType::Q4_0, &[1, 8]), (GgmlType::Q6_K, &[1])];

/// A sum and what it may be off by.
#[derive(Clone, Copy)]
struct Sum {
    value: f64,
    limit: f64,
}

/// The first thing that is wrong.
pub(super) fn fault(gpu: &Gpu, pipelines: &mut Pipelines, extent: Extent) -> Result<Option<String>> {
    let has_all = extent == Extent::All;
    for &(ty, few) in if has_all { &TYPES[..] } else { &LEAST[..] } {
        let mut random = Random::new(ty as u64 + 41);
        let mut bytes = blocks(&mut random, ty, ROWS * K / ty.block_len());
        make_small(ty, &mut bytes);
        let matrix = Matrix::new(gpu, ty, &bytes, ROWS, K)?;
        let x = random.floats(TILE * K);
        let mut weights = vec![0.0; ROWS * K];
        dequantize(ty, &bytes, &mut weights);
        let sums = sums(gpu, &weights, &x);
        let mut kinds = vec![("", plain(TILE, true), few, sums.clone())];
        match ty {
            GgmlType::Q4_0 if has_all => {
                let mode = Mode::Gate(Curve::Silu);
                kinds.push((" gate", How { mode, ..plain(TILE, true) }, &[1][..], gated(&sums)));
            }
            GgmlType::Q8_0 => {
                let how = How { coarse: true, ..plain(TILE, true) };
                kinds.push((" coarse", how, &[1], self::sums(gpu, &coarse(&bytes), &x)));
            }
            _ => {}
        }
        let shared = How { share: 2, ..plain(TILE, true) };
        for (kind, how, few, want) in kinds {
            let all = matrix.product(gpu, pipelines, &x, &how)?;
            if kind.is_empty() && !same_bits(&matrix.product(gpu, pipelines, &x, &shared)?, &all) {
                return Ok(Some(format!("{ty}: other bits where workgroups share a tile")));
            }
            for (got, want) in all.iter().zip(&want) {
                if is_more((f64::from(*got) - want.value).abs(), want.limit) {
                    return Ok(Some(format!("{ty}{kind}: {got} for {}", want.value)));
                }
            }
            let in_turns = gpu.tuning.takes_turns(TILE) && kind.is_empty();
            for &columns in few.iter().chain(in_turns.then_some(&TILE)) {
                let how = How { columns, tile: false, ..how };
                let some = matrix.product(gpu, pipelines, &x[..columns * K], &how)?;
                if !same_bits(&some, &all[..some.len()]) {
                    return Ok(Some(format!("{ty}{kind}: other bits in a batch of {columns}")));
                }
            }
        }
    }
    Ok(None)
}

/// Gives the first rows scales that are subnormal halves, which Q6_K often has.
fn make_small(ty: GgmlType, bytes: &mut [u8]) {
    let at: &[usize] = match ty {
        GgmlType::Q4_K => &[0, 2],
        GgmlType::Q6_K => &[208],
        _ => return,
    };
    let row_bytes = K / ty.block_len() * ty.block_bytes();
    for block in bytes[..2 * row_bytes].chunks_exact_mut(ty.block_bytes()) {
        for &at in at {
            block[at..at + 2].copy_from_slice(&half::f16::from_f32(2e-5).to_le_bytes());
        }
    }
}

/// What the high four bits of Q8_0's weights say: the middle of what the low ones could make of them.
fn coarse(bytes: &[u8]) -> Vec<f32> {
    let weight = |scale: f32, q: u8| scale * (f32::from((q as i8) >> 4) * 16.0 + 7.5);
    let blocks = bytes.as_chunks::<34>().0.iter();
    blocks
        .flat_map(|block| {
            let scale = F16([block[0], block[1]]).to_f32();
            block[2..].iter().map(move |&q| weight(scale, q)).collect::<Vec<_>>()
        })
        .collect()
}

fn sums(gpu: &Gpu, weights: &[f32], x: &[f32]) -> Vec<Sum> {
    // Roundings on the way of a product into a sum: its weight's, those of its lane, those of the lanes.
    let lanes = gpu.tuning.lanes(K / BLOCK) as usize;
    let roundings = (6 + (K / BLOCK).div_ceil(lanes) * BLOCK + lanes) as f64;
    let sum = |row: &[f32], x: &[f32]| {
        // What is subtracted on the way to a weight is no more than twice the largest of them.
        let most = 4.0 * row.iter().fold(0.0, |most, w| w.abs().max(most));
        let value = row.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
        let size: f64 = x.iter().map(|&x| f64::from(most) * f64::from(x).abs()).sum();
        Sum { value, limit: roundings * U * size }
    };
    x.chunks_exact(K)
        .flat_map(|x| weights.chunks_exact(K).map(move |row| sum(row, x)).collect::<Vec<_>>())
        .collect()
}

/// Of an even row and the one after it.
fn gated(sums: &[Sum]) -> Vec<Sum> {
    let gated = sums.as_chunks::<2>().0.iter().map(|[gate, up]| {
        let through = gate.value / (1.0 + (-gate.value).exp());
        // The activation's slope is at most 1.1; its exponential is right to 3 + 2·|x| units, as WGSL allows.
        let own = (8.0 + 2.0 * gate.value.abs()) * 2.0 * U * (through * up.value).abs();
        let limit = own + 1.1 * gate.limit * (up.value.abs() + up.limit) + through.abs() * up.limit;
        Sum { value: through * up.value, limit: limit + 1e-30 }
    });
    gated.collect()
}
