//! Answers over HTTP, as OpenAI's, Anthropic's and llama-server's clients ask for them.
//!
//! ```text
//! body ─ wire::read ─ Ask ─ Preparer (template, tokenizer) ─ Jobs ─ Answers: the engine's thread
//! socket ─ http ─ wire::write ─ Choice (stop strings, reader of answers) ─ events ┘
//! ```

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![deny(missing_docs)]

mod adapters;
mod answers;
mod assets;
mod choice;
mod embeds;
mod http;
mod infill;
mod lark;
mod metrics;
mod models;
mod prepare;
mod served;
mod sleep;
pub mod wire;

pub use adapters::Adapters;
pub use answers::Answers;
pub use assets::{PAGE, POLICY};
pub use choice::Source;
pub use embeds::{Embeds, NoText};
pub use http::{App, Asset, Config, Log, Origins, Predict, Record, listen, router, serve};
pub use lark::Controls;
pub use models::{Lease, Limits, Listed, Models, Naming, Planned, Wanted};
pub use prepare::{Prepared, Preparer, ReadMask, Render};
pub use served::{FINGERPRINT, Facts, Served, TemplateFrom};
pub use sleep::{Close, Open, Sleeper};

use spec_run_backend as backend;
use spec_run_engine::{Engine, constraint, embed, engine, sampler, speculation};
use spec_run_gguf::{Error, Result, files, hash, quoted};
use spec_run_model::{RunLayers, lora};
use spec_run_text::{Tokenizer, chat, tokenizer};
