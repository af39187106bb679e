//! Conversations: what a model is given for them, by the template in its file, and how its answer is read.
//!
//! ```text
//! Conversation ─ ChatTemplate (what it can be given: Caps) ─ Prompt
//! template's text ─ Syntax ─ AnswerReader ─ reasoning, content, calls of tools
//! ```

mod answer;
mod caps;
mod conversation;
mod jinja;
mod markers;
mod message;
mod pattern;
mod stop;
mod strftime;
mod syntax;
mod template;

pub use answer::{Answer, AnswerReader, Delta, Reading};
pub use caps::Caps;
pub use conversation::{Conversation, Prompt};
pub use message::{Content, Message, Tool, ToolCall, ToolChoice};
pub use pattern::{Opening, Pattern};
pub use stop::{Shown, StopStrings};
pub use syntax::Syntax;
pub use template::{ChatTemplate, TemplateSource};
