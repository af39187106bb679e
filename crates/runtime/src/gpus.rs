//! The way to GPUs that this build has.

use crate::{
    Error,
    backend::gpu::{GpuVariant, Gpus},
};

/// `None` in a build without GPUs.
pub fn gpus() -> Option<&'static dyn Gpus> {
    #[cfg(feature = "gpu")]
    return Some(&spec_run_gpu::Wgpu);
    #[cfg(not(feature = "gpu"))]
    None
}

/// What there is to say where a GPU was asked for and the build has none.
pub fn left_out() -> Error {
    Error::Device("this build is without GPUs: it needs the feature \"gpu\"".into())
}

/// A choice of a GPU's kernels by its name. A build without GPUs has none to choose.
pub fn gpu_variant(name: &str) -> Result<GpuVariant, String> {
    let variant: GpuVariant = name.parse()?;
    if variant != GpuVariant::Tried && gpus().is_none() {
        return Err(left_out().to_string());
    }
    Ok(variant)
}
