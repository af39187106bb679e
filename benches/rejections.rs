//! What it costs to take back rejected tokens, beyond what a round with an accepted draft of the same length costs.
//! `cargo bench --bench rejections -- -m FILE [--depth TOKENS] [--rounds N]`.
//!
//! A round is the verification of k drafted tokens and what becomes of the text. By turns all of them stand, none does, or
//! all but the last; recurrent layers go through the rows that stand again. The texts are made up, and the same each way.
//! Beside the ratios of whole rounds, which rise and fall with the machine, stands what taking back adds to its own round.

mod common;

use std::{path::Path, process::ExitCode, sync::Arc, time::Instant};

use common::Flags;
use spec_run::{Batch, Context, ContextConfig, Gguf, Model, Result};
use spec_run_tools::measure::stats::Spread;

const DRAFTED: [u32; 5] = [1, 3, 7, 11, 15];

fn main() -> ExitCode {
    let mut flags = Flags::new();
    let model = flags.take("-m");
    let depth = flags.number("--depth").unwrap_or(64);
    let rounds = flags.number("--rounds").unwrap_or(9);
    let work = model.map(|model| move || run(Path::new(&model), depth, rounds));
    flags.run(work, "give -m FILE, and --depth TOKENS or --rounds N if you like")
}

fn run(path: &Path, depth: u32, rounds: u32) -> Result<()> {
    let model = Arc::new(Model::load(Arc::new(Gguf::open(path)?))?);
    println!(
        "{}, from {depth} tokens on; medians of {rounds} rounds, with the least and the most",
        model.name
    );
    println!("| drafted | all accepted, ms | none | taking back | all but one | taking back |");
    println!("|--:|--:|--:|--:|--:|--:|");
    let longest = depth + rounds * 3 * (DRAFTED[DRAFTED.len() - 1] + 1);
    let config = ContextConfig { n_ctx: longest, ..ContextConfig::default() };
    let mut context = Context::new(model, &config)?;
    for drafted in DRAFTED {
        let [mut all, mut none, mut most] = [const { Vec::<Round>::new() }; 3];
        context.remove_all();
        context.decode(&prompt(depth, 0))?;
        // The first round finds its threads asleep and its schedule unknown.
        round(&mut context, drafted, drafted)?;
        for n in 0..rounds {
            let mut ways = [(&mut all, drafted), (&mut none, 0), (&mut most, drafted - 1)];
            // Who comes behind whom changes.
            ways.rotate_left(n as usize % 3);
            for (times, accepted) in ways {
                times.push(round(&mut context, drafted, accepted)?);
            }
        }
        let total = |rounds: &[Round]| rounds.iter().map(Round::total).collect::<Vec<_>>();
        let all = total(&all);
        let over_all = |rounds: &[Round]| {
            let Spread { median, min, max } = Spread::of_ratios(&total(rounds), &all);
            let added: Vec<f64> = rounds.iter().map(|round| round.total() / round.verified).collect();
            format!("{median:.3} ({min:.3} to {max:.3}) | {:.3}", Spread::of(&added).median)
        };
        println!(
            "| {drafted} | {:.1} | {} | {} |",
            1e3 * Spread::of(&all).median,
            over_all(&none),
            over_all(&most)
        );
    }
    Ok(())
}

fn prompt(tokens: u32, from: u32) -> Batch {
    let tokens: Vec<u32> = (from..from + tokens).map(|pos| 3 + pos * 7 % 250).collect();
    Batch::prompt(&tokens, from, 0)
}

/// Seconds.
struct Round {
    verified: f64,
    taken_back: f64,
}

impl Round {
    fn total(&self) -> f64 {
        self.verified + self.taken_back
    }
}

/// So many of the drafted tokens stand, beside the one that verification always adds.
fn round(context: &mut Context, drafted: u32, accepted: u32) -> Result<Round> {
    let before = context.kv().len(0);
    let mut batch = prompt(drafted + 1, before as u32);
    batch.rows.iter_mut().for_each(|row| row.logits = true);
    let started = Instant::now();
    context.decode(&batch)?;
    let verified = started.elapsed().as_secs_f64();
    context.truncate(0, before + 1 + accepted as usize)?;
    Ok(Round { verified, taken_back: started.elapsed().as_secs_f64() - verified })
}
