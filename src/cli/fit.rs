//! `spec-run fit`: a small head of a model's own that drafts.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::{
    common::{self, ModelArgs},
    interrupt,
    output::note,
    progress,
    thread_args::ThreadArgs,
};
use crate::{
    ContextConfig, Error, Result,
    context::Isa,
    files::with_suffix,
    fit::{AT_ONCE, Event, FitConfig, Fitted, MOST_CELLS, OfTemp, Outcome, Prompts, Verdict, fit},
    gguf::Gguf,
    head,
    placement::Basis,
    tokenizer::Tokenizer,
    words::count,
};

/// Of a file of prompts or of a text.
const MOST_BYTES: u64 = 256 << 20;
/// Steps of the bars.
const WHOLE: u64 = 1000;

#[derive(Args, Debug)]
pub struct FitArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// How long it may take; more text makes a better head
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// What the model is asked to write about, one prompt a line [default: two hundred that come with the program]
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    prompts: Option<PathBuf>,
    /// A text of which the model continues pieces
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// The file to write [default: beside the model, as MODEL.head.gguf]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Go on with the texts of a run that was interrupted, or that had --keep-states
    #[arg(long)]
    resume: bool,
    /// Keep the texts and their states beside the head, as FILE.states, for --resume
    #[arg(long)]
    keep_states: bool,
    /// Gigabytes of states on the disk at most
    #[arg(long, value_name = "N", default_value_t = 4.0)]
    disk: f64,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Instruction set: scalar, avx2, avxvnni, avx512, neon or i8mm [default: the best there is]
    #[arg(long, value_name = "NAME")]
    isa: Option<Isa>,
    /// Overwrite the file if it is there
    #[arg(long)]
    force: bool,
    /// One JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(args: FitArgs) -> Result<()> {
    args.check()?;
    let output = args.output();
    common::check_overwrite(&output, args.force, &args.inputs())?;
    let states = with_suffix(&output, ".states");
    if args.resume && !states.exists() {
        let states = states.display();
        return Err(Error::Usage(format!("--resume: there is no {states}; leave it out to begin anew")));
    }
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load(&gguf, &Default::default())?;
    let prompts = args.read_prompts(&gguf, &tokenizer)?;
    let n_ctx = (AT_ONCE * MOST_CELLS) as u32;
    let config = ContextConfig { n_ctx, sequences: AT_ONCE, isa: args.isa, ..ContextConfig::default() };
    // States are taken out on the CPU, whatever else there is.
    let (mut context, took) = common::open_context(&model, &args.threads.apply(config)?, &Basis::default)?;
    // Only the first call can say how many there are, and this is it.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(context.threads()).build_global();
    note!("{}: {}; {took}; {} minutes", model.name, context.describe(), args.minutes);
    let config = FitConfig {
        time: Duration::from_secs_f64(60.0 * args.minutes),
        states: states.clone(),
        most_bytes: (args.disk * 1e9) as u64,
        resume: args.resume,
    };
    let mut shown = Shown { bar: progress::bar(WHOLE, "{bar:30} {msg}"), interrupted: interrupt::flag() };
    let result = fit(&mut context, &tokenizer, &prompts, &config, &mut |event| shown.hear(event));
    shown.bar.finish_and_clear();
    let keeps = args.keep_states || matches!(result, Ok(Outcome::Interrupted { .. }));
    if !keeps {
        let _ = fs::remove_file(&states);
    }
    let states = states.display();
    match result? {
        Outcome::Interrupted { tokens } => {
            note!("interrupted: {tokens} tokens with their states are kept in {states}; --resume goes on");
            Ok(())
        }
        Outcome::Fitted(fitted) if fitted.verdict.pays() => {
            fitted.head.write(&output, &model)?;
            args.tell(&fitted, Some(&output))
        }
        Outcome::Fitted(fitted) => args.tell(&fitted, None),
    }
}

impl FitArgs {
    fn check(&self) -> Result<()> {
        self.threads.check()?;
        let in_range = |flag: &str, value: f64, least: f64, most: f64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(Error::Usage(format!("{flag} {value}: give {least} to {most}"))),
        };
        in_range("--minutes", self.minutes, 0.05, 10_000.0)?;
        in_range("--disk", self.disk, 0.01, 10_000.0)
    }

    fn inputs(&self) -> Vec<PathBuf> {
        self.model.files().into_iter().chain(self.prompts.clone()).chain(self.text.clone()).collect()
    }

    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| match self.model.files().first() {
            Some(model) => head::default_path(model),
            None => "stories13m.head.gguf".into(),
        })
    }

    fn read_prompts(&self, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Prompts> {
        if let Some(file) = &self.text {
            return Prompts::continued(tokenizer, &common::read_text(file, MOST_BYTES)?);
        }
        let lines = self.prompts.as_ref().map(|file| common::read_text(file, MOST_BYTES)).transpose()?;
        Prompts::asked(gguf, tokenizer, lines.as_deref())
    }

    /// Says what came of it; without a file if it does not pay.
    fn tell(&self, fitted: &Fitted, file: Option<&Path>) -> Result<()> {
        let Fitted { head, verdict, seconds: [writing, training] } = fitted;
        if self.json {
            return common::print_json(&json!({
                "file": file.map(|file| file.display().to_string()),
                "text_tokens": head.made.text_tokens,
                "steps": head.made.steps,
                "ridge": head.made.ridge,
                "writing_seconds": writing,
                "training_seconds": training,
                "predicted_speed": verdict.speed(),
                "of_temps": verdict.of_temps.iter().map(json_of).collect::<Vec<_>>(),
            }));
        }
        let [greedy, warm] = &verdict.of_temps;
        let speeds = format!("{:.2} and {:.2} times plain decoding", greedy.speed, warm.speed);
        let of = format!("{} of the model's text", count(head.made.text_tokens as usize, "token"));
        common::print(match file {
            Some(file) => format!(
                "{}: fitted to {of} in {:.0} s; predicted {speeds} at temperatures 0 and 0.8\n",
                file.display(),
                writing + training,
            ),
            None => format!(
                "no head was written: one fitted to {of} is predicted to give {speeds} at temperatures 0 and 0.8; more --minutes may help\n"
            ),
        })
    }
}

/// What is shown meanwhile.
struct Shown<I> {
    bar: ProgressBar,
    interrupted: I,
}

impl<I: Fn() -> bool> Shown<I> {
    fn hear(&mut self, event: Event) -> bool {
        let line = |text: String| self.bar.suspend(|| note!("{text}"));
        let at = |share: f64, text: String| {
            self.bar.set_message(text);
            self.bar.set_position((share.min(1.0) * WHOLE as f64) as u64);
        };
        match event {
            Event::Writing { tokens, share } => at(share, format!("writing: {tokens} tokens")),
            Event::Full => line("the states fill what --disk allows: no more text is written".into()),
            Event::Started { strength, verdict } => {
                line(format!("ridge {strength}: {}", agreement(&verdict)));
            }
            Event::Training(progress) => {
                let share = progress.passed.as_secs_f64() / progress.time.as_secs_f64();
                at(share, format!("training: {} steps, loss {:.3}", progress.steps, progress.loss));
            }
            Event::Judged(verdict) => line(agreement(&verdict)),
        }
        !(self.interrupted)()
    }
}

/// How often drafts are right, on one line.
fn agreement(verdict: &Verdict) -> String {
    let of = |of: &OfTemp| {
        let positions: Vec<String> = of.agreement.iter().map(|share| format!("{share:.3}")).collect();
        format!("{} (predicted {:.2}, {})", positions.join(" "), of.speed, of.draft)
    };
    let [greedy, warm] = &verdict.of_temps;
    format!("agreement at temperature 0: {}; at 0.8: {}", of(greedy), of(warm))
}

fn json_of(of: &OfTemp) -> Value {
    json!({
        "drafts": of.drafts,
        "agreement": of.agreement,
        "among": of.among,
        "missed": of.missed,
        "draft": of.draft,
        "predicted_speed": of.speed,
    })
}
