//! A model that runs: where its parts go on this machine, the backends that are opened for it, and the context that takes
//! batches and gives logits.
//!
//! It is a part of spec-run, and no interface of it is promised.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod config;
pub mod context;
mod gpus;
mod hybrid;
mod open;
pub mod placement;
mod planned;

use spec_run_backend::{self as backend, kv, scores};
use spec_run_gguf::{Error, Result, quant};
use spec_run_kernels::kv_type;
use spec_run_model::{Batch, Model, RunLayers, batch, control, lora, mask, plan, shortlist};

pub use config::{ContextConfig, Streaming};
pub use context::Context;
pub use gpus::{gpu_variant, gpus};
pub use open::{Device, Loading, Opened, Plans, memory_needed, open, plan, plan_elsewhere};
pub use planned::check_states;
