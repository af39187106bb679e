//! spec-run as a Python module: the library's own contracts under their own names, and an engine that makes texts.
//!
//! `spec_run/_native.pyi` says what is here, for people and for type checkers.

mod batch;
mod config;
mod context;
mod embedder;
mod engine;
mod errors;
mod evaluate;
mod job;
mod judge;
mod layers;
mod model;
mod proposer;
mod signals;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::{
        batch::Batch,
        context::Context,
        embedder::Embedder,
        engine::{Ended, Engine, Text},
        errors::SpecRunError,
        evaluate::Evaluator,
        job::Job,
        judge::Judge,
        layers::{RunLayers, read_masks, write_masks},
        model::Model,
    };

    /// Of the library, whose results may depend on it.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
