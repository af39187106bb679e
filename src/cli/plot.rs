//! `spec-run plot`: what sweeps measured, several of them laid over each other.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    common,
    output::{note, warning},
    report_file::ReportFile,
    sweep_table,
};
use crate::{
    Error, Result,
    files::write_whole,
    report::{
        figure::COLORS,
        sweep::{self, Across, Run},
    },
    words::count,
};

/// Bytes of a sweep.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Args, Debug)]
pub struct PlotArgs {
    /// What `spec-run perplexity` wrote of sweeps with --json or --csv, or the masks of `spec-run search`
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where the picture goes: FILE.html with the numbers, or FILE.svg
    #[arg(short = 'o', long, value_name = "FILE", default_value = "plot.html")]
    output: ReportFile,
    /// What goes across: label (the layer, the exit, the mask's name), cost (the bytes that a pass reads), step (a draft
    /// step's time)
    #[arg(long, value_name = "NAME", default_value = "label")]
    x: X,
    /// Overwrite the picture if it is there
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum X {
    Label,
    Cost,
    Step,
}

impl From<X> for Across {
    fn from(x: X) -> Self {
        match x {
            X::Label => Across::Label,
            X::Cost => Across::Cost,
            X::Step => Across::Step,
        }
    }
}

pub fn run(args: PlotArgs) -> Result<()> {
    args.output.check("-o", args.force, &args.files)?;
    if args.files.len() > COLORS {
        return Err(Error::Usage(format!(
            "{} files: {COLORS} at most can be told apart in one picture",
            args.files.len()
        )));
    }
    let mut runs = Vec::new();
    for path in &args.files {
        let text = common::read_text(path, MOST_BYTES)?;
        runs.push(sweep::read(path, &text)?);
    }
    check_alike(&args, &runs)?;
    name_apart(&mut runs);
    if let Some(unlike) = sweep::unlike(&runs) {
        warning!("{unlike}");
    }
    let across = args.x.into();
    let picture = match args.output.is_page {
        true => sweep::html(&runs, across, &[], &sweep_table::meanings(), &args.output.related(".csv")),
        false => sweep::svg(&runs, across, &[]),
    };
    write_whole(&args.output.path, picture)?;
    let rows = runs.iter().map(|run| run.rows.len()).sum();
    note!("{}: {} of {}", args.output.path.display(), count(rows, "mask"), count(runs.len(), "sweep"));
    Ok(())
}

/// Marks are laid over each other only where they are of the same kind.
fn check_alike(args: &PlotArgs, runs: &[Run]) -> Result<()> {
    for (path, run) in args.files.iter().zip(runs) {
        let (path, first) = (path.display(), args.files[0].display());
        if run.over != runs[0].over {
            return Err(Error::Input(format!(
                "{path}: a sweep over `{}`, and {first} is one over `{}`: plot them one by one",
                crate::quoted::one_line(&run.over, 40),
                crate::quoted::one_line(&runs[0].over, 40)
            )));
        }
        if let Some(column) = Across::from(args.x).column().filter(|column| !run.has(column)) {
            return Err(Error::Input(format!("{path}: no mask has a `{column}`; give another --x")));
        }
        if !run.has_marks() {
            return Err(Error::Input(format!("{path}: no number that could be drawn")));
        }
    }
    Ok(())
}

/// By their models, or by their files where that is one model.
fn name_apart(runs: &mut [Run]) {
    if runs.len() == 1 {
        return;
    }
    let apart = |names: &[Option<String>]| {
        names.iter().enumerate().all(|(i, name)| name.is_some() && !names[..i].contains(name))
    };
    let models: Vec<Option<String>> = runs.iter().map(|run| run.model.clone()).collect();
    let files: Vec<Option<String>> = runs.iter().map(|run| Some(run.name.clone())).collect();
    let by_models = apart(&models);
    let by_files = apart(&files);
    for (i, run) in runs.iter_mut().enumerate() {
        match &models[i] {
            Some(model) if by_models => run.name = model.clone(),
            _ if by_files => {}
            _ => run.name = format!("{} ({})", run.name, i + 1),
        }
    }
}
