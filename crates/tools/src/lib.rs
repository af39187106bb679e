//! What looks at models: perplexity and tasks under masks, the search for masks, benchmarks, reports, quantization, and the
//! fit of heads that draft.
//!
//! It is a part of spec-run, and no interface of it is promised.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod bench;
pub mod eval;
pub mod fit;
pub mod measure;
pub mod provenance;
pub mod quantize;
pub mod report;
#[cfg(feature = "search")]
pub mod search;

use spec_run_backend::{self as backend, kv, scores};
use spec_run_engine::{Sampler, head, sampler};
#[cfg(feature = "search")]
use spec_run_engine::{generate, speculation};
#[cfg(windows)]
use spec_run_gguf::windows;
use spec_run_gguf::{Error, Gguf, Result, files, gguf, hash, quant, quoted, rng, words};
#[cfg(any(test, feature = "search"))]
use spec_run_model::mask;
use spec_run_model::{Batch, Model, RunLayers, batch, plan};
use spec_run_runtime::{Context, ContextConfig};
use spec_run_text::{Tokenizer, chat, tokenizer};
