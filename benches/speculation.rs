//! Plain decoding against drafting with the program's defaults, in alternation:
//! `cargo bench --bench speculation -- [-n TOKENS] [--prompts COUNT] [--repeat TIMES] [RUN OPTIONS, as -m FILE,
//! --draft-skip FILE]`.
//!
//! Every prompt runs each way, in processes of their own as a user's runs are, and who goes first changes; a run may take
//! less than a tenth of a second, so with `--repeat` the table has medians of several. Texts must be the same; `ratio`
//! is that of decoding speeds, beside what the program itself predicted and measured.
//!
//! `--formula` holds the result against the cost model: `spec-run bench`, before and after the prompts, measures T(n) and
//! the mask's draft step c by themselves; the rounds that were made, at these costs, say how much faster the run should
//! have been. With `--draft-max K` and acceptance a per token that is `(1 + a + … + aᵏ) / (k·c + T(k+1))`.

use spec_run_tools::measure::stats::Spread;
use std::process::{Command, ExitCode};

use serde_json::Value;

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
    let formula = args.iter().position(|a| a == "--formula").map(|at| args.remove(at)).is_some();
    let tokens = take(&mut args, "-n").unwrap_or(256);
    let prompts = take(&mut args, "--prompts").unwrap_or(PROMPTS.len()).min(PROMPTS.len());
    let repeat = take(&mut args, "--repeat").unwrap_or(1).max(1);
    let mut columns: [Vec<f64>; 5] = Default::default();
    let (mut rounds, mut drafted, mut accepted, mut made) = (0.0, 0.0, 0.0, 0.0);
    let mut costs: Vec<Measured> = formula.then(|| Measured::by_bench(&args)).into_iter().collect();
    let mut work = Work::default();
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
            work.add(&plain, &spec);
            let (before, after, report) = (plain["tok_s"].as_f64(), spec["tok_s"].as_f64(), &spec["spec"]);
            rounds += number(report, "rounds");
            drafted += number(report, "drafted");
            accepted += number(report, "accepted");
            made += number(&spec, "generated");
            let reported = |key: &str| report[key].as_f64();
            let ratio = after.zip(before).map(|(after, before)| after / before);
            let [predicted, measured] = ["predicted_speedup", "measured_speedup"].map(reported);
            let (a_round, stood) = (reported("tokens_per_round"), reported("acceptance"));
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
    if formula {
        costs.push(Measured::by_bench(&args));
        work.against(&costs);
    }
    ExitCode::SUCCESS
}

/// What was done to generate all texts, and the seconds that it took each way.
#[derive(Default)]
struct Work {
    plain_seconds: f64,
    seconds: f64,
    /// Tokens after the first of each text, which comes from the prompt.
    tokens: f64,
    /// Draft steps.
    steps: f64,
    /// Passes by rows, from the first layer on and from where a draft's prefix of this share ended.
    passes: Vec<(usize, f64, f64)>,
}

impl Work {
    fn add(&mut self, plain: &Value, spec: &Value) {
        let tokens = number(spec, "generated") - 1.0;
        self.tokens += tokens;
        self.plain_seconds += tokens / number(plain, "tok_s");
        self.seconds += tokens / number(spec, "tok_s");
        let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
        let report = &spec["spec"];
        let looks_up = |source: &&Value| source["kind"] != "ngram";
        let sources = list(&report["sources"]);
        self.steps += sources.iter().filter(looks_up).map(|s| number(s, "drafted")).sum::<f64>();
        let share = sources.iter().find(|s| number(s, "resumed_rounds") > 0.0);
        let share = share.map_or(0.0, |s| number(&s["prefix"], "share"));
        for (passes, share) in [("verify", 0.0), ("resumed", share)] {
            for pass in list(&report[passes]) {
                self.passes.push((number(&pass, "n") as usize, number(&pass, "passes"), share));
            }
        }
    }

    fn against(&self, costs: &[Measured]) {
        let c = costs.iter().map(|m| m.draft).sum::<f64>() / costs.len() as f64;
        let rows = |n: usize| costs.iter().map(|m| m.rows(n)).sum::<f64>() / costs.len() as f64;
        let verifying =
            self.passes.iter().map(|&(n, count, share)| count * (share + (1.0 - share) * rows(n)));
        let predicted = self.tokens / (self.steps * c + verifying.sum::<f64>());
        let measured = self.plain_seconds / self.seconds;
        let curve: Vec<_> = [2, 3, 4, 5, 6, 8, 12, 16].map(|n| format!("T({n}) {:.2}", rows(n))).into();
        println!(
            "measured by themselves: c {c:.3}, {}; by the formula {predicted:.3} times plain; all texts together took 1/{measured:.3} of plain decoding's time: {:.3} of the prediction",
            curve.join(", "),
            measured / predicted
        );
    }
}

/// In plain steps.
struct Measured {
    draft: f64,
    curve: Vec<f64>,
}

impl Measured {
    /// Of the options for a run, those that say what is measured.
    fn by_bench(args: &[String]) -> Self {
        const KNOWN: [&str; 7] =
            ["-m", "-t", "--draft-skip", "--mask", "--skip-attn", "--skip-mlp", "--coarse"];
        let pairs = args.windows(2).filter(|pair| KNOWN.contains(&pair[0].as_str()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_spec-run"));
        command.args(["bench", "--prefill", "16", "--depths", "64", "-r", "3", "--json"]);
        pairs.for_each(|pair| {
            command.args(pair);
        });
        command.args(args.iter().filter(|arg| *arg == "--planes"));
        let report = object(&mut command);
        let ratios = report["curve"].as_array().into_iter().flatten().map(|row| number(row, "ratio"));
        Measured { draft: number(&report, "draft_cost"), curve: ratios.collect() }
    }

    fn rows(&self, n: usize) -> f64 {
        // The last slope goes on.
        let most = self.curve.len();
        let slope = self.curve[most - 1] - self.curve[most - 2];
        self.curve.get(n - 1).copied().unwrap_or(self.curve[most - 1] + slope * (n as f64 - most as f64))
    }
}

fn number(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap_or(0.0)
}

fn shown(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".into(), |number| format!("{number:.digits$}"))
}

fn run(prompt: &str, tokens: usize, plain: bool, args: &[String]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spec-run"));
    command.args(["-p", prompt, "-n", &tokens.to_string(), "--temp", "0", "--ignore-eos", "--json"]);
    let mut args = args.to_vec();
    if plain {
        take(&mut args, "--draft-max");
        args.extend(["--draft-max", "0"].map(String::from));
    }
    command.args(args);
    object(&mut command)
}

fn object(command: &mut Command) -> Value {
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
