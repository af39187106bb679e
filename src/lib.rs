//! spec-run: a runtime for quantized GGUF models that drafts for itself.
//!
//! ```text
//! model.gguf ─ gguf ─ model (config, weights, arch → Plan) ─┐
//! prompt ─ tokenizer ─ Batch{token,pos,seq,logits; run_layers}┴ Context::decode ─ KvCache(seq → cells)
//!                                                               └ Backend cpu ─ logits ─ sampler ─ token
//! ```
//!
//! An [`Engine`] makes texts, many at once if there are many: [`speculation`] drafts with the same model, a part of its
//! layers left out, and one pass verifies several tokens, to the same text. [`generate`](mod@generate) does that for one text in
//! a context of the caller's.
//!
//! ```
//! use spec_run::{ContextConfig, Engine, EngineConfig, Job, Model, Request, tokenizer::EncodeOptions};
//!
//! let mut engine = Engine::open(Model::embedded()?, &ContextConfig::default(), EngineConfig::default())?;
//! let tokenizer = engine.tokenizer().clone();
//! let prompt = tokenizer.encode("Once upon a time", EncodeOptions { add_special: true, parse_special: false });
//! let mut session = engine.session(Job::new(Request { max_tokens: Some(20), ..Request::new(&prompt) }))?;
//! while let Some(token) = session.next_token()? {
//!     print!("{}", String::from_utf8_lossy(tokenizer.piece(token.id)));
//! }
//! # Ok::<(), spec_run::Error>(())
//! ```
//!
//! Data flows one way: nothing below `context` knows of prompts, and nothing above it of devices.

#![deny(missing_docs)]
// Printing panics where nobody listens; what a run has to say goes through `cli::output` and `cli::common::print`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "download")]
mod hub;

// What the command line uses of the packages below beside what the library shows.
#[cfg(all(feature = "cli", windows))]
use spec_run_gguf::windows;
#[cfg(all(feature = "cli", feature = "gpu"))]
use spec_run_gpu as gpu;
#[cfg(feature = "cli")]
use {
    spec_run_backend as backend,
    spec_run_gguf::{files, hash, quoted, words},
    spec_run_model::plan,
    spec_run_runtime as runtime, spec_run_synth as synth,
    spec_run_tools::{bench, measure, provenance, quantize, report},
};

pub use spec_run_backend::scores;
#[cfg(feature = "constraints")]
pub use spec_run_engine::constraint;
pub use spec_run_engine::{
    Embedder, Engine, EngineConfig, Job, Request, Sampler, embed, engine, generate, head, sampler,
    speculation,
};
pub use spec_run_gguf::{Error, Gguf, Result, embedded, gguf, quant, rng};
pub use spec_run_model::{
    Batch, Model, RopeChange, RopeScaling, RunLayers, batch, control, lora, mask, shortlist,
};
pub use spec_run_runtime::{Context, ContextConfig, context, placement};
#[cfg(feature = "server")]
pub use spec_run_server as server;
pub use spec_run_text::{Tokenizer, chat, tokenizer};
pub use spec_run_tools::eval;
#[cfg(feature = "fit")]
pub use spec_run_tools::fit;
#[cfg(feature = "search")]
pub use spec_run_tools::search;
