//! One error for the whole crate. Every message is one line that names the file, tensor or flag at
//! fault, the limit it broke, and what to do about it.

use std::path::Path;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused: no such file, a directory, no permission, a full disk.
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    /// The file was read and is not a sound GGUF.
    #[error("{file}: {what}")]
    Gguf { file: String, what: String },
    /// A sound GGUF that holds a model which cannot be run here.
    #[error("{file}: {what}")]
    Model { file: String, what: String },
    /// The vocabulary or the chat template.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A `run_layers` mask or a skips file.
    #[error("{0}")]
    Mask(String),
    /// A batch that the context cannot take: full cache, wrong positions, unknown token.
    #[error("{0}")]
    Batch(String),
    /// A GPU: none there, one that cannot run this, or one that went away.
    #[error("{0}")]
    Device(String),
    /// Too little memory for what was asked.
    #[error("{0}")]
    Memory(String),
    /// The text to work on: empty, too long, too short.
    #[error("{0}")]
    Input(String),
    /// The command line; exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Nobody reads our standard output any more; ends quietly.
    #[error("standard output was closed")]
    ClosedPipe,
}

impl Error {
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Error::Io { path: path.as_ref().display().to_string(), source }
    }

    pub fn gguf(file: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Gguf { file: file.into(), what: what.into() }
    }

    pub fn model(file: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Model { file: file.into(), what: what.into() }
    }

    /// 2 for a wrong command line, 0 for a reader that went away, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::ClosedPipe => 0,
            _ => 1,
        }
    }
}
