//! What places a model on devices sees of this package.

use std::{path::Path, sync::Arc};

use super::{
    GpuBackend, check, converted,
    device::{self, AdapterChoice, Found},
    offload::Offloader,
    speeds, trial,
};
use crate::{
    Model, Result,
    backend::{
        Speeds,
        cpu::{Multiplier, matmul::Planes, simd::Isa},
        gpu::{AnyGpu, Chosen, Gpu, GpuConfig, GpuVariant, Gpus, OpenedGpu},
    },
    plan::UnitSet,
    planes::{LowProduct, PlanesApart},
};

/// GPUs by Vulkan, Metal and DX12.
pub struct Wgpu;

fn boxed(found: Found) -> AnyGpu {
    Box::new(found)
}

fn all_boxed(found: Vec<Found>) -> Vec<AnyGpu> {
    found.into_iter().map(boxed).collect()
}

impl Gpus for Wgpu {
    fn check(&self, model: &Model) -> Result<()> {
        check(model)
    }

    fn may_have_hardware(&self) -> bool {
        device::may_have_hardware()
    }

    fn hardware(&self) -> Result<Vec<AnyGpu>> {
        device::hardware().map(all_boxed)
    }

    fn first(&self) -> Result<AnyGpu> {
        device::choose(&AdapterChoice::Any).map(boxed)
    }

    fn named(&self, name: &str) -> Result<AnyGpu> {
        device::choose(&AdapterChoice::Named(name.into())).map(boxed)
    }

    fn numbered(&self, numbers: &[usize]) -> Result<Vec<AnyGpu>> {
        device::choose_all(numbers).map(all_boxed)
    }

    fn converted(&self, model: &Model, held: &UnitSet) -> Vec<String> {
        converted(model, held)
    }
}

impl Gpu for Found {
    fn number(&self) -> usize {
        self.number
    }

    fn name(&self) -> &str {
        &self.info.name
    }

    fn describe(&self) -> String {
        Found::describe(self)
    }

    fn is_hardware(&self) -> bool {
        Found::is_hardware(self)
    }

    fn shares_memory(&self) -> bool {
        Found::shares_memory(self)
    }

    fn memory(&self) -> Option<u64> {
        self.memory.map(|memory| memory.share())
    }

    fn speeds(&self, cache: Option<&Path>) -> Result<Option<Speeds>> {
        speeds::speeds(cache, self)
    }

    fn choose_kernels(
        &self,
        wanted: GpuVariant,
        cache: Option<&Path>,
        budget: u64,
        trying: &dyn Fn(),
    ) -> Result<Chosen> {
        trial::choose(wanted, self, cache, budget, trying)
    }

    fn open(
        &self,
        model: Arc<Model>,
        config: &GpuConfig,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Box<dyn OpenedGpu>> {
        Ok(Box::new(GpuBackend::new(model, self, config, progress)?))
    }
}

impl OpenedGpu for GpuBackend {
    fn low_products(&self) -> Vec<LowProduct> {
        self.low_products.clone()
    }

    fn offloader(
        &self,
        in_ram: &UnitSet,
        planes_apart: &PlanesApart,
        planes: Option<Planes>,
        isa: Option<Isa>,
    ) -> Result<Option<Box<dyn Multiplier>>> {
        let Some(planes) = planes else { return Ok(None) };
        let units =
            UnitSet::of(self.model.n_layer(), |unit| in_ram.holds(unit) || planes_apart.units.holds(unit));
        let offloader = Offloader::new(self.gpu.clone(), &self.model, &units, self.work.max_rows)?;
        let Some(offloader) = offloader else { return Ok(None) };
        let agreeing = offloader.agreeing(
            &self.model,
            (in_ram, planes_apart),
            planes,
            isa.unwrap_or_else(Isa::detect),
        )?;
        Ok(agreeing.map(|offloader| Box::new(offloader) as Box<dyn Multiplier>))
    }
}
