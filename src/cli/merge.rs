//! `spec-run merge`: the result of `spec-run perplexity`, from the lines of its shards.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    common,
    output::note,
    perplexity_report::{Scored, json_of, text_of},
    shard_lines::{self, Run, ShardLine, Sums},
    state::RunId,
    sweep::{self, Entry},
    sweep_table::Table,
};
use crate::{
    Error, Result,
    eval::{perplexity::Tally, sweep::Sweep},
    files::write_whole,
    provenance::{Chunks, Provenance},
    words::count,
};

/// Missing chunks that are named one by one.
const NAMED: usize = 8;

#[derive(Args, Debug)]
pub struct MergeArgs {
    /// Files that `spec-run perplexity --shard` has written, in any order
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the table of a sweep to FILE too, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Overwrite the file of --csv if it is there
    #[arg(long, requires = "csv")]
    force: bool,
    /// One JSON object on stdout instead of text; a line for each text, model and list of masks
    #[arg(long)]
    json: bool,
}

/// The chunks of a run, by number.
struct Group {
    run: Run,
    chunks: BTreeMap<usize, SourceLine>,
}

/// A line, and where it stands.
struct SourceLine {
    line: ShardLine,
    at: String,
}

pub fn run(args: MergeArgs) -> Result<()> {
    if let Some(path) = &args.csv {
        common::check_overwrite(path, args.force, &args.files)?;
    }
    let groups = read(&args.files)?;
    groups.iter().try_for_each(Group::check_whole)?;
    let is_table = matches!(groups.as_slice(), [Group { run: Run { over: Some(_), .. }, .. }]);
    if args.csv.is_some() && !is_table {
        return Err(Error::Usage(
            "--csv: for one table of several masks; these files have something else or more".into(),
        ));
    }
    let chunks: usize = groups.iter().map(|group| group.chunks.len()).sum();
    note!("{} of {}", count(chunks, "chunk"), count(args.files.len(), "file"));
    for (i, group) in groups.iter().enumerate() {
        if groups.len() > 1 && !args.json {
            common::print(format!("{}{}:\n", if i > 0 { "\n" } else { "" }, group.name()))?;
        }
        group.print(args.csv.as_deref(), args.json)?;
    }
    Ok(())
}

fn read(files: &[PathBuf]) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for path in files {
        for (number, line) in shard_lines::read(path)? {
            let source = SourceLine { line, at: format!("{}:{number}", path.display()) };
            match groups.iter_mut().find(|group| group.run == source.line.run) {
                Some(group) => group.add(source)?,
                None => {
                    groups.iter().try_for_each(|group| group.check_version(&source))?;
                    let chunks = BTreeMap::from([(source.line.chunk, source)]);
                    let run = chunks.values().next().expect("just put there").line.run.clone();
                    groups.push(Group { run, chunks });
                }
            }
        }
    }
    match groups.is_empty() {
        true => Err(Error::Input(format!("no lines of `spec-run perplexity --shard` in {}", names(files)))),
        false => Ok(groups),
    }
}

fn names(files: &[PathBuf]) -> String {
    let first = files.first().map(|path| path.display().to_string()).unwrap_or_default();
    if files.len() == 1 { first } else { format!("{first} and the others") }
}

impl Group {
    fn first(&self) -> &SourceLine {
        self.chunks.values().next().expect("no empty group")
    }

    /// Of what it is.
    fn name(&self) -> String {
        let ShardLine { provenance, masks, .. } = &self.first().line;
        let masks = match &self.run.over {
            Some(over) => format!(", {} of {over}", count(masks.len(), "mask")),
            None if masks.is_empty() => String::new(),
            None => format!(", {}", self.run.id.mask),
        };
        let RunId { text_hash, n_ctx, .. } = &self.run.id;
        format!("{} on text {text_hash} in chunks of {n_ctx}{masks}", provenance.model.name)
    }

    /// That a line of another run differs in more than the version.
    fn check_version(&self, other: &SourceLine) -> Result<()> {
        let (own, others) = (&self.run.version, &other.line.run.version);
        match (Run { version: others.clone(), ..self.run.clone() }) == other.line.run {
            true => Err(Error::Input(format!(
                "{} and {}: shards of one run by the versions {own} and {others}: run them with one version",
                self.first().at,
                other.at
            ))),
            false => Ok(()),
        }
    }

    fn add(&mut self, SourceLine { line, at }: SourceLine) -> Result<()> {
        match self.chunks.get(&line.chunk) {
            Some(there) if (&there.line.sums, &there.line.masks) != (&line.sums, &line.masks) => {
                Err(Error::Input(format!(
                    "{} and {at}: other numbers for chunk {}: by another device or build; keep one of them",
                    there.at, line.chunk
                )))
            }
            Some(_) => Ok(()),
            None => {
                self.chunks.insert(line.chunk, SourceLine { line, at });
                Ok(())
            }
        }
    }

    fn check_whole(&self) -> Result<()> {
        let missing: Vec<String> = (1..=self.run.chunks)
            .filter(|chunk| !self.chunks.contains_key(chunk))
            .map(|chunk| chunk.to_string())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let more = missing.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(Error::Input(format!(
            "{}: {} of {} missing: {}{more}; run the shards that have them",
            self.name(),
            missing.len(),
            count(self.run.chunks, "chunk"),
            missing[..missing.len().min(NAMED)].join(", ")
        )))
    }

    fn print(&self, csv: Option<&Path>, json: bool) -> Result<()> {
        let entries = &self.first().line.masks;
        match (self.sums(), &self.run.over) {
            (Sums::Sweep(sweep), over) => {
                let lines = sweep::lines(entries, &sweep, None);
                let over = over.as_deref().unwrap_or_default();
                let table = Table { over, sweep: &sweep, lines, provenance: self.provenance() };
                let printed =
                    if json { common::print_json(&table.json()) } else { common::print(table.text()) };
                csv.map_or(Ok(()), |path| write_whole(path, table.csv()))?;
                printed
            }
            (Sums::Tally(tally), _) => {
                let scored = entries.first().and_then(|Entry { label, layers, cost }| {
                    let name = label.first().and_then(|label| label.as_str()).unwrap_or_default();
                    Some(Scored { name, layers: layers.clone(), cost: (*cost)? })
                });
                match json {
                    true => common::print_json(&json_of(&tally, scored.as_ref(), &self.provenance())),
                    false => common::print(text_of(&tally, scored.as_ref())),
                }
            }
        }
    }

    /// As that of the whole run, on all devices that there were.
    fn provenance(&self) -> Provenance {
        let first = &self.first().line.provenance;
        let mut devices: Vec<&str> = Vec::new();
        for device in self.chunks.values().filter_map(|source| source.line.provenance.device.as_deref()) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let chunks = Chunks { done: self.run.chunks, of: self.run.chunks };
        let device = (!devices.is_empty()).then(|| devices.join("; "));
        Provenance { device, chunks: Some(chunks), ..first.clone() }.command(std::env::args_os())
    }

    /// The sums of all chunks, added in their order, as the whole run adds them.
    fn sums(&self) -> Sums {
        let (mut tally, mut sweep) = (Tally::default(), Sweep::default());
        for source in self.chunks.values() {
            match &source.line.sums {
                Sums::Tally(one) => tally.add(one),
                Sums::Sweep(one) => sweep.add(one),
            }
        }
        if self.run.over.is_some() { Sums::Sweep(sweep) } else { Sums::Tally(tally) }
    }
}
