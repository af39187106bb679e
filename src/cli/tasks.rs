//! `spec-run perplexity --hellaswag`, `--winogrande`, `--multiple-choice`: how often the right ending is the likeliest.

use std::{ops::ControlFlow, sync::Arc};

use clap::Args;
use serde_json::{Value, json};

use super::{
    common::{self, ContextArgs, TextArgs},
    comparison_args::{ComparisonArgs, Masks},
    interrupt,
    output::{note, warning},
    perplexity_report::mask_line,
    progress::count_bar,
};
use crate::{
    Error, Model, Result, Tokenizer,
    eval::tasks::{
        Answer, Choice, Room, Task, hellaswag, multiple_choice, score, standard_error, wilson, winogrande,
    },
    mask::skips::NamedMask,
    words::count,
};

/// Cells where -c does not say: as many as llama-perplexity has.
const DEFAULT_CELLS: u32 = 2048;
const TEXT_FLAGS: [&str; 9] =
    ["winogrande", "multiple_choice", "draft", "csv", "base", "kl_divergence", "force", "chunks", "resume"];

#[derive(Args, Clone, Debug)]
pub struct TaskArgs {
    /// The text is HellaSwag's, six lines a task: how often the model finds the right one of four endings likeliest
    #[arg(long, conflicts_with_all = TEXT_FLAGS)]
    hellaswag: bool,
    /// How many tasks are drawn, always the same [default: 400]
    #[arg(long, value_name = "N", requires = "hellaswag")]
    hellaswag_tasks: Option<usize>,
    /// The text is Winogrande's, a CSV: which of two words fits into a sentence
    #[arg(long, conflicts_with_all = &TEXT_FLAGS[1..])]
    winogrande: bool,
    /// How many tasks are drawn, always the same; 0: all, as they stand
    #[arg(long, value_name = "N", requires = "winogrande", default_value_t = 0, hide_default_value = true)]
    winogrande_tasks: usize,
    /// The text is llama-perplexity's binary file of questions with several answers
    #[arg(long, conflicts_with_all = &TEXT_FLAGS[2..])]
    multiple_choice: bool,
    /// How many tasks are drawn, always the same; 0: all, as they stand
    #[arg(
        long,
        value_name = "N",
        requires = "multiple_choice",
        default_value_t = 0,
        hide_default_value = true
    )]
    multiple_choice_tasks: usize,
}

/// A kind of tasks, and how many of them are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    HellaSwag(usize),
    Winogrande(usize),
    MultipleChoice(usize),
}

impl TaskArgs {
    /// What is asked for, if it is tasks.
    pub fn kind(&self, comparison: &ComparisonArgs) -> Result<Option<Kind>> {
        let kind = match self {
            TaskArgs { hellaswag: true, hellaswag_tasks: Some(0), .. } => {
                return Err(Error::Usage("--hellaswag-tasks 0: give 1 or more, or leave it out".into()));
            }
            TaskArgs { hellaswag: true, hellaswag_tasks, .. } => {
                Kind::HellaSwag(hellaswag_tasks.unwrap_or(hellaswag::USUAL))
            }
            TaskArgs { winogrande: true, winogrande_tasks, .. } => Kind::Winogrande(*winogrande_tasks),
            TaskArgs { multiple_choice: true, multiple_choice_tasks, .. } => {
                Kind::MultipleChoice(*multiple_choice_tasks)
            }
            _ => return Ok(None),
        };
        match comparison.is_sweep() {
            true => {
                Err(Error::Usage(format!("--{}: one mask at a time, so no list and no each", kind.flag())))
            }
            false => Ok(Some(kind)),
        }
    }
}

impl Kind {
    fn flag(self) -> &'static str {
        match self {
            Kind::HellaSwag(_) => "hellaswag",
            Kind::Winogrande(_) => "winogrande",
            Kind::MultipleChoice(_) => "multiple-choice",
        }
    }

    /// The tasks of a file that are drawn.
    fn read(self, text: &TextArgs, tokenizer: &Tokenizer) -> Result<Vec<Task>> {
        let missing =
            || Error::Usage(format!("--{}: no tasks; name their file with -f FILE or -bf FILE", self.flag()));
        match self {
            Kind::HellaSwag(most) => {
                let all = hellaswag::read(&text.read()?.ok_or_else(missing)?)?;
                hellaswag::drawn(&all, most).iter().map(|question| question.task(tokenizer)).collect()
            }
            Kind::Winogrande(most) => {
                let all = winogrande::read(&text.read()?.ok_or_else(missing)?)?;
                for (line, what) in &all.left_out {
                    warning!("line {line} is left out, as llama-perplexity does: {what}");
                }
                winogrande::drawn(&all.sentences, most)
                    .iter()
                    .map(|sentence| sentence.task(tokenizer))
                    .collect()
            }
            Kind::MultipleChoice(most) => {
                let all = multiple_choice::read(&text.bytes()?.ok_or_else(missing)?, most)?;
                all.iter().map(|question| question.task(tokenizer)).collect()
            }
        }
    }
}

pub fn run(
    kind: Kind,
    text: &TextArgs,
    (model, tokenizer): (&Arc<Model>, &Tokenizer),
    context: &ContextArgs,
    comparison: &ComparisonArgs,
    json: bool,
) -> Result<()> {
    let tasks = kind.read(text, tokenizer)?;
    let mask = match comparison.read(model)? {
        Masks::One(one) => Some(one),
        _ => None,
    };
    let room = Room::of(&tasks);
    let mut config = context.config(model)?;
    config.n_ctx = context.ctx_size().filter(|&n| n != 0).unwrap_or(room.cells.max(DEFAULT_CELLS));
    config.sequences = room.sequences;
    // Texts are short, and each goes on from forks.
    config.swa_full = true;
    config.extra_slots = mask.as_ref().map_or(0, |mask| mask.mask.extra_repetitions());
    if context.device.dry_run(model, &config, None, json)? {
        return Ok(());
    }
    let basis = || context.device.basis(model, &config, None);
    let (mut context, took) = common::open_context(model, &config, &basis)?;
    note!("{}: {}; {took}; {}", model.name, context.describe(), count(tasks.len(), "task"));
    if let Some(mask) = &mask {
        super::mask_args::warn_of_coarse(&context, &mask.mask);
    }
    let interrupted = interrupt::flag();
    let bar = count_bar(tasks.len(), 0, "tasks");
    let layers = mask.as_ref().map(|mask| &mask.mask);
    let answers = score(&mut context, &tasks, layers, |done, _| {
        bar.set_position(done as u64);
        Ok(if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    bar.finish_and_clear();
    let done = &tasks[..answers.len()];
    if done.len() < tasks.len() {
        note!("interrupted after {} of {}", done.len(), count(tasks.len(), "task"));
    }
    let cost = mask.as_ref().map(|mask| context.mask_cost(&mask.mask));
    let report = Report { kind, tasks: done, answers: &answers, mask: mask.as_deref().zip(cost) };
    if !json {
        return common::print(report.text());
    }
    let all: Vec<u32> =
        tasks.iter().flat_map(|t| t.endings.iter().flat_map(|e| &e.tokens)).copied().collect();
    let mut provenance = common::provenance(&context, &config).text(&all);
    if let Some(mask) = &mask {
        provenance = provenance.mask(&mask.name, &mask.mask);
    }
    provenance.interrupted = done.len() < tasks.len();
    let mut out = report.json();
    out["tasks_asked"] = tasks.len().into();
    out["provenance"] = provenance.to_json();
    common::print_json(&out)
}

/// A share of tasks.
struct Share {
    of: usize,
    n: usize,
}

impl Share {
    fn value(&self) -> f64 {
        self.of as f64 / self.n as f64
    }

    fn percent(&self) -> String {
        let error = standard_error(self.value(), self.n);
        let error = if error.is_finite() { format!(" +/- {:.2}", 100.0 * error) } else { String::new() };
        format!("{:.2}{error} %", 100.0 * self.value())
    }

    fn text(&self) -> String {
        let interval = wilson(self.of, self.n);
        format!(
            "{} of {} right, {} (95 %: {:.2} to {:.2} %)",
            self.of,
            count(self.n, "task"),
            self.percent(),
            100.0 * interval.low,
            100.0 * interval.high
        )
    }

    fn json(&self) -> Value {
        let interval = wilson(self.of, self.n);
        json!({
            "n": self.of,
            "share": self.value(),
            "stderr": standard_error(self.value(), self.n),
            "interval": [interval.low, interval.high],
        })
    }
}

struct Report<'a> {
    kind: Kind,
    tasks: &'a [Task],
    answers: &'a [Answer],
    /// With the share of the model's bytes that it reads.
    mask: Option<(&'a NamedMask, f64)>,
}

impl Report<'_> {
    fn share(&self, counts: impl Fn(&Answer) -> bool) -> Share {
        Share { of: self.answers.iter().filter(|answer| counts(answer)).count(), n: self.answers.len() }
    }

    fn chance(&self) -> f64 {
        let endings: usize = self.tasks.iter().map(|task| task.endings.len()).sum();
        self.tasks.len() as f64 / endings as f64
    }

    fn text(&self) -> String {
        let name = self.kind.flag().replace('-', " ");
        let full = self.share(|answer| answer.full.right).text();
        let chance = format!("{:.2} % by chance", 100.0 * self.chance());
        let Some((mask, cost)) = self.mask else {
            return format!("{name}: {full}; {chance}\n");
        };
        let masked = self.share(|answer| masked(answer).right).text();
        let same = self.share(masked_agrees);
        format!(
            "{}{name}: {masked}; {chance}\nfull model: {full}\nsame choice in {} of {}, {}; bytes read {:.2} %\n",
            mask_line(&mask.name, &mask.mask.to_string()),
            same.of,
            count(same.n, "task"),
            same.percent(),
            100.0 * cost
        )
    }

    fn json(&self) -> Value {
        let each = self.tasks.iter().zip(self.answers).map(|(task, answer)| {
            let choice = |choice: &Choice| json!({"ending": choice.ending, "right": choice.right, "scores": choice.scores});
            let mut row = choice(answer.masked.as_ref().unwrap_or(&answer.full));
            row["task"] = task.number.into();
            if answer.masked.is_some() {
                row["full"] = choice(&answer.full);
            }
            row
        });
        let mut out = json!({"kind": self.kind.flag(), "tasks": self.answers.len(), "chance": self.chance()});
        let full = self.share(|answer| answer.full.right).json();
        match self.mask {
            None => out["right"] = full,
            Some((mask, cost)) => {
                out["mask"] = json!(mask.name);
                out["right"] = self.share(|answer| masked(answer).right).json();
                out["full_right"] = full;
                out["same_choice"] = self.share(masked_agrees).json();
                out["cost"] = json!(cost);
            }
        }
        out["answers"] = each.collect();
        out
    }
}

/// There is one where there is a mask.
fn masked(answer: &Answer) -> &Choice {
    answer.masked.as_ref().unwrap_or(&answer.full)
}

fn masked_agrees(answer: &Answer) -> bool {
    masked(answer).ending == answer.full.ending
}
