//! Products of matrices with one column, shared by the threads of a context.

use std::ops::Range;

use spec_run_kernels::{
    matmul::{Acts, Mode, OutMatrix, OutStripe, QuantRows, Weight, matmul},
    simd::Isa,
};

/// Rows of a matrix are distributed in pieces of this many.
const ROW_GRAIN: usize = 32;

/// Runs a job on several threads together. The job gets the index of its thread and the number of threads.
pub type Together<'t> = &'t mut dyn FnMut(&(dyn Fn(usize, usize) + Sync));

/// Runs a job on this thread alone.
pub fn alone(job: &(dyn Fn(usize, usize) + Sync)) {
    job(0, 1);
}

/// The product of a matrix of any format with a column. `quantized` is for the column in the form that quantized weights want.
pub fn product(
    isa: Isa,
    mode: Mode,
    out: &mut [f32],
    (matrix, column): (&Weight, &[f32]),
    quantized: &mut QuantRows,
    together: Together,
) {
    if matrix.wants_quantized() {
        quantize_row(isa, column, quantized);
        products(isa, mode, out, &[(matrix, quantized)], together);
    } else {
        of_rows(mode, out, together, &|stripe| matmul(isa, matrix, Acts::Float(column), stripe));
    }
}

pub fn quantize_row(isa: Isa, row: &[f32], quantized: &mut QuantRows) {
    quantized.resize(1, row.len());
    quantized.quantize(isa, row);
}

/// Products of matrices with one column each; with [`Mode::Add`] all of them are added to `out`.
pub fn products(isa: Isa, mode: Mode, out: &mut [f32], of: &[(&Weight, &QuantRows)], together: Together) {
    of_rows(mode, out, together, &|stripe| {
        of.iter().for_each(|(weight, column)| matmul(isa, weight, Acts::Quantized(column), stripe));
    });
}

/// Computes all of `out`, whose rows are distributed over the threads.
fn of_rows(mode: Mode, out: &mut [f32], together: Together, make: &(dyn Fn(&mut OutStripe) + Sync)) {
    let rows = out.len();
    let matrix = OutMatrix::new(out, rows, mode);
    together(&|index, threads| {
        let share = share(rows, index, threads);
        if !share.is_empty() {
            // SAFETY: shares have no row in common.
            make(&mut unsafe { matrix.stripe(share) });
        }
    });
}

/// The rows that one of some threads computes.
fn share(rows: usize, index: usize, threads: usize) -> Range<usize> {
    let pieces = rows.div_ceil(ROW_GRAIN);
    let bound = |index: usize| (pieces * index / threads * ROW_GRAIN).min(rows);
    bound(index)..bound(index + 1)
}
