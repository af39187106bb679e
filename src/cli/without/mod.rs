//! Commands that need a feature, in builds without it: each says so.

#[cfg(not(feature = "gpu"))]
pub mod devices;
#[cfg(not(feature = "search"))]
pub mod search;
#[cfg(not(feature = "search"))]
pub mod sweep_times;
