//! IQ4_NL: `w = d·KVALUES[nibble]`.
//!
//! In [products](crate::matmul): w = level, a = d.

use super::rounding::{farthest_from_zero, nibbles};
use super::{
    Block, F16, GgmlType,
    weights::{Weights, levels},
};
use crate::matmul::format::*;

/// The levels of IQ4_NL and IQ4_XS: dense near zero, where most weights are.
pub const KVALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq4Nl {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Block for BlockIq4Nl {
    const TYPE: GgmlType = GgmlType::IQ4_NL;

    #[inline(always)]
    fn weights(&self, _: usize) -> Weights {
        Weights::plain(self.d.to_f32(), levels(&self.qs, &KVALUES))
    }
}

impl Format for BlockIq4Nl {
    type Kind = kinds::Wide;

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(l: L, rows: Rows, to: &mut Panel, b: usize) {
        // SAFETY: all reads are within the block.
        unsafe {
            to.scales.put_scale(l, b, l.half_to_f32(rows.first_4_bytes(l)));
            let qs = vectors::nibbles(l, rows.bytes_16(l, offset_of!(Self, qs)));
            put_wide(l, to, b, vectors::levels(l, l.table(bytemuck::cast_ref(&KVALUES)), qs));
        }
    }
}

impl Packable for BlockIq4Nl {
    layout!(Nibbles);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, _: usize) -> [u32; 8] {
        words::nibbles(&self.qs)
    }
    fn int(u: u8) -> i16 {
        i16::from(KVALUES[usize::from(u)])
    }
}

impl PackedFormat for BlockIq4Nl {
    const FEW: bool = true;

    #[inline(always)]
    unsafe fn head<L: Lanes>(l: L, head: *const u8, to: &mut Scales, b: usize) {
        // SAFETY: the caller's.
        to.put_scale(l, b, unsafe { l.load_halves(head) });
    }

    #[inline(always)]
    fn ints<L: Lanes>(l: L, bits: [L::V; 8]) -> [L::V; 8] {
        let mut table = l.table(bytemuck::cast_ref(&KVALUES));
        if !L::SIGNED_BYTES {
            table = l.xor(table, l.splat(0x8080_8080));
        }
        vectors::levels(l, table, bits)
    }
}

/// A block whose largest number is nearer to zero than this is taken for zeros.
const SMALLEST: f32 = 1e-15;

impl BlockIq4Nl {
    /// As llama.cpp's reference has it, which keys and values are stored by: the number farthest from zero comes to the
    /// first level, all others to their nearest ones, and then the scale is fitted. Its files are searched for longer.
    pub fn quickly(x: &[f32]) -> Self {
        let far = farthest_from_zero(x);
        if far.abs() < SMALLEST {
            return Self { d: F16::from_f32(0.0), qs: nibbles(&[8; 32]) };
        }
        let inverse = 1.0 / (far / f32::from(KVALUES[0]));
        let q: [u8; 32] = std::array::from_fn(|j| nearest(inverse * x[j]));
        let (mut products, mut squares) = (0.0, 0.0);
        for (x, q) in x.iter().zip(q) {
            let (weight, level) = (x * x, f32::from(KVALUES[q as usize]));
            products += weight * level * x;
            squares += weight * level * level;
        }
        let d = if squares > 0.0 { products / squares } else { 0.0 };
        Self { d: F16::from_f32(d), qs: nibbles(&q) }
    }
}

/// The level nearest to `x`; of two the upper one.
fn nearest(x: f32) -> u8 {
    let above = KVALUES.iter().take_while(|&&level| f32::from(level) <= x).count();
    if above == 0 || above == KVALUES.len() {
        return above.saturating_sub(1) as u8;
    }
    let [below, level] = [KVALUES[above - 1], KVALUES[above]].map(f32::from);
    (if x - below < level - x { above - 1 } else { above }) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tests/golden/iq4_nl.py` says where these are from.
    #[test]
    fn quickly_made_blocks_are_llama_cpps() {
        let records = include_bytes!("../../../../tests/golden/iq4_nl.bin").as_chunks::<146>();
        assert!(records.0.len() > 200 && records.1.is_empty());
        for record in records.0 {
            let (x, theirs) = record.split_at(128);
            let x: Vec<f32> = x.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
            assert_eq!(bytemuck::bytes_of(&BlockIq4Nl::quickly(&x)), theirs, "{x:?}");
        }
        let mut zeros = [f32::NAN; 32];
        BlockIq4Nl::quickly(&[0.0; 32]).dequantize(&mut zeros);
        assert_eq!(zeros.map(f32::to_bits), [0; 32]);
    }
}
