//! The block formats of GGUF tensors, vectors on every processor, matrix products, attention, and the small operations on a
//! row. They are a package of their own because they take long to compile, seldom change and are slow without optimization,
//! in tests too.
//!
//! It is a part of spec-run, and no interface of it is promised.

pub mod attention;
pub mod dense;
pub mod head_rows;
pub mod kv_type;
pub mod matmul;
pub mod ops;
pub mod quant;
pub mod rows;
pub mod simd;
pub mod zeros;

/// What went wrong, as one line of text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Too little memory for what was asked.
    #[error("{0}")]
    Memory(String),
    /// A setting that does not exist.
    #[error("{0}")]
    Usage(String),
}

/// A result whose error is [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
