//! The GPU interface of this build, if it has one.

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

/// The error where a GPU was asked for and the build has no GPU interface.
pub fn left_out() -> Error {
    Error::Device("this build is without GPUs: it needs the feature \"gpu\"".into())
}

/// A variant of the GPU's kernels by its name. In a build without GPUs only the default may be named.
pub fn gpu_variant(name: &str) -> Result<GpuVariant, String> {
    let variant: GpuVariant = name.parse()?;
    if variant != GpuVariant::Tried && gpus().is_none() {
        return Err(left_out().to_string());
    }
    Ok(variant)
}
