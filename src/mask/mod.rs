//! Masks: which sublayers of a model run, and the files that masks are kept in.

mod layers;
pub mod skips;

pub(crate) use layers::check_layer;
pub use layers::{LayerBits, LayerList, RunLayers, Step};
