//! Whether a device's products have the CPU's bits: compared at load, with rows of the model's own matrices.

use std::collections::BTreeMap;

use super::{super::proof::same_bits, Offloader};
use crate::{
    Model, Result,
    backend::{
        cpu::{
            Bundle, Multiplier, low_plane,
            matmul::{Acts, Mode, OutMatrix, Packed, PackedMemory, Planes, QuantRows, Weight, matmul},
            simd::Isa,
        },
        planes::{self, PlanesApart},
    },
    plan::{UnitSet, WeightId},
    rng::Rng,
};

/// What is multiplied: more than a tile, and no whole tiles.
const ROWS: usize = 100;
pub(super) const COLUMNS: usize = 40;

impl Offloader {
    /// With its own `fma` if that gives the CPU's bits, else with one made of other operations; `None` if neither does.
    pub fn agreeing(
        mut self,
        model: &Model,
        units: (&UnitSet, &PlanesApart),
        planes: Planes,
        isa: Isa,
    ) -> Result<Option<Self>> {
        let mut of_types = one_of_each_type(model, units, planes, isa)?;
        of_types.retain(|packed| self.knows(packed));
        if self.agrees(&of_types)? {
            return Ok(Some(self));
        }
        let mut other = self.without_fma();
        Ok(other.agrees(&of_types)?.then_some(other))
    }

    fn agrees(&mut self, matrices: &[Packed]) -> Result<bool> {
        for packed in matrices {
            let x = rows(packed.cols());
            let mut got = vec![f32::NAN; COLUMNS * packed.rows()];
            let taken =
                self.multiply(&mut [Bundle::of_rows(&x, [(Weight::packed(packed), &mut got[..])])])?;
            if !(taken && same_bits(&got, &of_cpu(packed, &x))) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The first rows of a matrix of each type that lies in RAM, packed as all of it is, and of low planes.
fn one_of_each_type(
    model: &Model,
    (in_ram, planes_apart): (&UnitSet, &PlanesApart),
    planes: Planes,
    isa: Isa,
) -> Result<Vec<Packed>> {
    let ops = in_ram.ops(&model.plan).into_iter().flatten();
    let ids = ops.flat_map(|op| model.plan.operands(&op).products().map(|(id, _)| id));
    let ids = ids.filter(|&id| Packed::knows(model.weight(id).ty()));
    let firsts: BTreeMap<u32, _> = ids.map(|id| (model.weight(id).ty() as u32, id)).collect();
    let packed = firsts.into_values().map(|id| {
        let weight = model.weight(id);
        let rows = weight.rows.min(ROWS);
        let bytes = &model.weight_bytes(id)[..rows * weight.row_bytes()];
        Ok(Packed::new(isa, &Weight::new(weight.ty(), bytes, rows, weight.cols), planes, |_| ())?)
    });
    let apart = std::iter::zip(0.., planes::of_units(model, planes_apart));
    let apart = apart.filter_map(|(id, high)| Some((WeightId(id), high?)));
    let apart = apart.map(|(id, high)| (model.weight(id).ty() as u32, (id, high)));
    let lows = apart.collect::<BTreeMap<_, _>>().into_values().map(|of| {
        low_plane(&mut PackedMemory::default(), model, of, 0..model.weight(of.0).rows.min(ROWS), isa)
    });
    packed.chain(lows).collect()
}

/// Numbers of sizes that differ from block to block.
fn rows(cols: usize) -> QuantRows {
    let mut rng = Rng::new(1);
    let mut one = |i: usize| {
        let x = (rng.next_u64() >> 40) as f32 / 2f32.powi(23) - 1.0;
        x * 2f32.powi((i / 32 * 7 % 31) as i32 - 20)
    };
    let x: Vec<f32> = (0..COLUMNS * cols).map(&mut one).collect();
    QuantRows::of(Isa::detect(), &x, cols)
}

/// All products as the CPU makes them.
pub fn of_cpu(packed: &Packed, x: &QuantRows) -> Vec<f32> {
    let mut out = vec![0.0; x.rows() * packed.rows()];
    let mut matrix = OutMatrix::new(&mut out, packed.rows(), Mode::Store);
    let weight = Weight::packed(packed);
    let isa = Isa::available().into_iter().find(|isa| isa.lanes() == packed.lanes()).unwrap_or(Isa::Scalar);
    matmul(isa, &weight, Acts::Quantized(x), &mut matrix.part(0..packed.rows()));
    out
}
