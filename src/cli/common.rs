//! What several subcommands share: opening the model, and writing to stdout.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;

use crate::{Error, Gguf, Result, embedded};

#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Model file (.gguf; of a sharded model the first shard) [default: the embedded stories13m]
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: Option<PathBuf>,
}

impl ModelArgs {
    pub fn open(&self) -> Result<Arc<Gguf>> {
        Ok(Arc::new(match &self.model {
            Some(path) => Gguf::open(path)?,
            None => embedded::open()?,
        }))
    }
}

/// Writes to stdout and flushes; a closed pipe is [`Error::ClosedPipe`], which ends the program quietly.
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Error::ClosedPipe,
        _ => Error::io("standard output", e),
    })
}

/// One JSON object on a line, for `--json`.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    print(format!("{value}\n"))
}
