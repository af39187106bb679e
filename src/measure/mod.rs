//! What measurements share: the memory's read speed, the speeds that a plan rests on, medians and spreads.

pub mod memory;
pub mod speeds;
pub mod stats;
