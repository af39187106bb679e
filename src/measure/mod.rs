//! What measurements share: the memory's read speed, the speeds that a plan rests on, medians and spreads.

#[cfg(feature = "cli")]
mod load;
pub mod memory;
pub mod speeds;
pub mod stats;

#[cfg(feature = "cli")]
pub use load::load;
