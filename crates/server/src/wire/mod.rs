//! What clients send and are sent: requests of many shapes become one, and one answer is said in many shapes. Nothing here
//! knows of sockets or models.
//!
//! ```text
//! body ─ read (chat, completions, responses, messages, llama-server's) ─ Ask
//! More, Whole ─ write::Writer ─ frames of a stream, or one body
//! ```

mod answer;
mod ask;
mod error;
mod fields;
pub mod read;
pub mod write;

pub use answer::{Frame, Header, Likely, More, Progress, Reason, Timings, Whole};
pub use ask::{Ask, Biased, Chat, Constraint, Defaults, Input, LoraScale, Part, Settings, Shape};
pub use error::ApiError;
pub use fields::Fields;
pub use write::{Writer, settings_json};
