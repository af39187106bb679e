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
    shard_lines::{self, Kind, Run, ShardLine, Sums, Unit},
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

/// Missing units that are named one by one.
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

/// The units of a run, with where they stand, by chunk and mask.
struct Group {
    run: Run,
    units: BTreeMap<(usize, usize), (ShardLine, String)>,
}

pub fn run(args: MergeArgs) -> Result<()> {
    if let Some(path) = &args.csv {
        common::check_overwrite(path, args.force, &args.files)?;
    }
    let groups = read(&args.files)?;
    groups.iter().try_for_each(Group::check_whole)?;
    let sweeps = groups.iter().all(|group| matches!(group.run.kind, Kind::Sweep(_)));
    if args.csv.is_some() && !(sweeps && groups.len() == 1) {
        return Err(Error::Usage(
            "--csv: for one table of several masks; these files have something else or more".into(),
        ));
    }
    let units: usize = groups.iter().map(|group| group.units.len()).sum();
    note!("{} of {}", count(units, "unit"), count(args.files.len(), "file"));
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
            let at = format!("{}:{number}", path.display());
            match groups.iter_mut().find(|group| group.run == line.run) {
                Some(group) => group.add(line, at)?,
                None => {
                    let run = line.run.clone();
                    let other = groups
                        .iter()
                        .find(|group| Run { version: run.version.clone(), ..group.run.clone() } == run);
                    if let Some(other) = other {
                        let (_, first) = other.units.values().next().expect("a group of a line");
                        return Err(Error::Input(format!(
                            "{first} and {at}: shards of one run by the versions {} and {}: run them with one version",
                            other.run.version, run.version
                        )));
                    }
                    groups.push(Group {
                        run,
                        units: BTreeMap::from([((line.unit.chunk, line.unit.mask), (line, at))]),
                    });
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
    /// Of what it is.
    fn name(&self) -> String {
        let Some((ShardLine { provenance, .. }, _)) = self.units.values().next() else {
            unreachable!("no empty group")
        };
        let over = match &self.run.kind {
            Kind::Sweep(over) => format!(", {} of {over}", count(self.run.masks, "mask")),
            Kind::Beside => format!(", {}", self.run.id.mask),
            Kind::Full => String::new(),
        };
        format!(
            "{} on text {} in chunks of {}{over}",
            provenance.model.name, self.run.id.text_hash, self.run.id.n_ctx
        )
    }

    fn add(&mut self, line: ShardLine, at: String) -> Result<()> {
        let key = (line.unit.chunk, line.unit.mask);
        if let Some((there, first)) = self.units.get(&key) {
            return match (&there.sums, &there.unit) == (&line.sums, &line.unit) {
                true => Ok(()),
                false => Err(differ(&line.unit, first, &at)),
            };
        }
        self.units.insert(key, (line, at));
        Ok(())
    }

    fn check_whole(&self) -> Result<()> {
        let Run { chunks, masks, .. } = self.run;
        let all = (1..=chunks).flat_map(|chunk| (1..=masks).map(move |mask| (chunk, mask)));
        let missing: Vec<_> = all.filter(|unit| !self.units.contains_key(unit)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let in_chunk = |chunk: usize| missing.iter().filter(|unit| unit.0 == chunk).count();
        let mut said: Vec<String> = Vec::new();
        for &(chunk, mask) in &missing {
            let what = match in_chunk(chunk) == masks {
                true => format!("chunk {chunk}"),
                false => format!("chunk {chunk} mask {mask}"),
            };
            if said.last() != Some(&what) {
                said.push(what);
            }
        }
        let more = said.len().saturating_sub(NAMED);
        said.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(Error::Input(format!(
            "{}: {} of {} missing: {}{more}; run the shards that have them",
            self.name(),
            missing.len(),
            count(chunks * masks, "unit"),
            said.join(", ")
        )))
    }

    fn print(&self, csv: Option<&Path>, json: bool) -> Result<()> {
        match &self.run.kind {
            Kind::Sweep(over) => {
                let sweep = self.sweep()?;
                let entries: Vec<Entry> = self.firsts().map(|unit| Entry::from(unit.clone())).collect();
                let lines = sweep::lines(&entries, &sweep, None);
                let table = Table { over, sweep: &sweep, lines, provenance: self.provenance() };
                let printed =
                    if json { common::print_json(&table.json()) } else { common::print(table.text()) };
                csv.map_or(Ok(()), |path| write_whole(path, table.csv()))?;
                printed
            }
            Kind::Full | Kind::Beside => {
                let tally = self.tally()?;
                let unit = self.firsts().next().expect("a whole group");
                let name = unit.label.first().and_then(|label| label.as_str()).unwrap_or_default();
                let scored = unit.cost.map(|cost| Scored { name, layers: unit.layers.clone(), cost });
                match json {
                    true => common::print_json(&json_of(&tally, scored.as_ref(), &self.provenance())),
                    false => common::print(text_of(&tally, scored.as_ref())),
                }
            }
        }
    }

    /// The masks, by the first chunk.
    fn firsts(&self) -> impl Iterator<Item = &Unit> {
        self.units.range((1, 1)..(2, 1)).map(|(_, (line, _))| &line.unit)
    }

    /// As that of the whole run, on all devices that there were.
    fn provenance(&self) -> Provenance {
        let mut lines = self.units.values().map(|(line, _)| &line.provenance);
        let first = lines.next().expect("no empty group");
        let mut devices: Vec<&str> = first.device.as_deref().into_iter().collect();
        for device in lines.filter_map(|other| other.device.as_deref()) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let chunks = Chunks { done: self.run.chunks, of: self.run.chunks };
        let device = (!devices.is_empty()).then(|| devices.join("; "));
        Provenance { device, chunks: Some(chunks), ..first.clone() }.command(std::env::args_os())
    }

    /// The sums of all chunks, added in their order, as the whole run adds them.
    fn tally(&self) -> Result<Tally> {
        let mut all = Tally::default();
        for (line, at) in self.units.values() {
            match &line.sums {
                Sums::Tally(tally) => all.add(tally),
                Sums::Sweep(_) => return Err(wrong_sums(at)),
            }
        }
        Ok(all)
    }

    fn sweep(&self) -> Result<Sweep> {
        let mut all = Sweep::default();
        for chunk in 1..=self.run.chunks {
            let mut whole: Option<(Sweep, &str)> = None;
            for (line, at) in self.units.range((chunk, 1)..(chunk + 1, 1)).map(|(_, found)| found) {
                let one = match &line.sums {
                    Sums::Sweep(one) if one.masks.len() == 1 => one,
                    _ => return Err(wrong_sums(at)),
                };
                let Some((sums, first)) = &mut whole else {
                    whole = Some((one.clone(), at));
                    continue;
                };
                // Each line has the full model's sums, which are those of all.
                if *one != (Sweep { masks: one.masks.clone(), ..sums.clone() }) {
                    return Err(differ(&line.unit, first, at));
                }
                sums.masks.extend(one.masks.iter().cloned());
            }
            if let Some((sums, _)) = whole {
                all.add(&sums);
            }
        }
        Ok(all)
    }
}

fn differ(unit: &Unit, first: &str, second: &str) -> Error {
    Error::Input(format!(
        "{first} and {second}: other numbers for chunk {}, mask {}: by another device or build; keep one of them",
        unit.chunk, unit.mask
    ))
}

fn wrong_sums(at: &str) -> Error {
    Error::Input(format!("{at}: sums of another kind than the line says; remove it, and run its shard again"))
}
