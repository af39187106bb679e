//! Measuring what a model, or a model under a mask, knows of a text.

pub mod agreement;
pub mod base;
pub mod divergence;
pub mod drafts;
pub mod marks;
pub mod perplexity;
pub mod sweep;
pub mod tasks;
