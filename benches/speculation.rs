//! Plain decoding against drafting with the program's defaults, in alternation:
//! `cargo bench --bench speculation -- [-n TOKENS] [--prompts COUNT] [--repeat TIMES] [RUN OPTIONS, as -m FILE,
//! --draft-skip FILE]`.
//!
//! Every prompt runs each way, in processes of their own as a user's runs are, and who goes first changes; a run may take
//! less than a tenth of a second, so with `--repeat` the table has medians of several. Texts must be the same; `ratio`
//! is that of decoding speeds, beside what the program itself predicted and measured.

use std::process::{Command, ExitCode};

use serde_json::Value;
use spec_run::bench::stats::Spread;

const PROMPTS: [&str; 20] = [
    "Once upon a time, there was a little girl named Lily.",
    "Tom had a big red ball.",
    "One day, a small bird fell from its nest.",
    "Mia and her mom went to the park.",
    "There was a dog who liked to dig.",
    "The sun was hot and Ben wanted to swim.",
    "A little mouse found a piece of cheese.",
    "Sara did not want to share her toys.",
    "In the forest lived an old bear.",
    "Max got a new bike for his birthday.",
    "It was raining and the children had to stay inside.",
    "Lucy saw something shiny in the grass.",
    "The cat sat on the wall and looked at the moon.",
    "Grandpa told Tim a story about a dragon.",
    "Anna wanted to bake a cake for her dad.",
    "A boy and a girl were building a castle in the sand.",
    "The little boat was lost at sea.",
    "Jack was afraid of the dark.",
    "Emma had a secret under her bed.",
    "The farmer had ten chickens and one very loud rooster.",
];

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let tokens = take(&mut args, "-n").unwrap_or(256);
    let prompts = take(&mut args, "--prompts").unwrap_or(PROMPTS.len()).min(PROMPTS.len());
    let repeat = take(&mut args, "--repeat").unwrap_or(1).max(1);
    let mut columns: [Vec<f64>; 5] = Default::default();
    let (mut rounds, mut drafted, mut accepted, mut made) = (0.0, 0.0, 0.0, 0.0);
    println!(
        "| prompt | plain tok/s | drafting tok/s | ratio | predicted | measured | tokens a round | accepted |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (i, prompt) in PROMPTS[..prompts].iter().enumerate() {
        let mut cells: [Vec<f64>; 7] = Default::default();
        for turn in 0..repeat {
            let run = |plain: bool| run(prompt, tokens, plain, &args);
            let (plain, spec) = if (i + turn) % 2 == 0 {
                let plain = run(true);
                (plain, run(false))
            } else {
                let spec = run(false);
                (run(true), spec)
            };
            assert_eq!(plain["tokens"], spec["tokens"], "drafting changed the text of prompt {i}");
            let number = |of: &Value, key: &str| of[key].as_f64();
            let (before, after, report) = (number(&plain, "tok_s"), number(&spec, "tok_s"), &spec["spec"]);
            let sum = |of: &Value, key: &str| number(of, key).unwrap_or(0.0);
            rounds += sum(report, "rounds");
            drafted += sum(report, "drafted");
            accepted += sum(report, "accepted");
            made += sum(&spec, "generated");
            let said = |key: &str| number(report, key);
            let ratio = after.zip(before).map(|(after, before)| after / before);
            let [predicted, measured] = ["predicted_speedup", "measured_speedup"].map(said);
            let (a_round, stood) = (said("tokens_per_round"), said("acceptance"));
            let values = [before, after, ratio, predicted, measured, a_round, stood];
            cells.iter_mut().zip(values).for_each(|(cell, value)| cell.extend(value));
        }
        let [before, after, ratio, predicted, measured, a_round, stood] =
            cells.map(|cell| (!cell.is_empty()).then(|| Spread::of(&cell).median));
        println!(
            "| {i} | {} | {} | {} | {} | {} | {} | {} % |",
            shown(before, 1),
            shown(after, 1),
            shown(ratio, 3),
            shown(predicted, 3),
            shown(measured, 3),
            shown(a_round, 2),
            shown(stood.map(|share| 100.0 * share), 0),
        );
        for (column, x) in columns.iter_mut().zip([before, after, ratio, predicted, measured]) {
            column.extend(x);
        }
    }
    let [plain, spec, ratio, predicted, measured] =
        columns.map(|column| (!column.is_empty()).then(|| Spread::of(&column)));
    let median = |spread: &Option<Spread>| spread.as_ref().map(|spread| spread.median);
    let (low, high) = (ratio.as_ref().map(|r| r.min), ratio.as_ref().map(|r| r.max));
    println!(
        "\nmedian of {prompts} prompts, {tokens} tokens: plain {}, drafting {} tok/s; ratio {} ({} to {}), predicted {}, measured {}; {:.0} % of {drafted} drafted accepted, {made} tokens in {rounds} rounds and the plain steps between",
        shown(median(&plain), 1),
        shown(median(&spec), 1),
        shown(median(&ratio), 3),
        shown(low, 3),
        shown(high, 3),
        shown(median(&predicted), 3),
        shown(median(&measured), 3),
        100.0 * accepted / f64::max(drafted, 1.0),
    );
    ExitCode::SUCCESS
}

fn shown(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".into(), |number| format!("{number:.digits$}"))
}

fn run(prompt: &str, tokens: usize, plain: bool, args: &[String]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spec-run"));
    command.args(["-p", prompt, "-n", &tokens.to_string(), "--temp", "0", "--ignore-eos", "--json"]);
    command.args(args);
    if plain {
        command.args(["--draft-max", "0"]);
    }
    let out = command.output().expect("the program starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("one JSON object")
}

/// The number behind a flag, both taken out.
fn take(args: &mut Vec<String>, flag: &str) -> Option<usize> {
    let at = args.iter().position(|a| a == flag)?;
    let value = args.get(at + 1)?.parse().ok()?;
    args.drain(at..at + 2);
    Some(value)
}
