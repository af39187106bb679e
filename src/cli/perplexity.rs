//! `spec-run perplexity`: perplexity of a text, plain or under a layer mask.

use std::{io::IsTerminal, ops::ControlFlow, path::PathBuf, str::FromStr};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::{
    common::{self, ContextArgs, ModelArgs, TextArgs},
    interrupt, kl_divergence,
    mask_args::MaskArgs,
    output::note,
    state::{RunId, StateFile},
    sweep::{self, Over},
};
use crate::{
    Context, Error, Model, Result, RunLayers, backend,
    eval::perplexity::{Draft, PerplexitySettings, Tally, count_chunks, perplexity},
    mask::skips::NamedMask,
    provenance::{Chunks, Provenance, text_hash},
    quoted::one_line,
    tokenizer::EncodeOptions,
    words::count,
};

/// llama-perplexity's chunk.
const DEFAULT_CHUNK: usize = 512;

#[derive(Args, Debug)]
pub struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    /// The context; -c is the length of a chunk here [default: 512, or less if the model has less]
    #[command(flatten)]
    context: ContextArgs,
    /// each in place of layers or of a mask's name: a table with each layer by itself, or with each mask of the file
    #[command(flatten)]
    mask: MaskArgs,
    /// Run only the first E layers; several (3,5,8), or each: a table of these exits
    #[arg(long, value_name = "E,..", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["draft_skip", "skip_attn", "skip_mlp", "coarse", "experts"])]
    exit: Vec<Exit>,
    /// The head that some models have for one token more (mtp): how often it agrees with the model
    #[arg(long = "spec-type", visible_alias = "draft", value_name = "KIND", value_parser = parse_draft)]
    #[arg(conflicts_with_all = ["draft_skip", "skip_attn", "skip_mlp", "coarse", "experts", "exit"])]
    draft: Option<Mtp>,
    /// Write the table of a sweep to FILE too, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Keep what the model says of every scored token in FILE, as llama-perplexity does, for others to be compared with
    #[arg(long = "kl-divergence-base", visible_alias = "save-all-logits", value_name = "FILE")]
    #[arg(conflicts_with_all = ["draft_skip", "skip_attn", "skip_mlp", "coarse", "experts", "exit", "draft", "resume"])]
    base: Option<PathBuf>,
    /// Compare the model with what --kl-divergence-base FILE has of another, on its text
    #[arg(long, requires = "base")]
    kl_divergence: bool,
    /// Overwrite the file of --csv or --kl-divergence-base if it is there
    #[arg(long)]
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

#[derive(Clone, Copy, Debug, PartialEq)]
enum Exit {
    Each,
    After(usize),
}

/// The only kind that is told here: masks and exits have flags of their own, and a lookup reads no layer.
#[derive(Clone, Copy, Debug)]
struct Mtp;

fn parse_draft(text: &str) -> Result<Mtp, String> {
    match text {
        "mtp" | "draft-mtp" => Ok(Mtp),
        _ => Err("mtp; for masks there are --draft-skip and --skip-..., for exits --exit".into()),
    }
}

impl FromStr for Exit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "each" => Ok(Exit::Each),
            number => {
                number.parse().map(Exit::After).map_err(|_| "give numbers of layers, or each".to_string())
            }
        }
    }
}

/// What runs beside the full model.
enum Masks {
    None,
    One(Box<NamedMask>),
    Several(Over),
    /// The head for one token more.
    Ahead,
}

impl PerplexityArgs {
    /// What can be refused before a file is opened.
    fn check(&self) -> Result<()> {
        self.context.check()?;
        let sweeps = self.exit.len() > 1 || self.exit.contains(&Exit::Each) || self.mask.is_sweep();
        if self.exit.len() > 1 && self.exit.contains(&Exit::Each) {
            return Err(Error::Usage("--exit: each stands alone".into()));
        }
        if self.csv.is_some() && !sweeps {
            return Err(Error::Usage("--csv: for several masks, as --exit each makes them".into()));
        }
        let kept = self.base.as_deref().filter(|_| !self.kl_divergence);
        if self.force && self.csv.is_none() && kept.is_none() {
            return Err(Error::Usage(
                "--force: no file is written; give --csv or --kl-divergence-base".into(),
            ));
        }
        kept.into_iter()
            .chain(self.csv.as_deref())
            .try_for_each(|path| common::check_overwrite(path, self.force))
    }

    fn masks(&self, model: &Model) -> Result<Masks> {
        let n_layer = model.plan.dims.n_layer;
        if self.draft.is_some() {
            return match model.predicts_ahead() {
                true => Ok(Masks::Ahead),
                false => Err(super::draft_args::no_head(model)),
            };
        }
        if self.mask.is_sweep() {
            return Ok(Masks::Several(self.mask.sweep(model)?));
        }
        if self.exit.is_empty() {
            let first = self.mask.family(model)?.into_iter().next();
            return Ok(first.map_or(Masks::None, |one| Masks::One(one.into())));
        }
        let mut exits = Vec::new();
        for exit in &self.exit {
            match *exit {
                Exit::Each => return Ok(Masks::Several(Over::exits(n_layer, 1..n_layer))),
                Exit::After(layers) if (1..=n_layer).contains(&layers) => exits.push(layers),
                Exit::After(layers) => {
                    return Err(Error::Usage(format!(
                        "--exit {layers}: the model has {n_layer} layers, give 1 to {n_layer}"
                    )));
                }
            }
        }
        Ok(match exits[..] {
            [layers] => {
                Masks::One(NamedMask::new(format!("exit {layers}"), RunLayers::exit(n_layer, layers)).into())
            }
            _ => Masks::Several(Over::exits(n_layer, exits)),
        })
    }
}

pub fn run(args: PerplexityArgs) -> Result<()> {
    args.check()?;
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load(&gguf)?;
    let bos = tokenizer.adds_bos().then(|| tokenizer.bos()).flatten();
    if let Some(base) = args.base.as_deref().filter(|_| args.kl_divergence) {
        return kl_divergence::compare(base, &args.context, (&model, bos), args.chunks, args.json);
    }
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
    let masks = args.masks(&model)?;
    let settings = PerplexitySettings {
        n_ctx,
        bos,
        draft: match &masks {
            Masks::One(one) => Some(Draft::Mask(one.mask.clone())),
            Masks::Ahead => Some(Draft::Ahead),
            Masks::None | Masks::Several(_) => None,
        },
        max_chunks: args.chunks,
    };
    let chunks = count_chunks(tokens.len(), &settings)?;
    let mut config = args.context.config(&model)?;
    (config.n_ctx, config.extra_slots) = match &masks {
        Masks::None | Masks::Ahead => (settings.cells() as u32, 0),
        Masks::One(one) => (settings.cells() as u32, one.mask.extra_repetitions()),
        Masks::Several(over) => (sweep::cells(n_ctx) as u32, over.extra_slots()),
    };
    match &masks {
        Masks::None => {}
        Masks::Ahead => config.ahead = true,
        // The model without a mask and with it, side by side.
        Masks::One(_) => config.sequences = 2,
        // Drafts begin everywhere in a text that is there already.
        Masks::Several(_) => {
            config.swa_full = true;
            config.extra_states = sweep::states(n_ctx);
        }
    }
    let device = &args.context.device;
    if device.dry_run(&model, &config, None, args.json)? {
        return Ok(());
    }
    if let Masks::Several(_) = &masks {
        let shorter = format!("-c below {n_ctx}");
        backend::check_states(&model, &config, "a perplexity under several masks", n_ctx / 2, &shorter)?;
    }
    let basis = || device.basis(&model, &config, None);
    let (mut context, took) = common::open_context(&model, &config, &basis)?;
    note!(
        "{}: {}; {took}; {} tokens, {} of {n_ctx}",
        model.name,
        context.describe(),
        tokens.len(),
        count(chunks, "chunk"),
    );
    // The model is hashed only for who keeps something: on a large file that reads a page of every tensor.
    let state = args.resume.as_ref().map(|path| {
        let run = RunId {
            model: model.fingerprint(),
            text_tokens: tokens.len(),
            text_hash: text_hash(&tokens),
            n_ctx,
            mask: match &masks {
                Masks::None => String::new(),
                Masks::Ahead => "mtp".into(),
                Masks::One(one) => one.mask.to_string(),
                Masks::Several(over) => over.spelled(),
            },
            cache_types: format!("{} {}", config.key_type, config.value_type),
        };
        StateFile::new(path, run)
    });
    let provenance =
        |context: &Context| common::provenance(context, &config).text(&tokens).setting("chunk_tokens", n_ctx);
    if let Masks::Several(over) = &masks {
        over.masks.iter().for_each(|(_, mask)| super::mask_args::warn_of_coarse(&context, mask));
        let provenance = provenance(&context);
        let job = sweep::Job { over, csv: args.csv.as_deref(), json: args.json, state, provenance };
        return sweep::run(job, &mut context, &tokens, &settings);
    }
    if let Some(Draft::Mask(mask)) = &settings.draft {
        super::mask_args::warn_of_coarse(&context, mask);
    }
    let start: Tally = state.as_ref().map_or(Ok(None), StateFile::recall)?.unwrap_or_default();
    if let Some(state) = &state {
        common::going_on(state, start.chunks, chunks)?;
    }
    let interrupted = interrupt::flag();
    let bar = progress(chunks, start.chunks);
    let on_chunk = |tally: &Tally| {
        bar.set_position(tally.chunks as u64);
        bar.set_message(format!("ppl {:.4}", tally.ppl()));
        state.as_ref().map_or(Ok(()), |state| state.keep(tally))?;
        Ok(if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let tally = match &args.base {
        Some(path) => kl_divergence::keep(path, &mut context, &tokens, &settings, on_chunk)?,
        None => perplexity(&mut context, &tokens, &settings, start, on_chunk)?,
    };
    bar.finish_and_clear();
    if tally.chunks < chunks {
        note!("{}", common::interrupted(tally.chunks, chunks, state.is_some()));
    }
    let beside = match &masks {
        Masks::One(one) => Some(Scored {
            name: &one.name,
            layers: Some(one.mask.to_string()),
            cost: context.mask_cost(&one.mask),
        }),
        Masks::Ahead => Some(Scored { name: "mtp", layers: None, cost: context.ahead_cost() }),
        Masks::None | Masks::Several(_) => None,
    };
    if !args.json {
        return common::print(text_of(&tally, beside.as_ref()));
    }
    let mut provenance = provenance(&context);
    if let Masks::One(one) = &masks {
        provenance = provenance.mask(&one.name, &one.mask);
    }
    provenance.chunks = Some(Chunks { done: tally.chunks, of: chunks });
    provenance.interrupted = tally.chunks < chunks;
    common::print_json(&json_of(&tally, beside.as_ref(), &provenance))
}

/// What was scored beside the full model.
struct Scored<'a> {
    name: &'a str,
    /// Those of a mask.
    layers: Option<String>,
    /// Of the bytes that the full model reads for a token.
    cost: f64,
}

fn json_of(tally: &Tally, scored: Option<&Scored>, provenance: &Provenance) -> Value {
    let n = tally.tokens;
    let mut out = json!({"ppl": tally.ppl(), "stderr": tally.stderr(), "chunks": tally.chunks, "tokens": n});
    if let (Some(beside), Some(scored)) = (&tally.against_full, scored) {
        out[if scored.layers.is_some() { "mask" } else { "draft" }] = json!(scored.name);
        out["base_ppl"] = json!(beside.full.perplexity(n));
        out["agreement"] = json!(beside.sums.agreement(n));
        out["overlap"] = json!(beside.sums.overlap(n));
        out["kl"] = json!(beside.sums.kl(n));
        out["cost"] = json!(scored.cost);
    }
    out["provenance"] = provenance.to_json();
    out
}

fn text_of(tally: &Tally, scored: Option<&Scored>) -> String {
    let n = tally.tokens;
    let mut text = match scored {
        None => String::new(),
        Some(Scored { layers: None, .. }) => "the head for one token more (mtp)\n".into(),
        Some(Scored { name, layers: Some(layers), .. }) => {
            let layers = if name == layers { String::new() } else { format!(": {layers}") };
            format!("mask `{}`{layers}\n", one_line(name, 60))
        }
    };
    text += &format!(
        "perplexity {:.4} +/- {:.5} ({}, {n} tokens)\n",
        tally.ppl(),
        tally.stderr(),
        count(tally.chunks, "chunk")
    );
    if let (Some(beside), Some(scored)) = (&tally.against_full, scored) {
        text += &format!(
            "full model {:.4}; same first choice {:.2} %, overlap {:.4}, KL {:.4}, bytes read {:.2} %\n",
            beside.full.perplexity(n),
            100.0 * beside.sums.agreement(n),
            beside.sums.overlap(n),
            beside.sums.kl(n),
            100.0 * scored.cost
        );
    }
    text
}

pub fn progress(chunks: usize, done: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} chunks, {eta} left, {msg}");
    let bar = ProgressBar::new(chunks as u64).with_style(style.expect("a valid template"));
    bar.with_position(done as u64)
}
