//! One thread's speed of the matrix kernels: `cargo bench --bench matmul -- [FORMAT..]`.
//!
//! Weights as in the file, packed, packed in two planes, and of those the high one alone.
//! GB/s of weights read for one column, and GMAC/s for several; the best of many runs, because machines are shared.
//! The matrices of a format take turns, 256 MB of them, so that the weights come from memory and not from a cache.

use std::time::Instant;

use spec_run::{
    context::{Isa, Planes},
    quant::GgmlType,
};
use spec_run_kernels::matmul::{Acts, Mode, OutMatrix, Packed, QuantRows, Weight, matmul};

const K: usize = 4096;
const ROWS: usize = 4096;
const COLUMNS: [usize; 7] = [1, 2, 4, 5, 8, 16, 64];

fn main() {
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let default = ["Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16"];
    println!("{:8} {:7} {:7} {:>8} | GMAC/s at {COLUMNS:?} columns", "format", "form", "isa", "GB/s");
    for &ty in GgmlType::ALL.iter().filter(|ty| ty.readable()) {
        let wanted = if names.is_empty() {
            default.contains(&ty.name())
        } else {
            names.iter().any(|n| n == ty.name())
        };
        if wanted {
            for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::Scalar) {
                measure(ty, isa);
            }
        }
    }
}

fn measure(ty: GgmlType, isa: Isa) {
    let matrix_bytes = ROWS * ty.row_bytes(K).expect("4096 is whole blocks");
    let matrices = (256 << 20) / matrix_bytes;
    // 0x2c is a harmless byte for every field of every format.
    let bytes = vec![0x2c_u8; matrices * matrix_bytes];
    let of_file: Vec<Weight> =
        bytes.chunks_exact(matrix_bytes).map(|b| Weight::new(ty, b, ROWS, K)).collect();
    time(ty, isa, "file", matrix_bytes, &of_file);
    if !Packed::knows(ty) {
        return;
    }
    for (name, planes) in [("packed", Planes::Never), ("planes", Planes::All)] {
        let packed: Vec<Packed> =
            of_file.iter().map(|w| Packed::new(isa, w, planes, |_| ()).expect("memory")).collect();
        if name == "planes" && !packed[0].has_coarse() {
            continue;
        }
        let weights: Vec<Weight> = packed.iter().map(Weight::packed).collect();
        time(ty, isa, name, packed[0].bytes(), &weights);
        if name == "planes" {
            let weights: Vec<Weight> = weights.iter().map(|w| w.coarse(true)).collect();
            time(ty, isa, "coarse", packed[0].bytes_read(true), &weights);
        }
    }
}

fn time(ty: GgmlType, isa: Isa, form: &str, matrix_bytes: usize, weights: &[Weight]) {
    let most = COLUMNS[COLUMNS.len() - 1];
    let x: Vec<f32> = (0..most * K).map(|i| (i as f32 * 0.7).sin()).collect();
    let mut out = vec![0.0; most * ROWS];
    let mut gmacs = Vec::new();
    for columns in COLUMNS {
        let x = &x[..columns * K];
        let quantized = QuantRows::of(isa, x, K);
        let mut best = f64::INFINITY;
        let runs = if columns > 8 { weights.len().min(6) } else { 3 * weights.len() };
        for run in 0..runs {
            let w = &weights[run % weights.len()];
            let acts = if w.wants_quantized() { Acts::Quantized(&quantized) } else { Acts::Float(x) };
            let mut out = OutMatrix::new(&mut out[..columns * ROWS], ROWS, Mode::Store);
            let start = Instant::now();
            matmul(isa, w, acts, &mut out.whole());
            best = best.min(start.elapsed().as_secs_f64());
        }
        gmacs.push((columns * ROWS * K) as f64 / best * 1e-9);
    }
    let gb_s = gmacs[0] * matrix_bytes as f64 / (ROWS * K) as f64;
    let gmacs: Vec<String> = gmacs.iter().map(|g| format!("{g:6.1}")).collect();
    println!("{:8} {form:7} {:7} {gb_s:8.1} | {}", ty.name(), isa.name(), gmacs.join(" "));
}
