//! One error for the whole crate. Every message is one line that names the file, the tensor or the setting at fault, the
//! limit it broke, and what to do about it. A setting is named by its field, in backticks: `cli::failure` says the flag.

use std::path::Path;

/// A result whose error is [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as one line of text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused: no such file, a directory, no permission, a full disk.
    #[error("{path}: {source}")]
    Io {
        /// Of what.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file was read and is not a sound GGUF.
    #[error("{file}: {what}")]
    Gguf {
        /// Its path or name.
        file: String,
        /// What is wrong, and where.
        what: String,
    },
    /// A sound GGUF that holds a model which cannot be run here.
    #[error("{file}: {what}")]
    Model {
        /// Its path or name.
        file: String,
        /// What it is that cannot be run.
        what: String,
    },
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
    /// A prompt longer than a text may be.
    #[error(
        "the prompt has {tokens} tokens, a text may have {most}: shorten it, or give texts more room with `n_ctx`"
    )]
    TooLong {
        /// What the prompt has.
        tokens: usize,
        /// What a text may have.
        most: usize,
    },
    /// A model that was to be fetched: no such name, no answer, no permission, wrong bytes.
    #[error("{0}")]
    Hub(String),
    /// What was asked for: a setting out of its range, or two that exclude each other.
    #[error("{0}")]
    Usage(String),
    /// Nobody reads our standard output any more; ends quietly.
    #[error("standard output was closed")]
    ClosedPipe,
}

impl From<spec_run_kernels::Error> for Error {
    fn from(e: spec_run_kernels::Error) -> Self {
        match e {
            spec_run_kernels::Error::Memory(what) => Error::Memory(what),
            spec_run_kernels::Error::Usage(what) => Error::Usage(what),
        }
    }
}

impl Error {
    /// An error of the operating system at a path.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Error::Io { path: path.as_ref().display().to_string(), source }
    }

    /// An unsound file.
    pub fn gguf(file: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Gguf { file: file.into(), what: what.into() }
    }

    /// A model that cannot be run here.
    pub fn model(file: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Model { file: file.into(), what: what.into() }
    }
}
