//! `spec-run perplexity --shard K/N`: a part of a score, for `spec-run merge`. Shard K does the chunks K, K + N, K + 2N and so
//! on, each under all masks, as these share the full model's pass.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;

use super::{
    common,
    comparison_args::Masks,
    interrupt,
    output::note,
    progress::count_bar,
    shard_lines::{self, Run, ShardLine, Sums},
    sweep::Entry,
};
use crate::{
    Context, Error, Result, RunLayers,
    eval::{
        perplexity::{PerplexitySettings, score_chunk},
        sweep::sweep_chunk,
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

pub fn run(job: Job, context: &mut Context, tokens: &[u32], settings: &PerplexitySettings) -> Result<()> {
    let Part { k, n } = job.part;
    let mut out = job.out.map(|path| Out::open(path, &job.run)).transpose()?;
    let is_done = |chunk: &usize| out.as_ref().is_some_and(|out| out.done.contains(chunk));
    let own = (k..=job.run.chunks).step_by(n);
    let all = own.clone().count();
    let chunks: Vec<usize> = own.filter(|chunk| !is_done(chunk)).collect();
    note!("shard {k} of {n}: {}, {} of them to do", count(all, "chunk"), chunks.len());
    let masks = entries(job.masks, context);
    let bar = count_bar(all, all - chunks.len(), "chunks");
    let mut finished = 0;
    for &chunk in &chunks {
        let Some(sums) = score(job.masks, context, tokens, settings, chunk - 1)? else { break };
        let line = ShardLine::new(job.run.clone(), masks.clone(), chunk, sums, job.provenance.clone()).text();
        match &mut out {
            Some(out) => out.write(&line)?,
            None => common::print(line)?,
        }
        finished += 1;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if finished < chunks.len() {
        let how = if job.out.is_some() { "; the same command goes on" } else { "" };
        note!("interrupted after {finished} of {}{how}", count(chunks.len(), "chunk"));
    }
    Ok(())
}

/// What is scored beside the full model.
fn entries(masks: &Masks, context: &Context) -> Vec<Entry> {
    match masks {
        Masks::None => Vec::new(),
        Masks::Mtp => {
            vec![Entry { label: vec!["mtp".into()], layers: None, cost: Some(context.mtp_cost()) }]
        }
        Masks::One(one) => vec![Entry::new(vec![one.name.clone().into()], &one.mask, context)],
        Masks::Several(over) => over.entries(context),
    }
}

/// The sums of a chunk; `None` if the run was interrupted.
fn score(
    masks: &Masks,
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    chunk: usize,
) -> Result<Option<Sums>> {
    let interrupted = interrupt::flag();
    if interrupted() {
        return Ok(None);
    }
    let Masks::Several(over) = masks else {
        return Ok(Some(Sums::Tally(score_chunk(context, tokens, settings, chunk)?)));
    };
    let masks: Vec<RunLayers> = over.masks.iter().map(|(_, mask)| mask.clone()).collect();
    let sweep = sweep_chunk(context, tokens, settings, &masks, chunk, |_| {
        Ok(if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok((sweep.masks.len() == masks.len()).then_some(Sums::Sweep(sweep)))
}

/// A file that gets further lines.
struct Out<'a> {
    path: &'a Path,
    file: File,
    /// The chunks of this run that it has already.
    done: HashSet<usize>,
}

impl<'a> Out<'a> {
    fn open(path: &'a Path, run: &Run) -> Result<Self> {
        let io = |e| Error::io(path, e);
        let (mut done, mut is_cut) = (HashSet::new(), false);
        if fs::metadata(path).is_ok_and(|found| found.is_file()) {
            let lines = shard_lines::read(path)?.into_iter().map(|(_, line)| line);
            done = lines.filter(|line| line.run == *run).map(|line| line.chunk).collect();
            is_cut = fs::read(path).map_err(io)?.last().is_some_and(|&byte| byte != b'\n');
        }
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(io)?;
        let mut out = Out { path, file, done };
        if is_cut {
            out.write("\n")?;
        }
        Ok(out)
    }

    /// In one go, so that a kill cuts one line at most.
    fn write(&mut self, line: &str) -> Result<()> {
        self.file.write_all(line.as_bytes()).map_err(|e| Error::io(self.path, e))
    }
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
