//! From a GGUF to a Plan.
pub mod layers;
pub struct Model;
