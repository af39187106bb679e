//! Quantized weights times int8 rows: the scalar kernel, and the choice of a faster one.

use std::ops::Range;

use super::{
    OutStripe, Weight,
    acts::{ActBlock, QuantRows},
    codec::{Codec, Minima},
};
use crate::backend::cpu::simd::Isa;

#[cfg(target_arch = "x86_64")]
pub trait Fast: Codec + super::x86::Unpack {}
#[cfg(target_arch = "x86_64")]
impl<C: Codec + super::x86::Unpack> Fast for C {}
#[cfg(not(target_arch = "x86_64"))]
pub use Codec as Fast;

pub fn matmul<C: Fast>(
    isa: Isa,
    weight: &Weight,
    rows: Range<usize>,
    acts: &QuantRows,
    m: usize,
    out: OutStripe,
) {
    let blocks: &[C] = bytemuck::cast_slice(weight.bytes);
    let per_row = weight.cols / C::TYPE.block_len();
    match isa {
        Isa::Scalar => scalar(blocks, per_row, rows, acts, m, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => super::x86::avx2(blocks, per_row, rows, acts, m, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => super::x86::avx512(blocks, per_row, rows, acts, m, out),
        #[cfg(not(target_arch = "x86_64"))]
        _ => unreachable!("not available on this architecture"),
    }
}

fn scalar<C: Codec>(blocks: &[C], per_row: usize, rows: Range<usize>, acts: &QuantRows, m: usize, out: OutStripe) {
    for r in rows {
        let row = &blocks[r * per_row..][..per_row];
        for column in 0..m {
            // SAFETY: the caller has had a barrier since the rows were written.
            out.put(column, r, dot(row, unsafe { acts.row(column) }));
        }
    }
}

/// The oracle: the contract of the module above, letter by letter.
pub fn dot<C: Codec>(row: &[C], acts: &[ActBlock]) -> f32 {
    let mut acc = 0.0f32;
    let runs = C::TYPE.block_len() / 32;
    for (i, x) in acts[..row.len() * runs].iter().enumerate() {
        let (block, sub) = (&row[i / runs], i % runs);
        let (scales, w) = (block.scales(sub), block.integers(sub));
        let mut halves = [0i32; 2];
        for j in 0..32 {
            halves[j / 16] += i32::from(w[j]) * i32::from(x.q[j]);
        }
        let sum = match C::HALF_SCALES {
            true => scales.halves[0] * halves[0] + scales.halves[1] * halves[1],
            false => halves[0] + halves[1],
        };
        acc = (scales.a * x.d).mul_add(sum as f32, acc);
        match C::MINIMA {
            Minima::None => {}
            Minima::Per32 => acc = scales.minima[0].mul_add(x.xs, acc),
            Minima::Per16 => {
                acc = scales.minima[0].mul_add(x.half_xs[0], acc);
                acc = scales.minima[1].mul_add(x.half_xs[1], acc);
            }
        }
    }
    acc
}
