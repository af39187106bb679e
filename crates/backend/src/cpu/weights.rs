//! The matrices of a model in the form that the kernels read: packed at load, or as they lie in the file.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::{
    matmul::{Packed, PackedMemory, Planes, Weight},
    simd::Isa,
};
use crate::{
    Model, Result,
    plan::{UnitSet, WeightId},
};

pub struct Weights {
    /// By weight id; `None` for what is read from the file.
    packed: Vec<Option<Packed>>,
    /// What is still read from the file, but is to be packed.
    waiting: BTreeSet<WeightId>,
    memory: PackedMemory,
    isa: Isa,
    planes: Planes,
}

impl Weights {
    /// All of it as it lies; what of the `held` units can be packed waits for that, where `planes` says how.
    pub fn in_file(model: &Model, held: &UnitSet, isa: Isa, planes: Option<Planes>) -> Self {
        let mut weights = Weights {
            packed: model.weights.iter().map(|_| None).collect(),
            waiting: BTreeSet::new(),
            memory: PackedMemory::default(),
            isa,
            planes: planes.unwrap_or(Planes::Never),
        };
        if planes.is_some() {
            let ops = held.ops(&model.plan).into_iter().flatten();
            let matrices = ops.flat_map(|op| model.plan.operands(&op).all_matrices());
            weights.waiting =
                matrices.map(|(id, _)| id).filter(|&id| Packed::knows(model.weight(id).ty())).collect();
            let bytes = weights.waiting.iter().map(|&id| weights.packed_bytes(model, id, false) as usize);
            weights.memory = PackedMemory::for_matrices(bytes);
        }
        weights
    }

    /// Packs all that waits.
    pub fn pack_all(&mut self, model: &Model, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
        self.pack_some(model, |_| true, Duration::MAX, progress)
    }

    /// Packs what many rows would be slow with as it lies.
    pub fn pack_slow(&mut self, model: &Model, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
        self.pack_some(model, |id| Weight::is_slow_in_file(model.weight(id).ty()), Duration::MAX, progress)
    }

    /// Packs more of it, until that has taken so long.
    pub fn pack_for(&mut self, model: &Model, time: Duration) -> Result<()> {
        self.pack_some(model, |_| true, time, &|_, _| ())
    }

    /// One matrix after the other, each in parallel on the current thread pool, and lets go of the file's pages behind
    /// it: no more than one piece of the model is in memory twice.
    fn pack_some(
        &mut self,
        model: &Model,
        which: impl Fn(WeightId) -> bool,
        time: Duration,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<()> {
        let started = Instant::now();
        let ids: Vec<WeightId> = self.waiting.iter().copied().filter(|&id| which(id)).collect();
        let total = ids.iter().map(|&id| model.weight(id).bytes).sum();
        let ready = AtomicU64::new(0);
        for id in ids {
            let weight = model.weight(id);
            let packed =
                Packed::new_in(&mut self.memory, self.isa, &of_file(model, id), self.planes, |rows| {
                    let bytes = weight.range_of(rows);
                    let ready = ready.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64;
                    model.gguf.release(&weight.tensor, bytes);
                    progress(ready, total);
                })?;
            self.packed[id.0 as usize] = Some(packed);
            self.waiting.remove(&id);
            if started.elapsed() >= time {
                break;
            }
        }
        Ok(())
    }

    /// Whether nothing waits.
    pub fn is_packed(&self) -> bool {
        self.waiting.is_empty()
    }

    /// By weight id: what is read from the file and not kept. What is held and cannot be packed is read through the map,
    /// where it stays.
    pub fn left_in_file(&self, model: &Model, held: &UnitSet) -> Vec<bool> {
        let mut left: Vec<bool> = self.packed.iter().map(Option::is_none).collect();
        for op in held.ops(&model.plan).into_iter().flatten() {
            model.plan.operands(&op).weights().for_each(|id| left[id.0 as usize] = false);
        }
        left
    }

    pub fn get<'a>(&'a self, model: &'a Model, id: WeightId) -> Weight<'a> {
        let weight = self.packed[id.0 as usize].as_ref().map_or_else(|| of_file(model, id), Weight::packed);
        weight.times(model.weight(id).factor)
    }

    /// Bytes that a pass reads of it, when all is packed that is to be.
    pub fn bytes_read(&self, model: &Model, id: WeightId, coarse: bool) -> u64 {
        let info = model.weight(id);
        match &self.packed[id.0 as usize] {
            Some(packed) => packed.bytes_read(coarse) as u64,
            None if self.waiting.contains(&id) => self.packed_bytes(model, id, coarse),
            None => info.bytes,
        }
    }

    /// What [`Packed::bytes_read`] is to be.
    fn packed_bytes(&self, model: &Model, id: WeightId, coarse: bool) -> u64 {
        let info = model.weight(id);
        Packed::bytes_read_for(self.isa, info.ty(), [info.rows, info.cols], self.planes, coarse)
    }
}

/// A matrix as it lies in the file.
fn of_file(model: &Model, id: WeightId) -> Weight<'_> {
    let info = model.weight(id);
    Weight::new(info.ty(), model.weight_bytes(id), info.rows, info.cols)
}
