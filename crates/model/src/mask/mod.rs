//! Masks: which sublayers of a model run, and the files that masks are kept in.

mod layers;
pub mod skips;

pub use layers::{LayerBits, LayerList, RunLayers, Step};
pub use layers::{check_layer, ranges};
