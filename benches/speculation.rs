//! Plain decoding against drafting with the program's defaults, in alternation:
//! `cargo bench --bench speculation -- [-n TOKENS] [--prompts COUNT] [RUN OPTIONS, as -m FILE, --draft-skip FILE]`.
//!
//! Every prompt runs once each way, in processes of their own as a user's runs are, and who goes first changes.
//! Texts must be the same; the table has the ratio of decoding speeds.

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
    let mut columns: [Vec<f64>; 3] = Default::default();
    let (mut rounds, mut drafted, mut accepted, mut made) = (0.0, 0.0, 0.0, 0.0);
    println!("| prompt | plain tok/s | drafting tok/s | ratio | tokens a round | accepted |");
    println!("|--:|--:|--:|--:|--:|--:|");
    for (i, prompt) in PROMPTS[..prompts].iter().enumerate() {
        let run = |plain: bool| run(prompt, tokens, plain, &args);
        let (plain, spec) = if i % 2 == 0 {
            let plain = run(true);
            (plain, run(false))
        } else {
            let spec = run(false);
            (run(true), spec)
        };
        assert_eq!(plain["tokens"], spec["tokens"], "drafting changed the text of prompt {i}");
        let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or(0.0);
        let (before, after, report) = (number(&plain, "tok_s"), number(&spec, "tok_s"), &spec["spec"]);
        rounds += number(report, "rounds");
        drafted += number(report, "drafted");
        accepted += number(report, "accepted");
        made += number(&spec, "generated");
        println!(
            "| {i} | {before:.1} | {after:.1} | {:.3} | {:.2} | {:.0} % |",
            after / before,
            number(report, "tokens_per_round"),
            100.0 * number(report, "acceptance")
        );
        for (column, x) in columns.iter_mut().zip([before, after, after / before]) {
            column.push(x);
        }
    }
    let [plain, spec, ratio] = columns.map(|column| Spread::of(&column));
    println!(
        "\nmedian of {prompts} prompts, {tokens} tokens: plain {:.1}, drafting {:.1} tok/s; ratio {:.3} ({:.3} to {:.3}); {:.0} % of {drafted} drafted accepted, {made} tokens in {rounds} rounds and the plain steps between",
        plain.median,
        spec.median,
        ratio.median,
        ratio.min,
        ratio.max,
        100.0 * accepted / f64::max(drafted, 1.0),
    );
    ExitCode::SUCCESS
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
