//! Measuring what a model, or a model under a mask, knows of a text.

pub mod agreement;
pub mod base;
pub mod divergence;
pub(crate) mod drafts;
pub(crate) mod marks;
pub mod perplexity;
pub mod sweep;
pub mod tasks;
