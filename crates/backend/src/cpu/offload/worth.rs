//! From how many rows on products are worth to be made on another device: measured.

use std::time::{Duration, Instant};

use super::{Bundle, Multiplier, multiply_here};
use crate::{
    Result,
    cpu::{
        matmul::{Packed, QuantRows, Weight},
        simd::Isa,
        team::Team,
    },
};

/// Fewer rows are never worth it: weights would cross for each pass, while the processor waits for memory and not for its
/// arithmetic. It is half of what a tile of the other device's kernel holds.
pub const LEAST_OFFLOADED: usize = 17;

/// Rows of which the times are taken.
const TIMED_ROWS: [usize; 2] = [64, 256];

/// So many experts of a layer stand for all.
pub const TIMED_EXPERTS: usize = 8;

/// From how many rows on the other device is faster with these matrices, which are alike and are multiplied with one behind
/// the other; `None` if it is not for as many rows as there can be.
pub fn rows_worth_offloading(
    multiplier: &mut dyn Multiplier,
    matrices: &[&Packed],
    (isa, team): (Isa, &mut Team),
    max_rows: usize,
) -> Result<Option<usize>> {
    let [few, many] = TIMED_ROWS.map(|rows| rows.min(max_rows));
    let Some(first) = matrices.first().filter(|_| few < many) else { return Ok(None) };
    let acts = |rows| QuantRows::of(isa, &vec![1.0; rows * first.cols()], first.cols());
    let mut out = vec![0.0; matrices.len() * many * first.rows()];
    let there = |rows: usize, multiplier: &mut dyn Multiplier, out: &mut [f32]| -> Result<Duration> {
        let acts = acts(rows);
        least_of_two(|| {
            let outs = out.chunks_exact_mut(rows * first.rows());
            let each = std::iter::zip(matrices, outs);
            let mut bundles: Vec<_> =
                each.map(|(packed, out)| Bundle::of_rows(&acts, [(Weight::packed(packed), out)])).collect();
            multiplier.multiply(&mut bundles).map(drop)
        })
    };
    let of_many = there(many, multiplier, &mut out)?;
    let of_few = there(few, multiplier, &mut out)?;
    let acts = acts(few);
    let here = least_of_two(|| {
        for packed in matrices {
            multiply_here((isa, &mut *team), packed, &acts, &mut out[..few * first.rows()]);
        }
        Ok(())
    })?;
    Ok(worth_from([(few, of_few), (many, of_many)], (few, here)).filter(|&rows| rows <= max_rows))
}

fn least_of_two(mut once: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut times = [Duration::ZERO; 2];
    for time in &mut times {
        let started = Instant::now();
        once()?;
        *time = started.elapsed();
    }
    Ok(times[0].min(times[1]))
}

/// Where a line through two times meets one from zero through another; `None` if it never does.
fn worth_from(there: [(usize, Duration); 2], here: (usize, Duration)) -> Option<usize> {
    let [(few, of_few), (many, of_many)] = there.map(|(rows, time)| (rows as f64, time.as_secs_f64()));
    let row_there = ((of_many - of_few) / (many - few)).max(0.0);
    let row_here = here.1.as_secs_f64() / here.0 as f64;
    let beside = (of_few - few * row_there).max(0.0);
    (row_here > row_there)
        .then(|| (beside / (row_here - row_there)).ceil() as usize)
        .map(|n| n.max(LEAST_OFFLOADED))
}
