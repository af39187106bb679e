//! From a GGUF to a Plan.
pub mod layers;
pub mod skips;
pub struct Model;
