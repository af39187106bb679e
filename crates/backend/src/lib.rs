//! Runs plans: the trait that a device implements, the bookkeeping of the KV cache, and the backend of the CPU.
//!
//! It is a part of spec-run, and no interface of it is promised.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod backend;
pub mod cpu;
pub mod gpu;
pub mod kv;
pub mod planes;
pub mod scores;
pub mod watch;

#[cfg(windows)]
use spec_run_gguf::windows;
use spec_run_gguf::{Error, Result, quant};
use spec_run_kernels::kv_type;
use spec_run_model::{Model, batch, lora, model, plan, shortlist};

pub use backend::*;
