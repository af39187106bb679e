//! The command line: one file per subcommand. Arguments are parsed here, checked, and handed to the library
//! in one call; text goes to stdout, everything else to stderr.

pub mod common;
mod inspect;
mod perplexity;
mod run;
pub mod sampler_args;
mod tokenize;

use clap::{Parser, Subcommand};

use crate::Result;

#[derive(Parser)]
#[command(
    name = "spec-run",
    version,
    about = "Runs quantized GGUF models",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Measure perplexity of a text, with or without a layer mask
    Perplexity(perplexity::PerplexityArgs),
    /// Show a file's metadata, tensors and bytes per layer
    Inspect(inspect::InspectArgs),
    /// Turn text into token ids, or ids into text
    Tokenize(tokenize::TokenizeArgs),
}

pub fn run() -> Result<()> {
    let cli = Cli::parse();
    match cli.command {
        None => run::run(cli.run),
        Some(Command::Perplexity(args)) => perplexity::run(args),
        Some(Command::Inspect(args)) => inspect::run(args),
        Some(Command::Tokenize(args)) => tokenize::run(args),
    }
}
