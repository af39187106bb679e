//! The way to GPUs that this build has.

#[cfg(not(feature = "gpu"))]
pub use none::{NoGpus as Way, left_out};
#[cfg(feature = "gpu")]
pub use spec_run_gpu::Wgpu as Way;

use crate::backend::gpu::{GpuVariant, Gpus};

/// Of a build without GPUs one that finds none, and says why where one was asked for.
pub fn gpus() -> &'static dyn Gpus {
    &Way
}

/// A choice of a GPU's kernels by its name. A build without GPUs has none to choose.
pub fn gpu_variant(name: &str) -> Result<GpuVariant, String> {
    let variant: GpuVariant = name.parse()?;
    #[cfg(not(feature = "gpu"))]
    if variant != GpuVariant::Tried {
        return Err(left_out().to_string());
    }
    Ok(variant)
}

#[cfg(not(feature = "gpu"))]
mod none {
    use crate::{
        Error, Model, Result,
        backend::gpu::{AnyGpu, Gpus},
        kv::KvLayout,
        kv_type::KvType,
        plan::{Op, Unit, UnitSet, WeightId},
    };

    pub struct NoGpus;

    pub fn left_out() -> Error {
        Error::Device("this build is without GPUs: it needs the feature \"gpu\"".into())
    }

    impl Gpus for NoGpus {
        fn check(&self, _: &Model) -> Result<()> {
            Err(left_out())
        }

        fn may_have_hardware(&self) -> bool {
            false
        }

        fn hardware(&self) -> Result<Vec<AnyGpu>> {
            Ok(Vec::new())
        }

        fn first(&self) -> Result<AnyGpu> {
            Err(left_out())
        }

        fn named(&self, _: &str) -> Result<AnyGpu> {
            Err(left_out())
        }

        fn numbered(&self, _: &[usize]) -> Result<Vec<AnyGpu>> {
            Err(left_out())
        }

        fn converted(&self, _: &Model, _: &UnitSet) -> Vec<String> {
            Vec::new()
        }

        fn op_bytes(&self, _: &Model, _: &Op) -> u64 {
            0
        }

        fn saved_by_planes(&self, _: &Model, _: WeightId) -> u64 {
            0
        }

        fn high_plane_bytes(&self, _: &Model, _: WeightId) -> u64 {
            0
        }

        fn lows_bytes(&self, _: &Model, _: &UnitSet, _max_rows: usize) -> u64 {
            0
        }

        fn bytes_read(&self, _: &Model, _: WeightId, _coarse: bool) -> u64 {
            0
        }

        fn overhead_bytes(&self, _: &Model, _: Unit, _: &KvLayout, _: (KvType, KvType)) -> u64 {
            0
        }

        fn scratch_bytes(&self, _: &Model, _max_rows: usize, _: &KvLayout) -> u64 {
            0
        }

        fn offload_bytes(&self, _: &Model, _in_ram: &UnitSet, _max_rows: usize) -> u64 {
            0
        }
    }
}
