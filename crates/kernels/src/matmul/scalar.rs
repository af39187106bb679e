//! Quantized rows without intrinsics: the contract, line by line. The twin of every faster kernel.

use super::{OutStripe, QuantRows, Weight, acts::GROUP};
use crate::{
    quant::{
        Block,
        weights::{Minimum, Weights},
    },
    simd::scalar::fused,
};

/// Columns that share one unpacking of a weight row.
const TILE: usize = 64;

pub fn rows<B: Block>(w: &Weight, x: &QuantRows, out: &mut OutStripe) {
    let in_block = B::TYPE.block_len() / GROUP;
    products(x, out, &|row, b| {
        let blocks: &[B] = bytemuck::cast_slice(w.row(row));
        blocks[b / in_block].weights(b % in_block)
    });
}

/// The products of weights that come 32 at a time, by their row and place in it.
pub(super) fn products(x: &QuantRows, out: &mut OutStripe, weights: &dyn Fn(usize, usize) -> Weights) {
    for row in out.rows() {
        for first in (0..x.rows()).step_by(TILE) {
            let columns = first..x.rows().min(first + TILE);
            let mut acc = [0.0; TILE];
            for b in 0..x.k() / GROUP {
                let weights = weights(row, b);
                for (c, acc) in columns.clone().zip(&mut acc) {
                    *acc = step(&weights, x, c, b, *acc);
                }
            }
            for (c, acc) in columns.zip(&acc) {
                out.put(c, row, std::slice::from_ref(acc));
            }
        }
    }
}

/// One block of 32 weights times group `b` of column `c`.
fn step(w: &Weights, x: &QuantRows, c: usize, b: usize, acc: f32) -> f32 {
    let x = &x.row(c)[b];
    let dot = |half: usize| -> i32 {
        let of = half * 16..half * 16 + 16;
        w.ints[of.clone()].iter().zip(&x.q[of]).map(|(&w, &q)| i32::from(w) * i32::from(q)).sum()
    };
    if let Some(second_scale) = w.second_scale {
        let acc = fused(w.scale * x.d, dot(0) as f32, acc);
        return fused(second_scale * x.d, dot(1) as f32, acc);
    }
    let isum = w.sub[0] * dot(0) + w.sub[1] * dot(1);
    let acc = fused(w.scale * x.d, isum as f32, acc);
    match w.minimum {
        Minimum::None => acc,
        Minimum::Whole(n) => fused(n, x.xs, acc),
        Minimum::Halves([n0, n1]) => {
            let [h0, h1] = x.half_sums.map(|h| x.d * f32::from(h));
            fused(n1, h1, fused(n0, h0, acc))
        }
    }
}
