//! Text on its way to a model and from it: tokens, conversations as chat templates write them, and answers as they are read.
//!
//! It is a part of spec-run, and no interface of it is promised.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![deny(missing_docs)]

pub mod chat;
pub mod tokenizer;

use spec_run_gguf::{Error, Gguf, Result, gguf, quoted};

pub use tokenizer::Tokenizer;
