//! Requests of all shapes, read into one.

mod chat;
mod completions;
mod embeddings;
mod messages;
mod responses;
mod settings;

pub use chat::chat;
pub use completions::{completions, infill, llama, prompt};
pub use embeddings::{Embed, Rerank, embed, rerank};
pub use messages::messages;
pub use responses::responses;
pub use settings::lora_scales;

use serde_json::Value;

use super::error::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// The model that a client names.
fn model(fields: super::fields::Fields) -> Option<String> {
    fields.get("model").and_then(Value::as_str).map(str::to_owned)
}
