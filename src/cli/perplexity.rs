//! `spec-run perplexity`: perplexity of a text, or how tasks are solved; plain or under a layer mask.

use std::{ops::ControlFlow, path::PathBuf};

use clap::Args;

use super::{
    common::{self, ContextArgs, ModelArgs, TextArgs},
    comparison_args::{ComparisonArgs, Masks},
    interrupt, kl_divergence,
    output::note,
    perplexity_report::{Scored, json_of, text_of},
    progress::count_bar,
    report_file::ReportFile,
    shard::{self, ShardArgs},
    shard_lines::Run,
    state::{RunId, StateFile},
    sweep,
    tasks::{self, TaskArgs},
};
use crate::{
    Context, Error, Result,
    eval::perplexity::{Draft, PerplexitySettings, Tally, count_chunks, perplexity},
    provenance::{Chunks, text_hash},
    runtime,
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
    #[command(flatten)]
    comparison: ComparisonArgs,
    #[command(flatten)]
    tasks: TaskArgs,
    #[command(flatten)]
    shard: ShardArgs,
    /// Write the table of a sweep to FILE too, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw a sweep: FILE.html with its numbers, or FILE.svg
    #[arg(long, value_name = "FILE")]
    report: Option<ReportFile>,
    /// Keep what the model says of every scored token in FILE, as llama-perplexity does, for others to be compared with
    #[arg(long = "kl-divergence-base", visible_alias = "save-all-logits", value_name = "FILE")]
    #[arg(conflicts_with_all = ["draft_skip", "skip_attn", "skip_mlp", "coarse", "experts", "exit", "draft", "resume"])]
    base: Option<PathBuf>,
    /// Compare the model with what --kl-divergence-base FILE has of another, on its text
    #[arg(long, requires = "base")]
    kl_divergence: bool,
    /// Overwrite the file of --csv, --report or --kl-divergence-base if it is there
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

impl PerplexityArgs {
    /// What can be refused before a file is opened.
    fn check(&self) -> Result<()> {
        self.context.check()?;
        self.comparison.check()?;
        let sweeps = self.comparison.is_sweep();
        if self.csv.is_some() && !sweeps {
            return Err(Error::Usage("--csv: for several masks, as --exit each makes them".into()));
        }
        if let Some(report) = &self.report {
            if !sweeps {
                return Err(Error::Usage("--report: for several masks, as --exit each makes them".into()));
            }
            if self.csv.as_ref() == Some(&report.path) {
                return Err(Error::Usage("--report and --csv: two files with two names".into()));
            }
            report.check("--report", self.force, &self.inputs())?;
        }
        let kept = self.base.as_deref().filter(|_| !self.kl_divergence);
        if self.force && self.csv.is_none() && self.report.is_none() && kept.is_none() {
            return Err(Error::Usage(
                "--force: no file is written; give --csv, --report or --kl-divergence-base".into(),
            ));
        }
        let inputs = self.inputs();
        kept.into_iter()
            .chain(self.csv.as_deref())
            .try_for_each(|path| common::check_overwrite(path, self.force, &inputs))?;
        // What a run goes on from is there to be replaced.
        self.resume.as_ref().map_or(Ok(()), |path| common::check_overwrite(path, true, &inputs))
    }

    /// The files that are read.
    fn inputs(&self) -> Vec<PathBuf> {
        let base = self.base.clone().filter(|_| self.kl_divergence);
        let masks = self.comparison.file().map(PathBuf::from);
        self.model.files().into_iter().chain(self.text.file()).chain(base).chain(masks).collect()
    }
}

pub fn run(args: PerplexityArgs) -> Result<()> {
    args.check()?;
    let tasks = args.tasks.kind(&args.comparison)?;
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load(&gguf, &args.context.rope)?;
    if let Some(kind) = tasks {
        return tasks::run(
            kind,
            &args.text,
            (&model, &tokenizer),
            &args.context,
            &args.comparison,
            args.json,
        );
    }
    let bos = tokenizer.added_bos();
    if let Some(base) = args.base.as_deref().filter(|_| args.kl_divergence) {
        return kl_divergence::compare(base, &args.context, (&model, bos), args.chunks, args.json);
    }
    let text = args.text.needed()?;
    // As llama-perplexity does: what looks like a special token in the text is text.
    let tokens = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false });
    let n_ctx = match args.context.ctx_size() {
        None => DEFAULT_CHUNK.min(model.n_ctx_train as usize),
        Some(0) => model.n_ctx_train as usize,
        Some(n) => n as usize,
    };
    let masks = args.comparison.read(&model)?;
    let settings = PerplexitySettings {
        n_ctx,
        bos,
        draft: match &masks {
            Masks::One(one) => Some(Draft::Mask(one.mask.clone())),
            Masks::Mtp => Some(Draft::Mtp),
            Masks::None | Masks::Several(_) => None,
        },
        max_chunks: args.chunks,
    };
    let chunks = count_chunks(tokens.len(), &settings)?;
    let mut config = args.context.config(&model)?;
    (config.n_ctx, config.extra_slots) = match &masks {
        Masks::None | Masks::Mtp => (settings.cells() as u32, 0),
        Masks::One(one) => (settings.cells() as u32, one.mask.extra_repetitions()),
        Masks::Several(over) => (config.n_ctx, over.extra_slots()),
    };
    match &masks {
        Masks::None => {}
        Masks::Mtp => config.mtp = true,
        // The model without a mask and with it, side by side.
        Masks::One(_) => config.sequences = 2,
        Masks::Several(_) => sweep::make_room(&mut config, n_ctx),
    }
    let device = &args.context.device;
    if device.dry_run(&model, &config, None, args.json)? {
        return Ok(());
    }
    if let Masks::Several(_) = &masks {
        let shorter = format!("-c below {n_ctx}");
        runtime::check_states(&model, &config, "a perplexity under several masks", n_ctx / 2, &shorter)?;
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
    let run_id = |context: &Context| RunId {
        model: context.fingerprint(),
        text_tokens: tokens.len(),
        text_hash: text_hash(&tokens),
        n_ctx,
        mask: masks.spelled(),
        cache_types: format!("{} {}", config.key_type, config.value_type),
    };
    let state = args.resume.as_ref().map(|path| StateFile::new(path, run_id(&context)));
    let provenance =
        |context: &Context| common::provenance(context, &config).text(&tokens).setting("chunk_tokens", n_ctx);
    masks.all().iter().for_each(|mask| super::mask_args::warn_of_coarse(&context, mask));
    if let Some(part) = args.shard.shard {
        let provenance = match &masks {
            Masks::One(one) => provenance(&context).mask(&one.name, &one.mask),
            _ => provenance(&context),
        };
        let over = match &masks {
            Masks::Several(over) => Some(over.name),
            _ => None,
        };
        let run = Run::new(run_id(&context), &config, over, chunks);
        let job = shard::Job { part, out: args.shard.out.as_deref(), run, masks: &masks, provenance };
        return shard::run(job, &mut context, &tokens, &settings);
    }
    if let Masks::Several(over) = &masks {
        let provenance = provenance(&context);
        let (csv, report) = (args.csv.as_deref(), args.report.as_ref());
        let job = sweep::Job { over, csv, report, json: args.json, state, provenance };
        return sweep::run(job, &mut context, &tokens, &settings);
    }
    let start: Tally = state.as_ref().map_or(Ok(None), StateFile::recall)?.unwrap_or_default();
    if let Some(state) = &state {
        common::going_on(state, start.chunks, chunks)?;
    }
    let interrupted = interrupt::flag();
    let bar = count_bar(chunks, start.chunks, "chunks");
    let on_chunk = |tally: &Tally| {
        bar.set_position(tally.chunks as u64);
        bar.set_message(format!(", ppl {:.4}", tally.ppl()));
        state.as_ref().map_or(Ok(()), |state| state.keep(tally))?;
        Ok(if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let tally = match &args.base {
        Some(path) => kl_divergence::keep(path, &mut context, &tokens, &settings, on_chunk)?,
        None => perplexity(&mut context, &tokens, &settings, start, on_chunk)?,
    };
    bar.finish_and_clear();
    common::tell_profile(&context);
    if tally.chunks < chunks {
        note!("{}", common::interrupted(tally.chunks, chunks, state.is_some()));
    }
    let scored = match &masks {
        Masks::One(one) => Some(Scored {
            name: &one.name,
            layers: Some(one.mask.to_string()),
            cost: context.mask_cost(&one.mask),
        }),
        Masks::Mtp => Some(Scored { name: "mtp", layers: None, cost: context.mtp_cost() }),
        Masks::None | Masks::Several(_) => None,
    };
    if !args.json {
        return common::print(text_of(&tally, scored.as_ref()));
    }
    let mut provenance = provenance(&context);
    if let Masks::One(one) = &masks {
        provenance = provenance.mask(&one.name, &one.mask);
    }
    provenance.chunks = Some(Chunks { done: tally.chunks, of: chunks });
    provenance.interrupted = tally.chunks < chunks;
    common::print_json(&json_of(&tally, scored.as_ref(), &provenance))
}
