//! The command line: one file per subcommand. Arguments are parsed here, checked, and handed to the library
//! in one call; text goes to stdout, everything else to stderr.

mod adapter_args;
mod bench;
mod bench_tests;
mod chat;
mod chat_args;
mod chat_template;
mod colors;
pub mod common;
mod comparison_args;
#[cfg(feature = "constraints")]
mod constraint_args;
mod device_args;
#[cfg(feature = "gpu")]
mod devices;
mod draft_args;
mod draft_model_args;
mod drafting;
mod embed;
mod embedding_args;
mod engine_args;
pub mod failure;
#[cfg(feature = "fit")]
mod fit;
mod help;
#[cfg(feature = "download")]
mod hub_args;
mod imatrix;
mod inspect;
mod interrupt;
mod kl_divergence;
mod learned_args;
mod llama_flags;
mod llama_line;
mod mask_args;
mod merge;
mod off_gpu_args;
pub mod output;
mod perplexity;
mod perplexity_report;
mod placement_arg;
mod plan;
mod plot;
mod progress;
mod quantize;
mod report_file;
mod rope_args;
mod run;
mod sampler_args;
#[cfg(feature = "search")]
mod search;
#[cfg(feature = "server")]
mod serve;
mod shard;
mod shard_lines;
mod shell;
mod size;
mod state;
mod sweep;
mod sweep_table;
#[cfg(feature = "search")]
mod sweep_times;
mod synth;
mod tasks;
mod thread_args;
mod tokenize;
pub mod verbosity;
#[cfg(not(all(feature = "gpu", feature = "search")))]
mod without;

use std::ffi::OsString;

#[cfg(not(feature = "gpu"))]
use without::devices;
#[cfg(not(feature = "search"))]
use without::{search, sweep_times};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{Error, Result};
use llama_flags::Here;
use llama_line::Line;
use output::{detail, warning};
use verbosity::{LongVerbosityArgs, WithVerbosity};

#[derive(Parser)]
#[command(
    name = "spec-run",
    version,
    about = "Runs quantized GGUF models, and drafts with the model itself",
    args_conflicts_with_subcommands = true,
    args_override_self = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: WithVerbosity<run::RunArgs>,
}

#[derive(Subcommand)]
enum Command {
    /// Talk with a model that has a chat template
    Chat(Box<WithVerbosity<chat::ChatCommand>>),
    /// Measure perplexity of a text, or score tasks, with or without a layer mask
    Perplexity(WithVerbosity<perplexity::PerplexityArgs>),
    /// Make one result of what the shards of `perplexity --shard` have written
    Merge(WithVerbosity<merge::MergeArgs>),
    /// Find which sublayers a draft can skip, and write a file of masks
    Search(WithVerbosity<search::SearchArgs>),
    /// Draw what sweeps of masks measured, several laid over each other
    Plot(WithVerbosity<plot::PlotArgs>),
    /// Measure speed: prefill, decode, verification of several rows, drafts, memory
    Bench(WithVerbosity<bench::BenchArgs>),
    /// Show a file's metadata, tensors and bytes per layer
    Inspect(WithVerbosity<inspect::InspectArgs>),
    /// Make vectors that stand for texts, or say how well two texts fit
    Embed(WithVerbosity<embed::EmbedArgs>),
    /// Turn text into token ids, or ids into text
    Tokenize(WithVerbosity<tokenize::TokenizeArgs>),
    /// Answer over HTTP, as OpenAI's API, Anthropic's and llama-server
    #[cfg(feature = "server")]
    Serve(Box<WithVerbosity<serve::ServeArgs>>),
    /// List the GPUs, and what of them would be used
    Devices(WithVerbosity<devices::DevicesArgs>),
    /// Write a model in other formats: fewer bits for each weight
    #[command(override_usage = "spec-run quantize [OPTIONS] <IN> [OUT] <TYPE> [THREADS]")]
    Quantize(WithVerbosity<quantize::QuantizeArgs>),
    /// Find how much each column of a model's matrices matters, for `quantize --imatrix`
    Imatrix(WithVerbosity<imatrix::ImatrixArgs>),
    /// Give a model a small head of its own that drafts, fitted to text that the model writes
    #[cfg(feature = "fit")]
    Fit(WithVerbosity<fit::FitArgs>),
    /// Write a model of any shape with random weights
    Synth(SynthCommand),
    /// Write completions for a shell
    Completions(shell::CompletionsArgs),
    /// Write a manual page
    Man(shell::ManArgs),
    /// For this program itself
    #[command(name = chat_template::SUBCOMMAND, hide = true)]
    RenderChatTemplate,
}

/// `-q` is the quantization there.
#[derive(Args)]
struct SynthCommand {
    #[command(flatten)]
    args: synth::SynthArgs,
    #[command(flatten)]
    verbosity: LongVerbosityArgs,
}

/// clap's message in one line, with its tips; help and version are printed as they are.
fn usage_error(error: clap::Error) -> Error {
    if !error.use_stderr() {
        error.exit();
    }
    let message = error.to_string();
    let kept = message.split("\n\n").take_while(|part| {
        let part = part.trim_start();
        !part.starts_with("Usage:") && !part.starts_with("For more information")
    });
    let parts: Vec<String> = kept.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let line = parts.join("; ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    Error::Usage(format!("{line}; --help shows what there is"))
}

fn command() -> clap::Command {
    help::dress(Cli::command(), false)
}

/// A command line in llama.cpp's words or ours, without the program's name.
fn translate(words: impl IntoIterator<Item = OsString>) -> Result<Line> {
    let mut words = words.into_iter().peekable();
    let known = Cli::command();
    let is_command =
        |word: &OsString| known.get_subcommands().any(|sub| word == sub.get_name()) || word == "help";
    let name = words.next_if(is_command);
    let usage = |what: String| Error::Usage(format!("{what}; --help shows what there is"));
    let name = name.as_ref().and_then(|name| name.to_str());
    llama_line::translate(&known, name, words).map_err(usage)
}

fn parse(words: &[OsString]) -> Result<Cli> {
    let command = help::dress(Cli::command(), words.iter().any(|word| word == "-h"));
    let words = std::iter::once(OsString::from("spec-run")).chain(words.iter().cloned());
    let matches = command.try_get_matches_from(words).map_err(usage_error)?;
    Cli::from_arg_matches(&matches).map_err(usage_error)
}

/// One line for each combination of values, in `bench`; at least one.
fn lines(words: Vec<OsString>) -> Result<Vec<Vec<OsString>>> {
    if words.first().is_none_or(|word| word != "bench") {
        return Ok(vec![words]);
    }
    let lines = llama_line::combinations(&words[1..]).map_err(Error::Usage)?;
    let with_name = |line: Vec<OsString>| std::iter::once(words[0].clone()).chain(line).collect();
    Ok(if lines.len() > 1 { lines.into_iter().map(with_name).collect() } else { vec![words] })
}

/// The flags of `serve` for one model of several: those of the command line win over `own`.
#[cfg(feature = "server")]
fn serve_args(own: &[String]) -> Result<serve::ServeArgs> {
    let given = std::env::args_os().skip(1).skip_while(|word| word != "serve").skip(1);
    let words = std::iter::once("serve".into()).chain(own.iter().map(OsString::from)).chain(given);
    match parse(&translate(words)?.words)?.command {
        Some(Command::Serve(command)) => Ok(command.args),
        _ => Err(Error::Usage("these are not the flags of `serve`".into())),
    }
}

/// Whether `serve` has such a flag, and whether that takes a value.
#[cfg(feature = "server")]
fn serve_flag(long: &str) -> Option<bool> {
    let known = Cli::command();
    let arg = llama_line::arg(known.find_subcommand("serve")?, &format!("--{long}"))?;
    Some(arg.get_action().takes_values())
}

/// Whether a command line is one that can be run, as far as is known before a file is opened; for tests.
#[doc(hidden)]
pub fn check(words: &[&str]) -> Result<()> {
    lines(translate(words.iter().map(OsString::from))?.words)?
        .iter()
        .try_for_each(|line| parse(line).map(drop))
}

/// What llama.cpp's programs read from the environment and this one does not do.
fn warn_of_environment(command: Option<&str>) {
    for flag in llama_flags::of_environment(command) {
        let Some(value) = std::env::var_os(flag.env) else { continue };
        match flag.here {
            Here::Only(values, why) if !values.iter().any(|known| value == *known) => {
                warning!("{} is set and changes nothing: {why}", flag.env);
            }
            Here::Refused(why) => warning!("{} is set and changes nothing: {why}", flag.env),
            _ => (),
        }
    }
}

pub fn run() -> Result<()> {
    let Line { words, ignored } = translate(std::env::args_os().skip(1))?;
    let name = ["chat", "embed", "serve", "bench"]
        .into_iter()
        .find(|&name| words.first().is_some_and(|word| word == name));
    let mut lines = lines(words)?.into_iter().map(|words| parse(&words)).collect::<Result<Vec<_>>>()?;
    let cli = lines.remove(0);
    let more = lines.into_iter().filter_map(|line| match line.command {
        Some(Command::Bench(command)) => Some(command.args),
        _ => None,
    });
    // Each command sets how much is said before it says anything.
    let told = move || {
        warn_of_environment(name);
        ignored.iter().for_each(|(flag, why)| detail!("{flag} changes nothing: {why}"));
    };
    match cli.command {
        None => cli.run.run(told, run::run),
        Some(Command::Chat(command)) => command.run(told, chat::run),
        Some(Command::Perplexity(command)) => command.run(told, perplexity::run),
        Some(Command::Merge(command)) => command.run(told, merge::run),
        Some(Command::Search(command)) => command.run(told, search::run),
        Some(Command::Plot(command)) => command.run(told, plot::run),
        Some(Command::Bench(command)) => command.run(told, |args| bench::run(args, more.collect())),
        Some(Command::Inspect(command)) => command.run(told, inspect::run),
        Some(Command::Embed(command)) => command.run(told, embed::run),
        Some(Command::Tokenize(command)) => command.run(told, tokenize::run),
        #[cfg(feature = "server")]
        Some(Command::Serve(command)) => command.run(told, serve::run),
        Some(Command::Devices(command)) => command.run(told, devices::run),
        Some(Command::Imatrix(command)) => command.run(told, imatrix::run),
        #[cfg(feature = "fit")]
        Some(Command::Fit(command)) => command.run(told, fit::run),
        Some(Command::Quantize(command)) => command.run(told, quantize::run),
        Some(Command::Synth(SynthCommand { args, verbosity })) => {
            WithVerbosity { args, verbosity: verbosity.into() }.run(told, synth::run)
        }
        Some(Command::RenderChatTemplate) => chat_template::serve(),
        Some(Command::Completions(args)) => shell::completions(args, command()),
        Some(Command::Man(args)) => shell::man(args, command()),
    }
}

/// The exit code of a run that was interrupted: 130 by Ctrl-C, 143 by SIGTERM.
pub fn interrupted() -> Option<u8> {
    interrupt::exit_code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_sound() {
        command().debug_assert();
    }
}
