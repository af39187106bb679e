//! From what was asked for to the backend that does it. Never a silent change of mind: a GPU that was named and
//! cannot be used is an error.

use std::sync::Arc;

use super::{
    Backend, Held,
    cpu::{CpuBackend, CpuConfig},
    gpu::{self, GpuBackend, GpuConfig},
};
use crate::{Model, Result, context::ContextConfig};

/// Which device runs a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    #[default]
    Cpu,
    /// A hardware GPU if there is one, else the CPU.
    Auto,
    /// An adapter by its number in the list of `spec-run devices`, or by a part of its name.
    Named(String),
}

pub fn open(model: &Arc<Model>, config: &ContextConfig) -> Result<Box<dyn Backend>> {
    let n_slots = model.plan.dims.n_layer + config.extra_slots;
    let max_rows = config.n_ubatch.clamp(1, config.n_ctx as usize);
    let found = match &config.device {
        Device::Cpu => None,
        // No adapter, or only software: the CPU is faster.
        Device::Auto => gpu::choose(&gpu::Choice::Any).ok(),
        Device::Named(name) => Some(gpu::choose(&gpu::Choice::Named(name.clone()))?),
    };
    if let Some(found) = found {
        let gpu_config = GpuConfig {
            n_cells: config.n_ctx as usize,
            n_slots,
            max_rows,
            key_type: config.key_type,
            value_type: config.value_type,
            held: Held::all(model.plan.dims.n_layer),
            budget: u64::MAX / 2,
            profile: config.profile,
        };
        return Ok(Box::new(GpuBackend::new(model.clone(), &found, &gpu_config)?));
    }
    Ok(Box::new(CpuBackend::new(
        model.clone(),
        &CpuConfig {
            n_cells: config.n_ctx as usize,
            n_slots,
            max_rows,
            threads: config.threads,
            key_type: config.key_type,
            value_type: config.value_type,
            isa: config.isa,
        },
    )?))
}
