//! Packed rows without intrinsics: the twin of every faster kernel. It puts the blocks of the file together again
//! and reads their scales there.

use super::{
    Packable, Packed, block_bytes, head_pieces,
    split::{Split, Word},
};
use crate::{
    matmul::{OutStripe, QuantRows, acts::GROUP, scalar::products},
    quant::Weights,
};

pub fn rows<B: Packable, S: Split>(w: &Packed, coarse: bool, x: &QuantRows, out: &mut OutStripe) {
    let in_block = B::TYPE.block_len() / GROUP;
    products(x, out, &|row, b| weights::<B, S>(w, row, b / in_block, b % in_block, coarse));
}

/// The `b`-th 32 weights of block `n` of a row.
fn weights<B: Packable, S: Split>(w: &Packed, row: usize, n: usize, b: usize, coarse: bool) -> Weights {
    let (lanes, lane) = (w.lanes, row % w.lanes);
    let [high, low] = w.group(row / lanes);
    let [high_block, low_block] = block_bytes::<B, S>(lanes);
    let (high, low) = (&high[n * high_block..], &low[n * low_block..]);

    let mut block = B::zeroed();
    let mut at = 0;
    for to in head_pieces::<B>() {
        let piece = to.len();
        let from = &high[at * lanes + lane * piece..][..piece];
        bytemuck::bytes_of_mut(&mut block)[to].copy_from_slice(from);
        at += piece;
    }
    let head = B::HEAD_BYTES * lanes;
    let word = |plane: &[u8], i: usize| {
        u32::from_le_bytes(plane[(i * lanes + lane) * 4..][..4].try_into().expect("four bytes"))
    };
    let mut words = [[0; 8]; 2];
    let [highs, lows] = &mut words;
    highs[..S::HIGH].iter_mut().zip(b * S::HIGH..).for_each(|(w, i)| *w = word(&high[head..], i));
    lows[..S::LOW].iter_mut().zip(b * S::LOW..).for_each(|(w, i)| *w = word(low, i));
    if !coarse {
        return block.weights_of(b, S::join(words[0], words[1]));
    }
    // Twice the middle of the interval, which is no whole number, under half of the scale.
    let (lowest, highest) = (S::high(words[0]), (1 << S::LOW_BITS) - 1);
    let byte = |u: [u32; 8], i: usize| u[i / 4].shr(8 * (i as u32 % 4)) as u8;
    let mut weights = block.weights(b);
    weights.scale *= 0.5;
    weights.ints = std::array::from_fn(|i| 2 * B::int(byte(lowest, i) << S::LOW_BITS) + highest);
    weights
}
