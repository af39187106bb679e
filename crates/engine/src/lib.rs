//! Texts: an engine that makes many at once, the drafts that it checks, samplers that choose tokens, grammars that limit
//! them; and vectors of texts.
//!
//! It is a part of spec-run, and no interface of it is promised.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[cfg(feature = "constraints")]
pub mod constraint;
pub mod embed;
pub mod engine;
pub mod generate;
pub mod head;
pub mod sampler;
pub mod speculation;

use spec_run_backend::{self as backend, kv, scores};
use spec_run_gguf::{Error, Gguf, Result, files, gguf, hash, quant, quoted, rng, words};
use spec_run_model::{Batch, Model, RunLayers, batch, lora, model, plan, shortlist};
use spec_run_runtime::{Context, ContextConfig, context, placement};
use spec_run_text::{Tokenizer, tokenizer};

pub use embed::Embedder;
pub use engine::{Engine, EngineConfig, Job, Request};
pub use sampler::Sampler;
