//! The matrices of a model in the form that the kernels read: packed at load, or as they lie in the file.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    matmul::{Packed, Planes, Weight},
    simd::Isa,
};
use crate::{
    Model, Result,
    plan::{UnitSet, WeightId},
};

pub struct Weights {
    /// By weight id; `None` for what is read from the file.
    packed: Vec<Option<Packed>>,
}

impl Weights {
    pub fn in_file(model: &Model) -> Self {
        Weights { packed: model.weights.iter().map(|_| None).collect() }
    }

    /// Packs what can be packed, one matrix after the other and each in parallel, and lets go of the file's pages
    /// behind it: no more than one piece of the model is in memory twice.
    pub fn pack(
        model: &Model,
        held: &UnitSet,
        isa: Isa,
        planes: Planes,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self> {
        let mut weights = Self::in_file(model);
        let ops = held.ops(&model.plan).into_iter().flatten();
        let matrices = ops.flat_map(|op| model.plan.operands(op).all_matrices());
        let ids: BTreeSet<u32> = matrices.map(|(id, _)| id.0).collect();
        let ids = ids.into_iter().map(WeightId).filter(|&id| Packed::knows(model.weight(id).ty()));
        let ids: Vec<WeightId> = ids.collect();
        let total = ids.iter().map(|&id| model.weight(id).bytes).sum();
        let ready = AtomicU64::new(0);
        for id in ids {
            let weight = model.weight(id);
            let of_file = weights.get(model, id);
            let packed = Packed::new(isa, &of_file, planes, |rows| {
                let bytes = weight.range_of(rows);
                let ready = ready.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64;
                model.gguf.release(&weight.tensor, bytes);
                progress(ready, total);
            })?;
            weights.packed[id.0 as usize] = Some(packed);
        }
        Ok(weights)
    }

    /// By weight id: what is read from the file and not kept. What is held and cannot be packed is read through the map,
    /// where it stays.
    pub fn left_in_file(&self, model: &Model, held: &UnitSet) -> Vec<bool> {
        let mut left: Vec<bool> = self.packed.iter().map(Option::is_none).collect();
        for op in held.ops(&model.plan).into_iter().flatten() {
            model.plan.operands(op).weights().for_each(|id| left[id.0 as usize] = false);
        }
        left
    }

    pub fn get<'a>(&'a self, model: &'a Model, id: WeightId) -> Weight<'a> {
        let info = model.weight(id);
        let weight = match &self.packed[id.0 as usize] {
            Some(packed) => Weight::packed(packed),
            None => Weight::new(info.ty(), model.weight_bytes(id), info.rows, info.cols),
        };
        weight.times(info.factor)
    }

    /// Bytes that a pass reads of it.
    pub fn bytes_read(&self, model: &Model, id: WeightId, coarse: bool) -> u64 {
        match &self.packed[id.0 as usize] {
            Some(packed) => packed.bytes_read(coarse) as u64,
            None => model.weight(id).bytes,
        }
    }
}
