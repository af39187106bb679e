//! `spec-run search`: finds masks to draft with, and writes them to a file.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::{
    common::{self, ContextArgs, ModelArgs},
    interrupt,
    output::note,
    progress,
    report_file::ReportFile,
};
use crate::{
    Context, Error, Result, Tokenizer,
    files::{read_limited, with_suffix, write_whole},
    mask::skips::Skips,
    measure::load,
    provenance::{Provenance, TextSource},
    runtime,
    search::{
        Progress, SearchOutcome, SearchSettings,
        calibration::{self, Calibration},
        clock::WallClock,
        journal::{Entry, Journal, RunId},
        judge::{self, ModelJudge},
        objective::{Goal, Objective},
        report, search, states_of,
    },
    tokenizer::EncodeOptions,
    words::count,
};

const DEFAULT_CHUNK: u32 = 256;
const MOST_DRAFTS: usize = 15;

#[derive(Args, Debug)]
pub struct SearchArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Calibration text [default: one that the model writes itself]
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where the masks go
    #[arg(short = 'o', long, value_name = "FILE", default_value = "skips.json")]
    output: PathBuf,
    /// Overwrite the masks and the report if they are there
    #[arg(long)]
    force: bool,
    /// Where evaluations are kept, to go on from after an interruption [default: the output's name and .journal]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// A report with plots: FILE.html or FILE.svg
    #[arg(long, value_name = "FILE")]
    report: Option<ReportFile>,
    /// speed, or for research agreement or perplexity at a cost of --max-cost
    #[arg(long, value_name = "NAME", default_value = "speed", value_parser = str::parse::<Goal>)]
    objective: Goal,
    /// The cost that agreement or perplexity may spend, of a full step's
    #[arg(long, value_name = "C", default_value_t = 0.5)]
    max_cost: f64,
    /// Positions of the text to judge masks on; the search sees half of them, the results are from the others
    #[arg(long, value_name = "N", default_value_t = 1024)]
    positions: usize,
    /// Candidates of the Bayesian searcher
    #[arg(long, value_name = "N", default_value_t = 200)]
    trials: usize,
    /// Sublayers that each greedy step looks at
    #[arg(long, value_name = "N", default_value_t = 12)]
    width: usize,
    /// Seconds: about so long masks are looked for, and at most about as long again they are timed and proved; loading,
    /// reading or writing the text, and what one mask takes at least come on top [default: no limit]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    time: Option<f64>,
    /// The longest draft that is predicted
    #[arg(long, value_name = "N", default_value_t = 8)]
    draft_max: usize,
    /// The most masks to write
    #[arg(long, value_name = "N", default_value_t = 8)]
    masks: usize,
    /// The context; -c is the length of a chunk of the text here [default: 256, or less if the model has less]
    #[command(flatten)]
    context: ContextArgs,
    /// One JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
}

impl SearchArgs {
    /// What can be refused before a file is opened.
    fn check(&self) -> Result<()> {
        self.context.check()?;
        let at_least_one =
            [("--width", self.width), ("--masks", self.masks), ("--draft-max", self.draft_max)];
        if let Some((flag, _)) = at_least_one.iter().find(|(_, n)| *n == 0) {
            return Err(Error::Usage(format!("{flag} 0: 1 is the least")));
        }
        if self.draft_max > MOST_DRAFTS {
            return Err(Error::Usage(format!("--draft-max {}: at most {MOST_DRAFTS}", self.draft_max)));
        }
        if let Some(seconds) = self.time
            && Duration::try_from_secs_f64(seconds).is_err()
        {
            return Err(Error::Usage(format!("--time {seconds}: a number of seconds, from 0 on")));
        }
        if !(self.max_cost > 0.0 && self.max_cost <= 1.0) {
            return Err(Error::Usage(format!("--max-cost {}: above 0, at most 1", self.max_cost)));
        }
        let inputs: Vec<PathBuf> = self.model.files().into_iter().chain(self.file.clone()).collect();
        common::check_overwrite(&self.output, self.force, &inputs)?;
        common::check_not_read(&self.journal(), &inputs)?;
        self.report.as_ref().map_or(Ok(()), |report| report.check("--report", self.force, &inputs))
    }

    fn settings(&self, context: &Context) -> SearchSettings {
        SearchSettings {
            objective: Objective::new(self.objective, self.max_cost),
            states: states_of(context),
            width: self.width,
            trials: self.trials,
            draft_max: self.draft_max,
            family: self.masks,
            time: self.time.map(Duration::from_secs_f64),
        }
    }

    fn journal(&self) -> PathBuf {
        self.journal.clone().unwrap_or_else(|| with_suffix(&self.output, ".journal"))
    }
}

pub fn run(args: SearchArgs) -> Result<()> {
    args.check()?;
    let started = Instant::now();
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load(&gguf, &args.context.rope)?;
    let chunk = match args.context.ctx_size() {
        None => DEFAULT_CHUNK.min(model.n_ctx_train) as usize,
        Some(0) => model.n_ctx_train as usize,
        Some(n) => n as usize,
    };
    let amount = calibration::CalibrationSettings { chunk, positions: args.positions };
    amount.check()?;
    let mut config = args.context.config(&model)?;
    judge::make_room(&mut config, &amount, args.draft_max, args.file.is_none());
    let device = &args.context.device;
    if device.dry_run(&model, &config, None, args.json)? {
        return Ok(());
    }
    let fewer = format!("--positions below {}", args.positions);
    runtime::check_states(&model, &config, "a search", args.positions, &fewer)?;
    let basis = || device.basis(&model, &config, None);
    let (mut context, took) = common::open_context(&model, &config, &basis)?;
    note!("{}: {}; {took}", model.name, context.describe());
    let settings = args.settings(&context);
    let bar = progress::bar(1, "{bar:30} {percent} %, {eta} left, {prefix}; {msg}");
    let calibration = match &args.file {
        Some(path) => read_calibration(path, &tokenizer, &amount)?,
        None => {
            let calibration = Calibration::written_by(&mut context, &tokenizer, &amount, |done| {
                show(&bar, "writing a text", done as u64, amount.positions as u64);
                Ok(())
            })?;
            note!(
                "no -f FILE: judged on {} texts of {} tokens that the model wrote itself",
                calibration.texts.len(),
                calibration.tokens()
            );
            calibration
        }
    };
    let run = RunId {
        model: context.fingerprint(),
        text: calibration.fingerprint(),
        positions: amount.positions,
        device: format!("{}, planes {:?}", context.identity(), config.planes),
        cache_types: format!("{} {}", config.key_type, config.value_type),
    };
    let (mut journal, entries) = Journal::open(&args.journal(), &run)?;
    let known = entries.iter().filter(|e| !matches!(e, Entry::Run(_) | Entry::Provenance(_))).count();
    if known > 0 {
        note!("{}: {} of an earlier run", args.journal().display(), count(known, "evaluation"));
    }
    let mut provenance = common::provenance(&context, &config)
        .setting("positions", amount.positions)
        .setting("chunk_tokens", chunk)
        .setting("draft_max", args.draft_max)
        .setting("trials", args.trials)
        .setting("width", args.width)
        .setting("load", load().map(|load| load.to_string()));
    let text = calibration.fingerprint();
    provenance.text = Some(TextSource { tokens: calibration.tokens(), hash: text });
    journal.explain(provenance.to_json());
    let interrupted = interrupt::flag();
    let judge = ModelJudge::new(&mut context, calibration)?;
    let mut clock = WallClock { most_seconds: settings.most_seconds_of_a_timing() };
    let outcome = search(judge, &tokenizer, &settings, &mut clock, &mut journal, entries, |p: Progress| {
        show(&bar, p.stage, p.done, p.expected);
        if let Some(best) = p.best {
            bar.set_message(format!("best so far {best:.3}"));
        }
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let outcome = outcome?;
    let skips = Skips::new(model.id(), outcome.family.iter().map(|m| m.named(&outcome.costs)).collect());
    // One that fails costs nobody the others.
    let printed = print(&args, &outcome, &skips, &provenance, started.elapsed().as_secs_f64());
    let kept = skips.write_with(&args.output, Some(&provenance.to_json()));
    let draw = |file: &ReportFile| {
        let page = match file.is_page {
            true => report::html(&model.name, &outcome, &provenance, &file.related("")),
            false => report::svg(&model.name, &outcome, &provenance),
        };
        write_whole(&file.path, page)
    };
    let drawn = args.report.as_ref().map_or(Ok(()), draw);
    kept.and(drawn).and(printed)
}

fn read_calibration(
    path: &Path,
    tokenizer: &Tokenizer,
    settings: &calibration::CalibrationSettings,
) -> Result<Calibration> {
    let bytes = read_limited(path, common::MOST_TEXT)?;
    let text = String::from_utf8_lossy(&bytes);
    let tokens = tokenizer.encode(&text, EncodeOptions { add_special: false, parse_special: false });
    let bos = tokenizer.added_bos();
    Calibration::from_text(&tokens, bos, settings).map_err(|e| match e {
        Error::Input(what) => Error::Input(format!("{}: {what}", path.display())),
        other => other,
    })
}

fn print(
    args: &SearchArgs,
    outcome: &SearchOutcome,
    skips: &Skips,
    provenance: &Provenance,
    seconds: f64,
) -> Result<()> {
    if args.json {
        let masks: Value = serde_json::from_str(&skips.to_json()).expect("our own JSON");
        let baselines: Vec<Value> = outcome
            .baselines
            .iter()
            .map(|m| {
                let best = m.proof.greedy(&outcome.costs);
                json!({"name": m.name, "agreement": m.proof.agreement, "overlap": m.proof.overlap, "cost": m.proof.cost,
                       "predicted": {"speedup": best.speedup, "draft_len": best.draft_len},
                       "measured": m.measured})
            })
            .collect();
        return common::print_json(&json!({
            "masks": masks["masks"],
            "pays": outcome.why_not().is_none(),
            "evaluated": outcome.evaluated,
            "seconds": seconds,
            "baselines": baselines,
            "file": args.output.display().to_string(),
            "rows": outcome.costs.rows,
            "step_ms": 1e3 * outcome.costs.step_seconds,
            "provenance": provenance.to_json(),
        }));
    }
    let mut text = report::text(outcome);
    text += &format!(
        "\n{} in {seconds:.1} s; {} in {}\n",
        count(outcome.evaluated, "candidate"),
        count(outcome.family.len(), "mask"),
        args.output.display()
    );
    common::print(text)
}

fn show(bar: &ProgressBar, stage: &'static str, done: u64, expected: u64) {
    bar.set_prefix(stage);
    bar.set_length(expected);
    bar.set_position(done);
}
