//! From what was asked for to the backends that do it.

mod config;
#[cfg_attr(not(feature = "gpu"), path = "without_gpu.rs")]
pub mod gpu;
mod gpu_config;
mod hybrid;
mod open;
mod planned;

pub use config::{ContextConfig, Streaming};
use gpu_config::GpuConfig;
#[cfg(feature = "server")]
pub use open::memory_needed;
pub use open::{Device, Loading, Opened, Plans, open, plan_elsewhere};
pub use spec_run_backend::*;
#[cfg(feature = "cli")]
pub use {open::plan, planned::check_states};
