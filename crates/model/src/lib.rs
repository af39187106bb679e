//! What a model is: the plan of its operations, the architectures that make plans from files, masks over its layers, the
//! batches that it is given, and adapters beside it. Nothing here computes.
//!
//! It is a part of spec-run, and no interface of it is promised.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod batch;
pub mod control;
pub mod lora;
pub mod mask;
pub mod model;
pub mod plan;
pub mod shortlist;

use spec_run_gguf::{Error, Gguf, Result, embedded, files, gguf, quant, quoted, words};

pub use batch::Batch;
pub use mask::RunLayers;
pub use model::{Model, RopeChange, RopeScaling};
