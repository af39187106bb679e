//! Sums of the low planes of matrices whose high planes a GPU holds: `Σ d·(low - 8)·x`, which is what a Q4_0 matrix of
//! the lower halves of Q8_0's bytes gives.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    lent::{LentDevice, multiply_here},
    matmul::{Packed, PackedMemory, Planes, QuantRows, Weight},
    pass::add,
    simd::Isa,
    team::Team,
};
use crate::{
    Model, Result,
    backend::planes::{LowProduct, of_units},
    plan::{UnitSet, WeightId},
    quant::{
        Block, GgmlType,
        blocks::{BlockQ4_0, BlockQ8_0},
    },
};

pub struct LowPlanes {
    /// By weight id.
    packed: Vec<Option<Packed>>,
    acts: QuantRows,
    /// Of one matrix.
    sums: Vec<f32>,
}

impl LowPlanes {
    /// Of the matrices of these units.
    pub fn new(model: &Model, units: &UnitSet, isa: Isa) -> Result<Self> {
        let ids = std::iter::zip(0.., of_units(model, units));
        let ids: Vec<_> = ids.map(|(id, by_planes)| by_planes.then_some(WeightId(id))).collect();
        let bytes = ids.iter().flatten().map(|&id| low_plane_bytes(model, id, isa));
        let mut memory = PackedMemory::for_matrices(bytes);
        let mut pack = |id| low_plane(&mut memory, model, id, 0..model.weight(id).rows, isa);
        let packed = ids.into_iter().map(|id| id.map(&mut pack).transpose()).collect::<Result<_>>()?;
        Ok(LowPlanes { packed, acts: QuantRows::new(), sums: Vec::new() })
    }

    /// Sums for all rows of `x`, with the biases: rows of all matrices, one below the other or in turn.
    pub fn sums(
        &mut self,
        of: &LowProduct,
        (rows, x): (usize, &[f32]),
        vectors: &[Vec<f32>],
        (isa, team, mut lent): (Isa, &mut Team, Option<&mut LentDevice>),
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let LowPlanes { packed, acts, sums } = self;
        let matrix = |id: WeightId| packed[id.0 as usize].as_ref().expect("a matrix that lies by planes");
        acts.resize(rows, x.len() / rows);
        acts.quantize(isa, x);
        let each: Vec<&Packed> = of.weights.iter().map(|&id| matrix(id)).collect();
        let width: usize = each.iter().map(|packed| packed.rows()).sum();
        out.resize(rows * width, 0.0);
        let mut first = 0;
        for (i, (packed, bias)) in each.iter().zip(&of.biases).enumerate() {
            let n = packed.rows();
            sums.resize(rows * n, 0.0);
            let elsewhere = match &mut lent {
                Some(lent) => lent.multiply_now(packed, acts, sums)?,
                None => false,
            };
            if !elsewhere {
                multiply_here((isa, &mut *team), packed, acts, sums);
            }
            for (out, sums) in out.chunks_exact_mut(width).zip(sums.chunks_exact_mut(n)) {
                if let Some(bias) = bias {
                    add(sums, &vectors[bias.0 as usize]);
                }
                match of.in_turn {
                    true => {
                        out[i..].iter_mut().step_by(each.len()).zip(sums).for_each(|(out, sum)| *out = *sum)
                    }
                    false => out[first..first + n].copy_from_slice(sums),
                }
            }
            first += n;
        }
        Ok(())
    }

    /// All low planes.
    pub fn all(&self) -> impl Iterator<Item = &Packed> {
        self.packed.iter().flatten()
    }
}

/// Bytes of the low plane of a matrix, packed.
fn low_plane_bytes(model: &Model, id: WeightId, isa: Isa) -> usize {
    let weight = model.weight(id);
    Packed::bytes_read_for(isa, BlockQ4_0::TYPE, [weight.rows, weight.cols], Planes::Never, false) as usize
}

/// The lower halves of some rows of a matrix, packed.
pub fn low_plane(
    memory: &mut PackedMemory,
    model: &Model,
    id: WeightId,
    rows: Range<usize>,
    isa: Isa,
) -> Result<Packed> {
    let weight = model.weight(id);
    assert_eq!(weight.ty(), GgmlType::Q8_0, "the only type of which there are low planes");
    let bytes = &model.weight_bytes(id)[rows.start * weight.row_bytes()..rows.end * weight.row_bytes()];
    let blocks: &[BlockQ8_0] = bytemuck::cast_slice(bytes);
    let lows: Vec<BlockQ4_0> = blocks.par_iter().map(low_half).collect();
    let matrix = Weight::new(BlockQ4_0::TYPE, bytemuck::cast_slice(&lows), rows.len(), weight.cols);
    let packed = Packed::new_in(memory, isa, &matrix, Planes::Never, |_| ());
    model.gguf.release(&weight.tensor, weight.range_of(rows));
    Ok(packed?)
}

/// What is left of a block without the upper halves of its bytes, made unsigned, as numbers from -8 on.
fn low_half(block: &BlockQ8_0) -> BlockQ4_0 {
    let low = |i: usize| (block.qs[i] as u8) & 15;
    BlockQ4_0 { d: block.d, qs: std::array::from_fn(|i| low(i) | low(i + 16) << 4) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::cpu::matmul::GROUP,
        quant::{F16, dequantize},
    };

    /// Every byte: what the GPU's high plane stands for and the rest are the weight.
    #[test]
    fn both_planes_are_the_weight() {
        for first in (0..256usize).step_by(GROUP) {
            let qs = std::array::from_fn(|i| (first + i) as u8 as i8);
            let block = BlockQ8_0 { d: F16(half::f16::from_f32(0.5).to_le_bytes()), qs };
            let (mut whole, mut low) = ([0.0f32; GROUP], [0.0f32; GROUP]);
            dequantize(GgmlType::Q8_0, bytemuck::bytes_of(&block), &mut whole);
            dequantize(GgmlType::Q4_0, bytemuck::bytes_of(&low_half(&block)), &mut low);
            for i in 0..GROUP {
                let high = f32::from(qs[i] as u8 ^ 0x80) - f32::from((qs[i] as u8 ^ 0x80) & 15);
                assert_eq!(0.5 * (high - 120.0) + low[i], whole[i], "{}", qs[i]);
            }
        }
    }
}
