//! A model larger than RAM, three ways in one run:
//! `cargo bench --bench out_of_core -- -m FILE --ram BYTES [-n TOKENS] [--only plain,drafting,placed]`.
//!
//! *plain*: the first layers in RAM, the rest read from the file for each token. *drafting*: the same places, and the
//! model drafts for itself. *placed*: what the draft runs is in RAM, so only verifications read the file. What drafts is
//! what the file says may be skipped, as `spec-run synth --skippable LAYERS --epsilon E` writes it. What is read from the
//! file is let go of behind each pass, so that it comes from the disk every time. All texts must be the same.

mod common;

use std::{ops::ControlFlow, path::Path, process::ExitCode, sync::Arc};

use common::{Flags, PROMPT, greedy, request, speeds, text};
use spec_run::{
    Context, ContextConfig, Gguf, Model, Result, RunLayers, Tokenizer,
    context::Spent,
    generate::{Generation, Speculation, speculate},
    gguf::{Array, Value},
    placement::{Place, PlacementRequest, Unit},
    speculation::{MaskProposer, Proposer, Report, TARGET, learned},
    tokenizer::EncodeOptions,
};
use spec_run_runtime::placement::forecast::COLUMNS as COLUMNS_OF_FORECAST;
use spec_run_runtime::plan_elsewhere;

const COLUMNS: [&str; 3] = ["plain", "drafting", "placed"];

fn main() -> ExitCode {
    let mut flags = Flags::new();
    let (model, ram) = (flags.take("-m"), flags.number("--ram"));
    let tokens = flags.number("-n").unwrap_or(24);
    let only = flags.take("--only").unwrap_or_else(|| COLUMNS.join(","));
    let work = model.zip(ram).map(|(model, ram)| move || run(Path::new(&model), ram, tokens, &only));
    flags.run(work, "give -m FILE and --ram BYTES, and -n TOKENS or --only COLUMNS if you like")
}

fn run(path: &Path, ram: u64, tokens: usize, only: &str) -> Result<()> {
    let gguf = Arc::new(Gguf::open(path)?);
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let mask = skippable(&model);
    let config = |placed: bool| {
        let placement = PlacementRequest {
            ram: Some(ram),
            draft: placed.then(|| mask.clone()),
            ..PlacementRequest::default()
        };
        ContextConfig { n_ctx: 512, placement, ..ContextConfig::default() }
    };
    let plans = plan_elsewhere(&model, &config(true), speeds(&model)?)?;
    println!("predicted:\n{COLUMNS_OF_FORECAST}{}\n", plans.forecast());
    println!("| | tok/s | times plain | accepted | in RAM | in the file | drafting | verifying |");
    println!("|:--|--:|--:|--:|--:|--:|:--|:--|");
    let mut first: Option<(f64, Vec<u32>)> = None;
    for name in COLUMNS.into_iter().filter(|name| only.split(',').any(|o| o == *name)) {
        let mut context = Context::new(model.clone(), &config(name == "placed"))?;
        let drafts = (name != "plain").then(|| mask.clone());
        let (made, report) = decode(&mut context, &tokenizer, tokens, drafts)?;
        let rate = made.steps as f64 / made.decode_seconds;
        let (plain, text) = first.get_or_insert_with(|| (rate, made.tokens.clone()));
        assert_eq!(*text, made.tokens, "{name}: drafting and placement must not change the text");
        let gb = |wanted: Place| {
            let here = context
                .placement()
                .parts
                .iter()
                .filter(|(p, place)| *place == wanted && p.unit != Unit::Embed);
            format!("{:.2} GB", here.map(|(part, _)| part.bytes).sum::<u64>() as f64 / 1e9)
        };
        let row = [
            name.to_string(),
            format!("{rate:.3}"),
            format!("{:.2}", rate / *plain),
            report.drafting.acceptance().map_or("-".into(), |a| format!("{:.0} %", 100.0 * a)),
            gb(Place::Ram),
            gb(Place::File),
            where_of(report.draft_spent),
            where_of(report.verify_spent),
        ];
        println!("| {} |", row.join(" | "));
        eprintln!("{name}: {:.1} s of decoding {:?}\n{report}", made.decode_seconds, made.tokens);
    }
    Ok(())
}

fn decode(
    context: &mut Context,
    tokenizer: &Tokenizer,
    tokens: usize,
    mask: Option<RunLayers>,
) -> Result<(Generation, Report)> {
    let Some(mask) = mask else {
        let made = text(context, tokenizer, tokens)?;
        let mut report = Report::off("plain");
        report.verify_spent = context.spent();
        return Ok((made, report));
    };
    let mut proposers: [Box<dyn Proposer>; 1] = [Box::new(MaskProposer::new("skippable", mask.clone()))];
    let infos = [proposers[0].info(context)];
    let mut controller = learned::prepare(context, TARGET, &infos, &[Some(mask)], None)?;
    let mut speculation = Speculation { proposers: &mut proposers, policy: &mut controller };
    let prompt = tokenizer.encode(PROMPT, EncodeOptions { add_special: true, parse_special: false });
    let request = request(&prompt, tokens);
    let go_on = |_| Ok(ControlFlow::Continue(()));
    speculate(context, tokenizer, &mut greedy()?, &request, &mut speculation, go_on)
}

/// The layers that the file says may be skipped, or else every other one.
fn skippable(model: &Model) -> RunLayers {
    let n_layer = model.n_layer();
    let listed = |part: &str| match model.gguf.metadata().get(&format!("spec_run.skippable.{part}")) {
        Some(Value::Array(Array::U32(layers))) => {
            Some(layers.iter().map(|&l| l as usize).collect::<Vec<_>>())
        }
        _ => None,
    };
    let others = || (1..n_layer).step_by(2).collect::<Vec<_>>();
    let (attn, mlp) = match (listed("attn"), listed("mlp")) {
        (None, None) => (others(), others()),
        (attn, mlp) => (attn.unwrap_or_default(), mlp.unwrap_or_default()),
    };
    let mask = attn.into_iter().fold(RunLayers::all(n_layer), RunLayers::skip_attn);
    mlp.into_iter().fold(mask, RunLayers::skip_mlp)
}

fn where_of(spent: Spent) -> String {
    if spent.total() == 0.0 { "-".into() } else { spent.to_string() }
}
