//! The model that is part of the program, where the build had its file; its card is `models/stories13m.md`.

use crate::{Gguf, Result};

/// What messages call the model.
pub const NAME: &str = "stories13m-q8_0.gguf (embedded)";

/// Opens the embedded model.
#[cfg(embedded_model)]
pub fn open() -> Result<Gguf> {
    static BYTES: &[u8] = include_bytes!("../../../models/stories13m-q8_0.gguf");
    Gguf::from_bytes(NAME, BYTES)
}

/// Says that this build has no model.
#[cfg(not(embedded_model))]
pub fn open() -> Result<Gguf> {
    Err(crate::Error::Usage("this build has no embedded model: `model` names one".into()))
}
