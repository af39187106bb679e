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
mod known;
mod markers;
mod message;
mod pattern;
mod stop;
mod strftime;
mod syntax;
mod template;
mod told;

pub use answer::{Answer, AnswerReader, Delta, Reading};
pub use caps::Caps;
pub use conversation::{Conversation, Prompt};
pub use known::{KNOWN_TEMPLATES, known_template, written_ends};
pub use message::{Content, Message, Tool, ToolCall, ToolChoice};
pub use pattern::{Opening, Pattern};
pub use stop::{Shown, StopStrings};
pub use syntax::Syntax;
pub use template::{ChatTemplate, TemplateSource};

use crate::{Tokenizer, tokenizer::EncodeOptions};

/// Tokens of what a template has written: it writes the special tokens itself, but not every one the BOS that texts of the
/// model begin with.
pub fn prompt_tokens(text: &str, tokenizer: &Tokenizer) -> Vec<u32> {
    let mut ids = tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: true });
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    if ids.first().copied() != bos {
        ids.splice(0..0, bos);
    }
    ids
}
