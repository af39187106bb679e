//! A model with experts that is larger than RAM, in two ways by turns:
//! `cargo bench --bench experts -- -m FILE --ram BYTES [-n TOKENS] [--rounds N]`.
//!
//! What every token reads is in RAM, and as many experts as there is room for. The others come from the file: *by choice*,
//! all that a token needs of a layer asked for as soon as the router has chosen; or *by page faults*, each page when
//! somebody comes to it. Both let go of what they have used, so that it comes from the disk every time. All texts must be
//! the same.

mod common;

use std::{fs::File, path::Path, process::ExitCode, sync::Arc};

use common::{Flags, text};
use spec_run::placement::Basis;
use spec_run::{
    Context, ContextConfig, Error, Gguf, Model, Result, Tokenizer,
    context::Spent,
    placement::{Place, PlacementRequest, Unit},
};
use spec_run_runtime::plan_elsewhere;
use spec_run_tools::measure::stats::Spread;

const WAYS: [(&str, bool); 2] = [("by choice", true), ("by page faults", false)];

fn main() -> ExitCode {
    let mut flags = Flags::new();
    let (model, ram) = (flags.take("-m"), flags.number("--ram"));
    let tokens = flags.number("-n").unwrap_or(16);
    let rounds = flags.number("--rounds").unwrap_or(5);
    let work = model.zip(ram).map(|(model, ram)| move || run(Path::new(&model), ram, tokens, rounds));
    flags.run(work, "give -m FILE and --ram BYTES, and -n TOKENS or --rounds N if you like")
}

/// A map of its own for each way: what the system is told of one is not to count for the other.
fn open(path: &Path, ram: u64, read_chosen: bool) -> Result<Context> {
    let model = Arc::new(Model::load(Arc::new(Gguf::open(path)?))?);
    let placement = PlacementRequest { ram: Some(ram), ..PlacementRequest::default() };
    Context::new(model, &ContextConfig { n_ctx: 512, placement, read_chosen, ..ContextConfig::default() })
}

fn run(path: &Path, ram: u64, tokens: usize, rounds: usize) -> Result<()> {
    // What was just written is not on the disk yet, and stays in memory until it is.
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|source| Error::Io { path: path.display().to_string(), source })?;
    let mut ways = Vec::new();
    for (name, read_chosen) in WAYS {
        ways.push((name, open(path, ram, read_chosen)?, Vec::new(), Spent::default()));
    }
    let model = ways[0].1.model().clone();
    model.gguf.tensors().iter().for_each(|tensor| model.gguf.evict(tensor, 0..tensor.bytes as usize));
    let tokenizer = Tokenizer::from_gguf(&model.gguf)?;
    say_what_is_expected(&model, ram)?;
    let mut same = None;
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let way = if round % 2 == 0 { turn } else { ways.len() - 1 - turn };
            let (name, context, rates, spent) = &mut ways[way];
            context.remove(0);
            let before = context.spent();
            let made = text(context, &tokenizer, tokens)?;
            spent.add(context.spent().since(before));
            assert_eq!(*same.get_or_insert_with(|| made.tokens.clone()), made.tokens, "{name}");
            rates.push(made.steps as f64 / made.decode_seconds);
            eprintln!("round {round}, {name}: {:.3} tok/s", rates[rates.len() - 1]);
        }
    }
    println!("| | tok/s | range | where the time goes |\n|:--|--:|--:|:--|");
    for (name, _, rates, spent) in &ways {
        let Spread { median, min, max } = Spread::of(rates);
        println!("| {name} | {median:.3} | {min:.3} to {max:.3} | {spent} |");
    }
    let Spread { median, min, max } = Spread::of_ratios(&ways[0].2, &ways[1].2);
    println!("\nby choice over by page faults, round by round: {median:.2} ({min:.2} to {max:.2})");
    Ok(())
}

/// What lies where, and the bound that reading sets.
fn say_what_is_expected(model: &Arc<Model>, ram: u64) -> Result<()> {
    let basis = common::speeds(model)?;
    let placement = PlacementRequest { ram: Some(ram), ..PlacementRequest::default() };
    let config = ContextConfig { n_ctx: 512, placement, ..ContextConfig::default() };
    let plans = plan_elsewhere(model, &config, basis)?;
    let bytes = |place: Place, experts: bool| {
        let parts = plans
            .chosen
            .parts
            .iter()
            .filter(|(part, at)| *at == place && matches!(part.unit, Unit::Experts(_)) == experts);
        parts.map(|(part, _)| part.bytes).sum::<u64>() as f64 / 1e9
    };
    println!(
        "in RAM: {:.2} GB that every token reads, {:.2} GB of experts; in the file: {:.2} GB of experts and {:.2} GB of other things",
        bytes(Place::Ram, false),
        bytes(Place::Ram, true),
        bytes(Place::File, true),
        bytes(Place::File, false),
    );
    println!("predicted: {:.3} tok/s, {}\n", plans.forecast().plain.tokens_per_second(), speeds(&basis));
    Ok(())
}

fn speeds(basis: &Basis) -> String {
    format!("by {:.1} GB/s from RAM and {:.2} from the file", basis.ram.value / 1e9, basis.file.value / 1e9)
}
