//! What measurements share: the memory's read speed, the speeds that a plan rests on, medians and spreads.

mod load;
pub mod memory;
pub mod speeds;
pub mod stats;

pub use load::load;
