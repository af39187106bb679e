//! `spec-run perplexity --shard K/N`: a part of a score, for `spec-run merge`. Shard K does the chunks K, K + N, K + 2N and so
//! on, each under all masks, as these share the full model's pass.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;

use super::{
    beside_args::Masks,
    common, interrupt,
    output::note,
    perplexity_report::progress,
    shard_lines::{self, Kind, Run, ShardLine, Sums, Unit},
    sweep::Entry,
};
use crate::{
    Context, Error, Result, RunLayers,
    eval::{
        perplexity::{PerplexitySettings, score_chunk},
        sweep::{Sweep, sweep_chunk},
    },
    provenance::Provenance,
    words::count,
};

#[derive(Args, Clone, Debug)]
pub struct ShardArgs {
    /// Score the chunks K, K+N, K+2N .. only, and write lines of JSON that `spec-run merge` makes the whole result of
    #[arg(long, value_name = "K/N")]
    #[arg(conflicts_with_all = ["csv", "report", "base", "kl_divergence", "force", "resume", "json"])]
    #[arg(conflicts_with_all = ["hellaswag", "winogrande", "multiple_choice"])]
    pub shard: Option<Part>,
    /// Append the lines of --shard to FILE, and leave out what it has already [default: standard output]
    #[arg(long, value_name = "FILE", requires = "shard")]
    pub out: Option<PathBuf>,
}

/// The `k`-th of `n` shards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    k: usize,
    n: usize,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((k, n)) if (1..=n).contains(&k) => Ok(Part { k, n }),
            _ => Err("give K/N, the K-th of N shards: 1/4, 2/4, 3/4 and 4/4 are all of four".into()),
        }
    }
}

pub struct Job<'a> {
    pub part: Part,
    pub out: Option<&'a Path>,
    pub run: Run,
    pub masks: &'a Masks,
    pub provenance: Provenance,
}

impl Kind {
    pub fn of(masks: &Masks) -> Self {
        match masks {
            Masks::None => Kind::Full,
            Masks::One(_) | Masks::Ahead => Kind::Beside,
            Masks::Several(over) => Kind::Sweep(over.name.into()),
        }
    }
}

pub fn run(job: Job, context: &mut Context, tokens: &[u32], settings: &PerplexitySettings) -> Result<()> {
    let Part { k, n } = job.part;
    let entries = entries(job.masks, context);
    let done = job.out.map_or(Ok(HashSet::new()), |path| done(path, &job.run))?;
    let mut out = job.out.map(append).transpose()?;
    let chunks: Vec<usize> = (k..=job.run.chunks).step_by(n).collect();
    let left = |chunk: usize| -> Vec<usize> {
        (1..=entries.len()).filter(|&mask| !done.contains(&(chunk, mask))).collect()
    };
    let (all, to_do) = (chunks.len(), chunks.iter().filter(|&&chunk| !left(chunk).is_empty()).count());
    note!("shard {k} of {n}: {}, {} of them to do", count(all, "chunk"), to_do);
    let interrupted = interrupt::flag();
    let bar = progress(all, all - to_do, "chunks");
    let mut finished = 0;
    for chunk in chunks {
        let masks = left(chunk);
        if masks.is_empty() {
            continue;
        }
        if interrupted() {
            break;
        }
        let sums = score(job.masks, &masks, context, tokens, settings, chunk - 1, interrupted)?;
        finished += usize::from(sums.len() == masks.len());
        let line = |(&mask, sums): (&usize, Sums)| {
            let Entry { label, layers, cost } = entries[mask - 1].clone();
            let unit = Unit { chunk, mask, label, layers, cost };
            ShardLine::new(job.run.clone(), unit, sums, job.provenance.clone()).text()
        };
        let lines: String = masks.iter().zip(sums).map(line).collect();
        match (&mut out, job.out) {
            // In one go, so that a kill cuts one line at most.
            (Some(file), Some(path)) => file.write_all(lines.as_bytes()).map_err(|e| Error::io(path, e))?,
            _ => common::print(lines)?,
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if finished < to_do {
        let how = if job.out.is_some() { "; the same command goes on" } else { "" };
        note!("interrupted after {finished} of {}{how}", count(to_do, "chunk"));
    }
    Ok(())
}

/// What is scored beside the full model; one entry for the full model alone.
fn entries(masks: &Masks, context: &Context) -> Vec<Entry> {
    match masks {
        Masks::None => vec![Entry { label: Vec::new(), layers: None, cost: None }],
        Masks::Ahead => {
            vec![Entry { label: vec!["mtp".into()], layers: None, cost: Some(context.ahead_cost()) }]
        }
        Masks::One(one) => vec![Entry::new(vec![one.name.clone().into()], &one.mask, context)],
        Masks::Several(over) => over.entries(context),
    }
}

/// The sums of a chunk: of each mask, or fewer if the run was interrupted.
fn score(
    masks: &Masks,
    left: &[usize],
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    chunk: usize,
    interrupted: impl Fn() -> bool,
) -> Result<Vec<Sums>> {
    let Masks::Several(over) = masks else {
        return Ok(vec![Sums::Tally(score_chunk(context, tokens, settings, chunk)?)]);
    };
    let masks: Vec<RunLayers> = left.iter().map(|&mask| over.masks[mask - 1].1.clone()).collect();
    let all = sweep_chunk(context, tokens, settings, &masks, chunk, |_| {
        Ok(if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let one = |mask| Sums::Sweep(Sweep { masks: vec![mask], ..all.clone() });
    Ok(all.masks.iter().cloned().map(one).collect())
}

/// The units of this run that a file has already.
fn done(path: &Path, run: &Run) -> Result<HashSet<(usize, usize)>> {
    if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return Ok(HashSet::new());
    }
    let lines = shard_lines::read(path)?.into_iter().filter(|(_, line)| line.run == *run);
    Ok(lines.map(|(_, line)| (line.unit.chunk, line.unit.mask)).collect())
}

/// Opens a file for further lines; one that was cut off is ended.
fn append(path: &Path) -> Result<File> {
    let io = |e| Error::io(path, e);
    if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return OpenOptions::new().append(true).create(true).open(path).map_err(io);
    }
    let mut file = OpenOptions::new().append(true).read(true).open(path).map_err(io)?;
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_exact(&mut last).map_err(io)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n").map_err(io)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!("3/4".parse(), Ok(Part { k: 3, n: 4 }));
        for wrong in ["0/4", "5/4", "1/0", "1", "a/b", "1/4/2", "-1/4", ""] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
