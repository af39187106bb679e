//! Conversations: what a model is given for them, by the template in its file.

mod strftime;
mod template;

pub use template::{ChatTemplate, Message, TemplateSource};
