//! `spec-run bench`: how fast a model runs here, or how two configurations compare.

use std::{ops::ControlFlow, sync::Arc};

use clap::{Args, CommandFactory, Parser};
use indicatif::ProgressBar;

use super::{
    Cli,
    bench_tests::{self, TestArgs},
    common::{self, ContextArgs, ModelArgs},
    interrupt,
    llama_line::translate,
    mask_args::MaskArgs,
    output::note,
    progress,
};
use crate::{
    Context, ContextConfig, Error, Model, Result, RunLayers,
    bench::{BenchSettings, Configuration, MOST_ROWS, Progress, measure, report::Report},
    placement::Basis,
};

const DEFAULT_PREFILL: [usize; 2] = [128, 512];
const DEFAULT_DEPTHS: [usize; 3] = [0, 1024, 4096];
const DEFAULT_CURVE_DEPTH: usize = 128;

#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct BenchArgs {
    #[command(flatten)]
    side: SideArgs,
    #[command(flatten)]
    tests: TestArgs,
    #[command(flatten)]
    what: WhatArgs,
    /// Measure a second configuration in alternation: this one with the given settings changed, as in
    /// --vs '-t 1' or --vs '-m other.gguf --isa avx2'
    #[arg(long, value_name = "SETTINGS", allow_hyphen_values = true, conflicts_with = "dry_run")]
    vs: Option<String>,
    /// One JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
}

/// What may differ between the two sides of a comparison.
#[derive(Args, Clone, Debug)]
struct SideArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    mask: MaskArgs,
}

/// What is measured; the same for both sides.
#[derive(Args, Clone, Debug, PartialEq)]
struct WhatArgs {
    /// Lengths of the prompts [default: 128,512, as far as the context goes]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    prefill: Option<Vec<usize>>,
    /// Tokens of context under the decode steps [default: 0,1024,4096, as far as the context goes]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    depths: Option<Vec<usize>>,
    /// Tokens of context under the verify curve and the draft steps [default: 128]
    #[arg(long, value_name = "N")]
    curve_depth: Option<usize>,
    /// Rounds; each figure is the median over them
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// A few milliseconds for each figure: to try things out, not to quote
    #[arg(long)]
    quick: bool,
}

/// A configuration that has been looked at: everything but the timed loading.
pub struct Side {
    args: SideArgs,
    pub config: ContextConfig,
    mask: Option<RunLayers>,
    /// Tokens that one sequence may have.
    limit: usize,
    /// What a choice of places for the mask rests on.
    basis: Basis,
}

/// `more` are further configurations, where a flag had a list of values.
pub fn run(args: BenchArgs, more: Vec<BenchArgs>) -> Result<()> {
    if args.what.rounds == 0 {
        return Err(Error::Usage("-r 0: at least one round must be measured".into()));
    }
    if args.tests.given() || !more.is_empty() {
        return run_tests(args, more);
    }
    let mut sides = vec![args.side.clone()];
    if let Some(text) = &args.vs {
        sides.push(second(&args, text)?);
    }
    sides.iter().try_for_each(|side| side.context.check())?;
    let mut sides = sides.into_iter().map(SideArgs::look).collect::<Result<Vec<_>>>()?;
    let settings = args.what.settings(sides.iter().map(|s| s.limit).min().unwrap_or(0))?;
    for side in &mut sides {
        side.config.n_ctx = u32::try_from(settings.cells()).unwrap_or(u32::MAX);
        // Every depth is reached by cutting one long text.
        side.config.swa_full = true;
    }
    if sides[0].dry_run(args.json)? {
        return Ok(());
    }
    let configurations: Vec<_> = sides
        .iter()
        .map(|side| Configuration { open: Box::new(|| side.open()), mask: side.mask.clone() })
        .collect();
    let bar = bar();
    let mut reports = measure(&configurations, &settings, |Progress { done, total, doing }| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(doing);
        // Asked first when all is loaded: until then there is nothing to keep.
        if interrupt::flag()() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.finish_and_clear();
    let interrupted = reports[0].rounds() < settings.rounds;
    for (report, side) in reports.iter_mut().zip(&sides) {
        report.provenance = common::with_settings(report.provenance.clone(), &side.config);
        report.provenance.interrupted = interrupted;
    }
    if interrupted {
        note!("interrupted after {} of {} rounds", reports[0].rounds(), settings.rounds);
    }
    match (&reports[..], args.json) {
        ([first, second], json) => compare(first, second, args.vs.as_deref().unwrap_or_default(), json),
        ([only, ..], true) => common::print_json(&only.json()),
        ([only, ..], false) => common::print(format!("{}\n\n{}", only.headline(), only.table())),
        ([], _) => unreachable!("a report for each side"),
    }
}

/// As llama-bench does.
fn run_tests(args: BenchArgs, more: Vec<BenchArgs>) -> Result<()> {
    let BenchArgs { what, tests, vs, json, .. } = args.clone();
    if vs.is_some() || what.prefill.is_some() || what.depths.is_some() || what.curve_depth.is_some() {
        return Err(Error::Usage(
            "--vs, --prefill, --depths and --curve-depth do not go with -p, -n, -d, -pg, -o and lists of values".into(),
        ));
    }
    let sides = std::iter::once(args).chain(more).map(|args| args.side);
    let sides: Vec<SideArgs> = sides.collect();
    if sides.iter().any(|side| side.mask.given()) {
        return Err(Error::Usage("a mask does not go with -p, -n, -d, -pg, -o and lists of values".into()));
    }
    sides.iter().try_for_each(|side| side.context.check())?;
    let sides = sides.into_iter().map(SideArgs::look).collect::<Result<Vec<_>>>()?;
    if sides[0].dry_run(json)? {
        return Ok(());
    }
    bench_tests::run(sides, &tests, what.rounds, json, &bar())
}

fn compare(first: &Report, second: &Report, vs: &str, json: bool) -> Result<()> {
    if json {
        let mut out = first.json();
        out["vs"] = second.json();
        out["vs"]["settings"] = vs.into();
        out["ratios"] = first.ratios_json(second);
        return common::print_json(&out);
    }
    let changes = if vs.trim().is_empty() { "nothing changed" } else { vs };
    common::print(format!(
        "first:  {}\nsecond: {} ({changes})\n\n{}",
        first.headline(),
        second.headline(),
        first.table_of_ratios(second)
    ))
}

/// The settings of --vs read as if they stood at the end of this command line.
fn second(args: &BenchArgs, text: &str) -> Result<SideArgs> {
    #[derive(Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }
    let wrong = |what: &str| Error::Usage(format!("--vs '{text}': {what}"));
    let added = words(text).map_err(|what| wrong(&what))?;
    let line = own_words().into_iter().chain(added.into_iter().map(Into::into));
    let line = translate(&Cli::command(), Some("bench"), line).map_err(|what| wrong(&what))?;
    let line = Line::try_parse_from(line.words.into_iter().skip(1)).map_err(|e| {
        let message = e.to_string();
        let first = message.lines().next().unwrap_or_default();
        wrong(first.trim_start_matches("error: "))
    })?;
    let BenchArgs { side, tests, what, vs, json } = line.bench;
    if vs.is_some() || json != args.json || what != args.what || tests != args.tests {
        return Err(wrong(
            "only the model, the context and the mask may differ (-m, -t, -c, --isa, --skip-mlp, ..)",
        ));
    }
    Ok(side)
}

/// The words behind `bench` on the real command line, but for --vs.
fn own_words() -> Vec<std::ffi::OsString> {
    let mut words = Vec::new();
    let mut all = std::env::args_os().skip(2);
    while let Some(word) = all.next() {
        match word.to_str() {
            Some("--vs") => drop(all.next()),
            Some(text) if text.starts_with("--vs=") => (),
            _ => words.push(word),
        }
    }
    words
}

/// Splits at spaces; what stands in quotes stays together.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        Some(q) => Err(format!("the {q} at its start has no end")),
        None => Ok(words),
    }
}

impl SideArgs {
    fn look(self) -> Result<Side> {
        let model = Model::load_turning(self.model.open()?, &self.context.rope.change())?;
        common::check_writes(&model)?;
        let mask = self.mask.read(&model)?;
        let mut config = self.context.config(&model)?;
        config.extra_slots = mask.as_ref().map_or(0, RunLayers::extra_repetitions);
        config.placement.draft = mask.clone();
        let limit = match self.context.ctx_size() {
            Some(n) if n > 0 => n,
            _ => model.n_ctx_train,
        };
        let basis = match &mask {
            Some(_) => self.context.device.basis(&model, &config, None),
            None => Basis::default(),
        };
        Ok(Side { args: self, config, mask, limit: limit as usize, basis })
    }
}

impl Side {
    fn model(&self) -> Result<Arc<Model>> {
        let change = self.args.context.rope.change();
        Ok(Arc::new(Model::load_turning(self.args.model.open()?, &change)?))
    }

    fn dry_run(&self, json: bool) -> Result<bool> {
        self.args.context.device.dry_run(&*self.model()?, &self.config, None, json)
    }

    pub fn open(&self) -> Result<Context> {
        Context::open_with(self.model()?, &self.config, &self.basis)
    }
}

impl WhatArgs {
    fn settings(&self, limit: usize) -> Result<BenchSettings> {
        if limit == 0 {
            return Err(Error::Usage("a context of 0 tokens: say with -c how many it may have".into()));
        }
        let fitting =
            |flag: &str, given: &Option<Vec<usize>>, default: &[usize], least: usize, rows: usize| {
                let Some(given) = given else {
                    return Ok(default.iter().copied().filter(|n| n + rows <= limit).collect());
                };
                let mut given = given.clone();
                given.sort_unstable();
                given.dedup();
                match given.iter().find(|&&n| n < least || n.saturating_add(rows) > limit) {
                    Some(n) => Err(Error::Usage(format!(
                        "{flag} {n}: the context holds {limit} tokens: give {least} to {}, or a larger -c",
                        limit - rows
                    ))),
                    None => Ok(given),
                }
            };
        let mut prefill: Vec<usize> = fitting("--prefill", &self.prefill, &DEFAULT_PREFILL, 1, 0)?;
        if prefill.is_empty() {
            prefill.push(limit);
        }
        let depths = fitting("--depths", &self.depths, &DEFAULT_DEPTHS, 0, 1)?;
        let curve_depth = match self.curve_depth {
            Some(depth) => fitting("--curve-depth", &Some(vec![depth]), &[], 0, MOST_ROWS.min(limit))?[0],
            None => DEFAULT_CURVE_DEPTH,
        };
        let mut settings = BenchSettings::new(limit, prefill, depths, curve_depth);
        settings.rounds = self.rounds;
        if self.quick {
            settings.sample_seconds = 0.002;
        }
        Ok(settings)
    }
}

fn bar() -> ProgressBar {
    progress::bar(0, "{bar:30} {pos}/{len} {msg}, {eta} left")
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_and_quotes() {
        assert_eq!(words(" -t  1 ").unwrap(), ["-t", "1"]);
        assert_eq!(
            words(r#"-m 'my file.gguf' --x="a b" """#).unwrap(),
            ["-m", "my file.gguf", "--x=a b", ""]
        );
        assert!(words("-m 'my file").is_err());
    }
}
