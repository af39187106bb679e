//! Sweeps of `spec-run perplexity`: a table with each layer skipped, or each exit.

use std::{io::IsTerminal, ops::ControlFlow, path::Path};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::{common, interrupt, output::note};
pub use crate::eval::sweep::cells;
use crate::{
    Batch, Context, Error, Result, RunLayers,
    eval::{
        perplexity::{PerplexitySettings, count_chunks},
        sweep::{Sweep, sweep},
    },
    files::write_whole,
    search::{
        costs::{PassCosts, measure_masks},
        speed,
    },
};

/// The longest draft that is looked at for the speed of an exit.
const DRAFT_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
pub enum Over {
    /// Each layer skipped by itself: attention, MLP or both.
    Layers { attn: bool, mlp: bool },
    /// The first E layers for each E.
    Exits,
}

impl Over {
    /// What is numbered, and the number and mask of each.
    fn masks(self, n_layer: usize) -> Vec<(usize, RunLayers)> {
        match self {
            Over::Exits => (1..n_layer).map(|e| (e, RunLayers::exit(n_layer, e))).collect(),
            Over::Layers { attn, mlp } => (0..n_layer)
                .map(|layer| {
                    let mask = RunLayers::all(n_layer);
                    let mask = if attn { mask.skip_attn(layer) } else { mask };
                    (layer, if mlp { mask.skip_mlp(layer) } else { mask })
                })
                .collect(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Over::Exits => "exit",
            Over::Layers { attn: true, mlp: true } => "layer",
            Over::Layers { attn: true, .. } => "attn",
            Over::Layers { .. } => "mlp",
        }
    }
}

pub struct Job<'a> {
    pub over: Over,
    pub csv: Option<&'a Path>,
    pub json: bool,
}

/// A line of the table: numbers by the names of [`COLUMNS`], the first a count.
struct Line {
    number: usize,
    values: Vec<f64>,
}

/// Name, digits, and what it is.
const COLUMNS: [(&str, usize); 10] = [
    ("ppl", 4),
    ("delta_ppl", 4),
    ("agreement", 4),
    ("overlap", 4),
    ("kl", 4),
    // Of a draft's first token, which sees the full model's keys and values.
    ("acceptance", 4),
    // Of the bytes that a full step reads.
    ("cost", 4),
    // Of the time of a full step.
    ("step", 4),
    // Of drafting with this mask, by acceptance, step and verification.
    ("speedup", 3),
    ("tok_s", 1),
];

pub fn run(job: &Job, context: &mut Context, tokens: &[u32], settings: &PerplexitySettings) -> Result<()> {
    let masks = job.over.masks(context.model().plan.dims.n_layer);
    if masks.is_empty() {
        return Err(Error::Usage("--exit each: a model of one layer has no exits".into()));
    }
    let runs: Vec<RunLayers> = masks.iter().map(|m| m.1.clone()).collect();
    let expected = count_chunks(tokens.len(), settings)?;
    let interrupted = interrupt::flag();
    let bar = progress();
    let swept = sweep(context, tokens, settings, &runs, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.finish_and_clear();
    if swept.chunks == 0 {
        return Err(Error::Input("interrupted before the first chunk was complete".into()));
    }
    if swept.chunks < expected {
        note!("interrupted after {} of {expected} chunks", swept.chunks);
    }
    let lines = lines(context, &masks, &swept, &tokens[..settings.n_ctx / 2])?;
    if let Some(path) = job.csv {
        write_whole(path, csv(job.over, &lines))?;
    }
    if job.json {
        return common::print_json(&as_json(job.over, &swept, &lines));
    }
    common::print(table(job.over, &swept, &lines))
}

/// Times the masks' steps behind `prefix`, and puts everything together.
fn lines(
    context: &mut Context,
    masks: &[(usize, RunLayers)],
    swept: &Sweep,
    prefix: &[u32],
) -> Result<Vec<Line>> {
    context.remove(0);
    context.decode(&Batch::prompt(prefix, 0, 0))?;
    let place = (0, prefix.len());
    let costs = PassCosts::measure(context, place, DRAFT_MAX + 1, false)?;
    let runs: Vec<RunLayers> = masks.iter().map(|m| m.1.clone()).collect();
    let steps = measure_masks(context, place, &runs)?;
    let n = swept.tokens;
    let line = |((number, mask), (m, step)): (&(usize, RunLayers), (&_, f64))| {
        let m: &crate::eval::sweep::Swept = m;
        let acceptance = m.acceptance(n);
        let best = costs.best(|k| speed::tokens_if_independent(acceptance, k), step, costs.prefix(mask));
        let values = vec![
            m.nll.perplexity(n),
            m.nll.perplexity(n) - swept.full.perplexity(n),
            m.sums.agreement(n),
            m.sums.overlap(n),
            m.sums.kl(n),
            acceptance,
            context.mask_cost(mask),
            step,
            best.speedup,
            best.speedup / costs.step_seconds,
        ];
        Line { number: *number, values }
    };
    Ok(masks.iter().zip(swept.masks.iter().zip(steps)).map(line).collect())
}

fn table(over: Over, swept: &Sweep, lines: &[Line]) -> String {
    let mut out = format!(
        "full model: perplexity {:.4} +/- {:.5} ({} chunks, {} tokens)\n{:>5}",
        swept.full.perplexity(swept.tokens),
        swept.full.standard_error(swept.tokens),
        swept.chunks,
        swept.tokens,
        over.name()
    );
    for (name, _) in COLUMNS {
        out += &format!(" {:>10}", name.replace("delta_", "Δ "));
    }
    out += "\n";
    for line in lines {
        out += &format!("{:5}", line.number);
        for (value, (_, digits)) in line.values.iter().zip(COLUMNS) {
            out += &format!(" {value:10.digits$}");
        }
        out += "\n";
    }
    out
}

fn csv(over: Over, lines: &[Line]) -> String {
    let names: Vec<&str> = std::iter::once(over.name()).chain(COLUMNS.map(|c| c.0)).collect();
    let mut out = names.join(",") + "\n";
    for line in lines {
        let values: Vec<String> = line.values.iter().map(f64::to_string).collect();
        out += &format!("{},{}\n", line.number, values.join(","));
    }
    out
}

fn as_json(over: Over, swept: &Sweep, lines: &[Line]) -> Value {
    let rows = lines.iter().map(|line| {
        let mut row = json!({over.name(): line.number});
        for ((name, _), value) in COLUMNS.iter().zip(&line.values) {
            row[*name] = json!(value);
        }
        row
    });
    json!({
        "base_ppl": swept.full.perplexity(swept.tokens),
        "stderr": swept.full.standard_error(swept.tokens),
        "chunks": swept.chunks,
        "tokens": swept.tokens,
        "sweep": over.name(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} masks, {eta} left");
    ProgressBar::new(1).with_style(style.expect("a valid template"))
}
