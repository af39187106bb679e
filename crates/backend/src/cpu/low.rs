//! Sums of the low planes of matrices whose high planes a GPU holds.

use std::ops::Range;

use super::{
    matmul::{Packed, PackedMemory, QuantRows, Weight},
    offload::{OffloadDevice, multiply_here},
    pass::add,
    simd::Isa,
    team::Team,
};
use crate::{
    Model, Result,
    plan::WeightId,
    planes::{HighBits, LowProduct, PlanesApart, low_bytes_for, of_units},
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
    pub fn new(model: &Model, apart: &PlanesApart, isa: Isa) -> Result<Self> {
        let all = std::iter::zip(0.., of_units(model, apart));
        let all: Vec<_> = all.map(|(id, high)| high.map(|high| (WeightId(id), high))).collect();
        let bytes = all.iter().flatten().map(|&(id, high)| low_bytes_for(model, id, high, isa) as usize);
        let mut memory = PackedMemory::for_matrices(bytes);
        let mut pack =
            |of: (WeightId, HighBits)| low_plane(&mut memory, model, of, 0..model.weight(of.0).rows, isa);
        let packed = all.into_iter().map(|of| of.map(&mut pack).transpose()).collect::<Result<_>>()?;
        Ok(LowPlanes { packed, acts: QuantRows::new(), sums: Vec::new() })
    }

    /// Sums for all rows of `x`, with the biases: rows of all matrices, one below the other or in turn. Gives the bytes that
    /// were read.
    pub fn sums(
        &mut self,
        of: &LowProduct,
        (rows, x): (usize, &[f32]),
        vectors: &[Vec<f32>],
        (isa, team, mut offload): (Isa, &mut Team, Option<&mut OffloadDevice>),
        out: &mut Vec<f32>,
    ) -> Result<u64> {
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
            let elsewhere = match &mut offload {
                Some(offload) => offload.multiply_now(packed, acts, sums)?,
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
        Ok(each.iter().map(|packed| packed.bytes_read(false) as u64).sum())
    }

    /// All low planes.
    pub fn all(&self) -> impl Iterator<Item = &Packed> {
        self.packed.iter().flatten()
    }
}

/// The low plane of some rows of a matrix, packed.
pub fn low_plane(
    memory: &mut PackedMemory,
    model: &Model,
    (id, high): (WeightId, HighBits),
    rows: Range<usize>,
    isa: Isa,
) -> Result<Packed> {
    let weight = model.weight(id);
    let bytes = &model.weight_bytes(id)[rows.start * weight.row_bytes()..rows.end * weight.row_bytes()];
    let matrix = Weight::new(weight.ty(), bytes, rows.len(), weight.cols);
    let done = |done: Range<usize>| {
        let done = rows.start + done.start..rows.start + done.end;
        model.gguf.release(&weight.tensor, weight.range_of(done));
    };
    Ok(Packed::low_plane_in(memory, isa, &matrix, high, done)?)
}
