//! The command line: one file per subcommand. Arguments are parsed here, checked, and handed to the library
//! in one call; text goes to stdout, everything else to stderr.

mod bench;
pub mod common;
mod device_args;
#[cfg_attr(not(feature = "gpu"), path = "without/devices.rs")]
mod devices;
mod draft_args;
mod drafting;
pub mod failure;
#[cfg(feature = "download")]
mod hub_args;
mod inspect;
mod interrupt;
mod learned_args;
mod mask_args;
pub mod output;
mod perplexity;
mod placement_arg;
mod plan;
mod run;
mod sampler_args;
#[cfg_attr(not(feature = "search"), path = "without/search.rs")]
mod search;
mod size;
#[cfg_attr(not(feature = "search"), path = "without/sweep.rs")]
mod sweep;
mod synth;
mod tokenize;
pub mod verbosity;

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

use crate::{Error, Result};
use verbosity::{LongVerbosityArgs, Said};

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
    run: Said<run::RunArgs>,
}

#[derive(Subcommand)]
enum Command {
    /// Measure perplexity of a text, with or without a layer mask
    Perplexity(Said<perplexity::PerplexityArgs>),
    /// Find which sublayers a draft can skip, and write a file of masks
    Search(Said<search::SearchArgs>),
    /// Measure speed: prefill, decode, verification of several rows, drafts, memory
    Bench(Said<bench::BenchArgs>),
    /// Show a file's metadata, tensors and bytes per layer
    Inspect(Said<inspect::InspectArgs>),
    /// Turn text into token ids, or ids into text
    Tokenize(Said<tokenize::TokenizeArgs>),
    /// List the GPUs, and what of them would be used
    Devices(Said<devices::DevicesArgs>),
    /// Write a model of any shape with random weights
    Synth(SynthCommand),
}

/// `-q` is the quantization there.
#[derive(Args)]
struct SynthCommand {
    #[command(flatten)]
    args: synth::SynthArgs,
    #[command(flatten)]
    verbosity: LongVerbosityArgs,
}

/// llama.cpp's flags of one dash and several letters, and the long ones that they stand for here.
const SHORT_FLAGS: &[(&str, &str)] = &[
    ("-ngl", "--n-gpu-layers"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-ub", "--ubatch-size"),
    ("-hf", "--hf-repo"),
    ("-hfr", "--hf-repo"),
    ("-hff", "--hf-file"),
    ("-hft", "--hf-token"),
    ("-mu", "--model-url"),
    ("-cl", "--cache-list"),
];

/// clap's message in one line; help and version are printed as they are.
fn usage_error(error: clap::Error) -> Result<Cli> {
    if !error.use_stderr() {
        error.exit();
    }
    let message = error.to_string();
    let first = message.split("\n\n").next().unwrap_or_default();
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    Err(Error::Usage(format!("{line}; --help shows what there is")))
}

/// Flags whose value is text and may look like a flag.
const TEXT_FLAGS: &[&str] = &["-p", "--prompt", "--system"];

fn long_flags(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut text_follows = false;
    args.map(move |arg| {
        let is_text = std::mem::replace(&mut text_follows, TEXT_FLAGS.iter().any(|flag| arg == *flag));
        match SHORT_FLAGS.iter().find(|(short, _)| !is_text && arg == *short) {
            Some((_, long)) => long.into(),
            None => arg,
        }
    })
}

pub fn run() -> Result<()> {
    let cli = Cli::try_parse_from(long_flags(std::env::args_os())).or_else(usage_error)?;
    match cli.command {
        None => cli.run.run(run::run),
        Some(Command::Perplexity(said)) => said.run(perplexity::run),
        Some(Command::Search(said)) => said.run(search::run),
        Some(Command::Bench(said)) => said.run(bench::run),
        Some(Command::Inspect(said)) => said.run(inspect::run),
        Some(Command::Tokenize(said)) => said.run(tokenize::run),
        Some(Command::Devices(said)) => said.run(devices::run),
        Some(Command::Synth(SynthCommand { args, verbosity })) => {
            Said { args, verbosity: verbosity.into() }.run(synth::run)
        }
    }
}
