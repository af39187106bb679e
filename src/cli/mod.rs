//! The command line: one file per subcommand. Arguments are parsed here, checked, and handed to the library
//! in one call; text goes to stdout, everything else to stderr.

mod bench;
pub mod common;
mod inspect;
mod interrupt;
mod mask_args;
mod perplexity;
mod run;
mod sampler_args;
mod tokenize;

use std::ffi::OsString;

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
    /// Measure speed: prefill, decode, verification of several rows, drafts, memory
    Bench(bench::BenchArgs),
    /// Show a file's metadata, tensors and bytes per layer
    Inspect(inspect::InspectArgs),
    /// Turn text into token ids, or ids into text
    Tokenize(tokenize::TokenizeArgs),
}

/// llama.cpp's flags of one dash and several letters, and the long ones that they stand for here.
const SHORT_FLAGS: &[(&str, &str)] =
    &[("-ngl", "--n-gpu-layers"), ("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v"), ("-ub", "--batch-size")];

fn long_flags(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    args.map(|arg| match SHORT_FLAGS.iter().find(|(short, _)| arg == *short) {
        Some((_, long)) => long.into(),
        None => arg,
    })
}

pub fn run() -> Result<()> {
    let cli = Cli::parse_from(long_flags(std::env::args_os()));
    match cli.command {
        None => run::run(cli.run),
        Some(Command::Perplexity(args)) => perplexity::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Inspect(args)) => inspect::run(args),
        Some(Command::Tokenize(args)) => tokenize::run(args),
    }
}
