//! Sweeps of `spec-run perplexity`: several masks in one run, each beside the full model.

use std::{ops::ControlFlow, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    common, interrupt,
    output::note,
    progress,
    report_file::ReportFile,
    state::StateFile,
    sweep_table::{self, COLUMNS, Line, Table},
    sweep_times,
};
pub use crate::eval::sweep::make_room;
use crate::{
    Context, Error, Result, RunLayers,
    eval::{
        perplexity::{PerplexitySettings, count_chunks},
        sweep::{Step, Sweep, Swept, sweep},
    },
    files::write_whole,
    mask::skips::NamedMask,
    provenance::{Chunks, Provenance},
    report::sweep::{self as report, Across, Run},
    words::count,
};

/// The masks of a sweep.
#[derive(Clone, Debug)]
pub struct Over {
    /// What is swept; `report::labels` says what the labels are.
    pub name: &'static str,
    /// Numbers or a name, one for each label, and what runs.
    pub masks: Vec<(Vec<Value>, RunLayers)>,
}

impl Over {
    pub fn exits(n_layer: usize, exits: impl IntoIterator<Item = usize>) -> Self {
        let masks = exits.into_iter().map(|e| (vec![e.into()], RunLayers::exit(n_layer, e))).collect();
        Over { name: "exit", masks }
    }

    pub fn named(masks: Vec<NamedMask>) -> Self {
        let masks = masks.into_iter().map(|m| (vec![m.name.into()], m.mask)).collect();
        Over { name: "mask", masks }
    }

    /// All of them, to tell one sweep from another.
    pub fn spelled(&self) -> String {
        let label = |label: &[Value]| label.iter().map(Value::to_string).collect::<Vec<_>>().join("+");
        let each: Vec<String> =
            self.masks.iter().map(|(labels, mask)| format!("{}: {mask}", label(labels))).collect();
        format!("{} {}", self.name, each.join(" | "))
    }

    /// As they stand in the table.
    pub fn entries(&self, context: &Context) -> Vec<Entry> {
        self.masks.iter().map(|(label, mask)| Entry::new(label.clone(), mask, context)).collect()
    }

    /// K/V slots beyond the model's own.
    pub fn extra_slots(&self) -> usize {
        self.masks.iter().map(|(_, mask)| mask.extra_repetitions()).max().unwrap_or(0)
    }
}

/// What a table says of a mask besides its sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// As in [`Over::masks`].
    pub label: Vec<Value>,
    pub layers: Option<String>,
    /// Of the bytes that the full model reads for a token.
    pub cost: Option<f64>,
}

impl Entry {
    pub fn new(label: Vec<Value>, mask: &RunLayers, context: &Context) -> Self {
        Entry { label, layers: Some(mask.to_string()), cost: Some(context.mask_cost(mask)) }
    }
}

pub struct Job<'a> {
    pub over: &'a Over,
    pub csv: Option<&'a Path>,
    pub report: Option<&'a ReportFile>,
    pub json: bool,
    pub state: Option<StateFile>,
    pub provenance: Provenance,
}

pub fn run(job: Job, context: &mut Context, tokens: &[u32], settings: &PerplexitySettings) -> Result<()> {
    let masks: Vec<RunLayers> = job.over.masks.iter().map(|m| m.1.clone()).collect();
    let expected = count_chunks(tokens.len(), settings)?;
    let start: Sweep = job.state.as_ref().map_or(Ok(None), StateFile::recall)?.unwrap_or_default();
    if let Some(state) = &job.state {
        common::going_on(state, start.chunks, expected)?;
    }
    if job.over.name == "pair" {
        note!(
            "{} in {}: about {} times the work of the perplexity alone; --chunks N and shorter lists of layers make it less",
            count(masks.len(), "pair"),
            count(expected - start.chunks, "chunk"),
            work(masks.len()),
        );
    }
    let interrupted = interrupt::flag();
    let bar = progress::bar(1, "{bar:30} {pos}/{len} passes (masks times chunks), {eta} left");
    let swept = sweep(context, tokens, settings, &masks, start, |step| {
        match step {
            Step::Mask { done, all } => {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            }
            Step::Chunk(sums) => job.state.as_ref().map_or(Ok(()), |state| state.keep(sums))?,
        }
        Ok(if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    bar.finish_and_clear();
    if swept.chunks == 0 {
        return Err(Error::Input("interrupted before the first chunk was complete".into()));
    }
    if swept.chunks < expected {
        note!("{}", common::interrupted(swept.chunks, expected, job.state.is_some()));
    }
    // Whoever interrupts wants to leave: passes are timed only if there was time for everything else.
    let times = match interrupted() {
        true => None,
        false => {
            let accepted: Vec<f64> = swept.masks.iter().map(|m| m.acceptance(swept.tokens)).collect();
            sweep_times::time(context, &masks, &accepted, &tokens[..settings.n_ctx / 2])?
        }
    };
    let mut provenance = job.provenance;
    provenance.chunks = Some(Chunks { done: swept.chunks, of: expected });
    provenance.interrupted = interrupted();
    let lines = lines(&job.over.entries(context), &swept, times);
    let table = Table { over: job.over.name, sweep: &swept, lines, provenance };
    // One that fails costs nobody the others.
    let printed = if job.json { common::print_json(&table.json()) } else { common::print(table.text()) };
    let table_written = job.csv.map_or(Ok(()), |path| write_whole(path, table.csv()));
    let draw = |file: &ReportFile| write_whole(&file.path, picture(file, &table, job.over)?);
    let drawn = job.report.map_or(Ok(()), draw);
    table_written.and(drawn).and(printed)
}

/// From what `--json` writes, so that a page and a plot of the file are the same.
fn picture(file: &ReportFile, table: &Table, over: &Over) -> Result<String> {
    let runs = [Run::of_json(&table.json(), over.name)?];
    // Where labels are names, what they stand for is worth a map.
    let masks: Vec<(String, RunLayers)> = (over.masks.iter())
        .filter_map(|(label, mask)| Some((label.first()?.as_str()?.to_string(), mask.clone())))
        .collect();
    Ok(match file.is_page {
        true => {
            let meanings = sweep_table::meanings();
            report::html(&runs, Across::Label, &masks, &meanings, &file.related(".csv"))
        }
        false => report::svg(&runs, Across::Label, &masks),
    })
}

/// The table's lines; without times where nobody has measured them.
pub fn lines(entries: &[Entry], swept: &Sweep, times: Option<Vec<[f64; 3]>>) -> Vec<Line> {
    let n = swept.tokens;
    let times = times.unwrap_or_else(|| vec![[f64::NAN; 3]; entries.len()]);
    let line = |(entry, (m, [step, speedup, tok_s])): (&Entry, (&Swept, [f64; 3]))| {
        let values: [f64; COLUMNS.len()] = [
            m.nll.perplexity(n),
            m.nll.perplexity(n) - swept.full.perplexity(n),
            swept.difference_error(m).unwrap_or(f64::NAN),
            m.sums.agreement(n),
            m.sums.overlap(n),
            m.sums.kl(n),
            m.acceptance(n),
            entry.cost.unwrap_or(f64::NAN),
            step,
            speedup,
            tok_s,
        ];
        Line { label: entry.label.clone(), layers: entry.layers.clone().unwrap_or_default(), values }
    };
    entries.iter().zip(swept.masks.iter().zip(times)).map(line).collect()
}

/// What a sweep does, in evaluations of the text: the full model's, and of each mask one by itself and half of one for
/// drafts, which are judged where tokens are scored.
fn work(masks: usize) -> usize {
    1 + masks + masks.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_told_apart() {
        let [few, more] = [vec![3, 5], vec![3, 6]].map(|exits| Over::exits(8, exits).spelled());
        assert!(few != more && few.starts_with("exit 3: "), "{few}");
    }
}
