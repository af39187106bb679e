//! `spec-run perplexity`: perplexity of a text, plain or under a layer mask.

use std::{
    io::IsTerminal,
    ops::ControlFlow,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    common::{self, ContextArgs, ModelArgs, TextArgs},
    interrupt,
    mask_args::MaskArgs,
    output::note,
    sweep::{self, Over},
};
use crate::{
    Error, Model, Result, RunLayers,
    eval::perplexity::{PerplexitySettings, Tally, count_chunks, perplexity},
    files::{read_limited, write_whole},
    hash::fnv1a,
    tokenizer::EncodeOptions,
};

/// llama-perplexity's chunk.
const DEFAULT_CHUNK: usize = 512;
/// Bytes of a state; one has less than a thousand.
const MOST_STATE: u64 = 16 << 20;

#[derive(Args, Debug)]
pub struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    /// The context; -c is the length of a chunk here [default: 512, or less if the model has less]
    #[command(flatten)]
    context: ContextArgs,
    /// --skip-attn each, --skip-mlp each, or both: a table with each layer skipped by itself
    #[command(flatten)]
    mask: MaskArgs,
    /// Run only the first E layers; each: a table of all exits
    #[arg(long, value_name = "E", conflicts_with_all = ["draft_skip", "skip_attn", "skip_mlp"])]
    exit: Option<Exit>,
    /// Write the table of a sweep to FILE too, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Overwrite the --csv file if it is there
    #[arg(long, requires = "csv")]
    force: bool,
    /// Score only the first N chunks
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// Keep the state after every chunk in FILE, and go on from it if it is there
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// One JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum Exit {
    Each,
    After(usize),
}

impl FromStr for Exit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "each" => Ok(Exit::Each),
            number => {
                number.parse().map(Exit::After).map_err(|_| "give a number of layers, or each".to_string())
            }
        }
    }
}

impl PerplexityArgs {
    /// What to go through, if it is more than one mask.
    fn sweep(&self) -> Result<Option<Over>> {
        let over = match (self.exit, self.mask.sweep()?) {
            (Some(Exit::Each), _) => Some(Over::Exits),
            (_, Some((attn, mlp))) => Some(Over::Layers { attn, mlp }),
            _ => None,
        };
        match (&over, &self.csv, &self.resume) {
            (None, Some(_), _) => Err(Error::Usage("--csv: for a sweep, as --exit each makes it".into())),
            (Some(_), _, Some(_)) => Err(Error::Usage("--resume: not for a sweep".into())),
            _ => Ok(over),
        }
    }

    /// The one mask of a run that is not a sweep.
    fn single_mask(&self, model: &Model) -> Result<Option<RunLayers>> {
        let n_layer = model.plan.dims.n_layer;
        match self.exit {
            None => self.mask.read(model),
            Some(Exit::After(layers)) if (1..=n_layer).contains(&layers) => {
                Ok(Some(RunLayers::exit(n_layer, layers)))
            }
            Some(Exit::After(layers)) => Err(Error::Usage(format!(
                "--exit {layers}: the model has {n_layer} layers, give 1 to {n_layer}"
            ))),
            Some(Exit::Each) => unreachable!("a sweep"),
        }
    }
}

/// What a resumable run is a run of; a state file of another run is refused.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RunId {
    model: String,
    text_tokens: usize,
    text_hash: String,
    n_ctx: usize,
    mask: String,
    cache_types: String,
}

#[derive(Serialize, Deserialize)]
struct State {
    run: RunId,
    tally: Tally,
}

pub fn run(args: PerplexityArgs) -> Result<()> {
    args.context.check()?;
    let over = args.sweep()?;
    args.csv.as_deref().map_or(Ok(()), |path| common::check_overwrite(path, args.force))?;
    let interrupted = interrupt::flag();
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load(&gguf)?;
    let text = args
        .text
        .read()?
        .ok_or_else(|| Error::Usage("no text: give one with -f FILE, -p TEXT or on standard input".into()))?;
    // As llama-perplexity does: what looks like a special token in the text is text.
    let tokens = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false });
    let n_ctx = match args.context.ctx_size() {
        None => DEFAULT_CHUNK.min(model.n_ctx_train as usize),
        Some(0) => model.n_ctx_train as usize,
        Some(n) => n as usize,
    };
    let settings = PerplexitySettings {
        n_ctx,
        bos: tokenizer.adds_bos().then(|| tokenizer.bos()).flatten(),
        mask: if over.is_some() { None } else { args.single_mask(&model)? },
        max_chunks: args.chunks,
    };
    let chunks = count_chunks(tokens.len(), &settings)?;
    let mut config = args.context.config(&model)?;
    config.n_ctx = if over.is_some() { sweep::cells(n_ctx) } else { settings.cells() } as u32;
    if let Some(mask) = &settings.mask {
        config.extra_slots = mask.extra_repetitions();
    }
    let device = &args.context.device;
    if device.dry_run(&model, &config, None, args.json)? {
        return Ok(());
    }
    let basis = || device.basis(&model, &config, None);
    let (mut context, took) = common::open_context(&model, &config, &basis)?;
    if let Some(mask) = &settings.mask {
        super::mask_args::warn_of_coarse(&context, mask);
    }
    note!(
        "{}: {}; {took}; {} tokens, {chunks} chunks of {n_ctx}",
        model.name,
        context.describe(),
        tokens.len()
    );
    if let Some(over) = over {
        let job = sweep::Job { over, csv: args.csv.as_deref(), json: args.json };
        return sweep::run(&job, &mut context, &tokens, &settings);
    }

    // The model is hashed only for who keeps a state: on a large file that reads a page of every tensor.
    let mut kept = match &args.resume {
        None => None,
        Some(path) => {
            let run = RunId {
                model: model.fingerprint(),
                text_tokens: tokens.len(),
                text_hash: format!("{:016x}", fnv1a(tokens.iter().flat_map(|t| t.to_le_bytes()))),
                n_ctx,
                mask: settings.mask.as_ref().map(RunLayers::to_string).unwrap_or_default(),
                cache_types: format!("{} {}", config.key_type, config.value_type),
            };
            let tally = resume(path, &run, chunks)?;
            Some((path, State { run, tally }))
        }
    };
    let start = kept.as_ref().map(|(_, state)| state.tally.clone()).unwrap_or_default();
    let bar = progress(chunks, start.chunks);
    let tally = perplexity(&mut context, &tokens, &settings, start, |tally| {
        bar.set_position(tally.chunks as u64);
        bar.set_message(format!("ppl {:.4}", tally.ppl()));
        if let Some((path, state)) = &mut kept {
            state.tally = tally.clone();
            write_whole(path, serde_json::to_string(state).expect("plain data"))?;
        }
        Ok(if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    bar.finish_and_clear();
    if tally.chunks < chunks {
        let how = if args.resume.is_some() {
            "the same command goes on"
        } else {
            "--resume FILE can go on next time"
        };
        note!("interrupted after {} of {chunks} chunks; {how}", tally.chunks);
    }
    print(&args, &tally, settings.mask.as_ref().map(|mask| context.mask_cost(mask)))
}

fn print(args: &PerplexityArgs, tally: &Tally, cost: Option<f64>) -> Result<()> {
    let n = tally.tokens;
    if args.json {
        let mut out =
            json!({"ppl": tally.ppl(), "stderr": tally.stderr(), "chunks": tally.chunks, "tokens": n});
        if let (Some(beside), Some(cost)) = (&tally.against_full, cost) {
            out["base_ppl"] = json!(beside.full.perplexity(n));
            out["agreement"] = json!(beside.sums.agreement(n));
            out["overlap"] = json!(beside.sums.overlap(n));
            out["kl"] = json!(beside.sums.kl(n));
            out["cost"] = json!(cost);
        }
        return common::print_json(&out);
    }
    let mut text = format!(
        "perplexity {:.4} +/- {:.5} ({} chunks, {n} tokens)\n",
        tally.ppl(),
        tally.stderr(),
        tally.chunks
    );
    if let (Some(beside), Some(cost)) = (&tally.against_full, cost) {
        text += &format!(
            "full model {:.4}; same first choice {:.2} %, overlap {:.4}, KL {:.4}, bytes read {:.2} %\n",
            beside.full.perplexity(n),
            100.0 * beside.sums.agreement(n),
            beside.sums.overlap(n),
            beside.sums.kl(n),
            100.0 * cost
        );
    }
    common::print(text)
}

fn progress(chunks: usize, done: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} chunks, {eta} left, {msg}");
    let bar = ProgressBar::new(chunks as u64).with_style(style.expect("a valid template"));
    bar.with_position(done as u64)
}

/// What an earlier run left in the state file; nothing if there is none.
fn resume(path: &Path, run: &RunId, chunks: usize) -> Result<Tally> {
    let bytes = match read_limited(path, MOST_STATE) {
        Ok(bytes) => bytes,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Tally::default());
        }
        Err(e) => return Err(e),
    };
    let other =
        |what: String| Error::Input(format!("{}: {what}; give another --resume file", path.display()));
    let State { run: earlier, tally } =
        serde_json::from_slice(&bytes).map_err(|e| other(format!("not a state of this program ({e})")))?;
    if earlier != *run {
        return Err(other("the state of a run with another model, text, -c or mask".into()));
    }
    if tally.chunks > chunks {
        return Err(other(format!("has {} chunks already, more than the {chunks} asked for", tally.chunks)));
    }
    note!("going on after chunk {} of {chunks} ({})", tally.chunks, path.display());
    Ok(tally)
}
