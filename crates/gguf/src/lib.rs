//! What spec-run knows of files: GGUF, read and written; files that are there whole or not at all; the error that every
//! package of it has, and the words that messages are made of.
//!
//! It is a part of spec-run, and no interface of it is promised.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod embedded;
mod error;
pub mod files;
pub mod gguf;
pub mod hash;
pub mod quant;
pub mod quoted;
pub mod rng;
#[cfg(windows)]
pub mod windows;
pub mod words;

pub use error::{Error, Result};
pub use gguf::Gguf;
