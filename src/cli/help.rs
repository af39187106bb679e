//! What --help and -h show, and the environment's variables: flags are grouped by what one wants, and -h has the
//! everyday ones alone.

use std::collections::HashSet;

use clap::{
    Arg, ArgAction, Command,
    builder::{FalseyValueParser, Resettable},
};

use super::llama_flags::env_of;

/// Headings, and the flags below them that have none of their own.
const GROUPS: &[(&str, &str)] = &[
    ("Model", "model load-mode no-mmap hf-repo hf-file model-url hf-token offline cache-list"),
    (
        "Text",
        "prompt file binary-file predict no-escape reverse-prompt ignore-eos context-shift no-context-shift \
         keep",
    ),
    (
        "Context and threads",
        "ctx-size threads threads-batch cpu-mask cpu-range cpu-strict numa batch-size ubatch-size \
         cache-type-k cache-type-v swa-full rope-scaling rope-scale rope-freq-base rope-freq-scale \
         yarn-orig-ctx yarn-ext-factor yarn-attn-factor yarn-beta-slow yarn-beta-fast isa no-repack planes",
    ),
    (
        "Devices",
        "device n-gpu-layers vram tensor-split ram placement cpu-moe n-cpu-moe override-tensor strict \
         stream-rows gpu-variant gpu-cache profile dry-run speeds accept",
    ),
    (
        "Drafting",
        "spec-type spec-draft-n-max spec-draft-n-min spec-draft-p-min spec-draft-model spec-draft-hf \
         spec-draft-ngl spec-draft-device spec-draft-type-k spec-draft-type-v draft-exit draft-skip mask \
         skip-attn skip-mlp coarse experts no-prefix-reuse no-shortlist no-learn learn-dir",
    ),
    ("Output", "json logprobs display-prompt no-display-prompt color csv verbose quiet"),
];

/// What -h shows of the flags that several commands have; short, or else each text stands under its flag.
const EVERYDAY: &[(&str, &str)] = &[
    ("model", "Model, .gguf [default: embedded stories13m]"),
    ("hf-repo", "Download a model from Hugging Face"),
    ("prompt", "The text to go on from"),
    ("predict", "Tokens to generate; -1: no limit"),
    ("chat", "Take the prompt as a message to an assistant"),
    ("temp", "Temperature; 0 is greedy"),
    ("seed", "Seed; -1 draws one"),
    ("spec-type", "What drafts"),
    ("n-gpu-layers", "-ngl: layers on the GPU, or all"),
    ("verbose", "Say more on stderr"),
    ("quiet", "Say nothing on stderr but errors"),
];

/// Commands that -h leaves to --help, to stay on a screen.
const RARE: &[&str] = &["completions", "fit", "imatrix", "man", "merge", "plot"];

pub const EXAMPLES: &str = "Examples:
  spec-run                                                a story by the embedded model
  spec-run -m model.gguf -p 'Once upon a time' -n 128     a text to go on from
  spec-run chat -m model.gguf                             a conversation
  spec-run bench -m model.gguf                            how fast it is here";

/// The command as users see it; `short` for -h, which has no groups.
pub fn dress(command: Command, short: bool) -> Command {
    let shared: HashSet<String> =
        command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_string)).collect();
    command
        .after_help(EXAMPLES)
        .mut_args(|arg| everyday(grouped(with_env(None, arg), short), |_| true))
        .mut_subcommands(|sub| {
            let name = sub.get_name().to_string();
            let sub = if short && RARE.contains(&sub.get_name()) { sub.hide(true) } else { sub };
            sub.mut_args(|arg| {
                let arg = if name == "synth" { arg } else { with_env(Some(&name), arg) };
                everyday(grouped(arg, short), |long| shared.contains(long))
            })
        })
}

fn grouped(arg: Arg, short: bool) -> Arg {
    if short {
        return arg.help_heading(Resettable::Reset);
    }
    let is_in = |longs: &str| arg.get_long().is_some_and(|long| longs.split(' ').any(|one| one == long));
    match GROUPS.iter().find(|(_, longs)| is_in(longs)) {
        Some((heading, _)) => arg.help_heading(*heading),
        None => arg,
    }
}

/// The short help has one line for everyday flags, and none for the rest of those that are shared.
fn everyday(arg: Arg, is_shared: impl Fn(&str) -> bool) -> Arg {
    let Some(long) = arg.get_long() else { return arg };
    match EVERYDAY.iter().find(|(name, _)| *name == long) {
        Some((_, text)) if is_shared(long) => {
            let whole = arg.get_help().cloned().unwrap_or_default();
            arg.help(*text).long_help(whole)
        }
        None if is_shared(long) => arg.hide_short_help(true),
        _ => arg,
    }
}

/// As llama.cpp's programs: the command line wins.
fn with_env(command: Option<&str>, arg: Arg) -> Arg {
    let Some(variable) = arg.get_long().and_then(|long| env_of(command, long)) else { return arg };
    let arg = arg.env(variable).hide_env(true);
    match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(FalseyValueParser::new()),
        _ => arg,
    }
}
