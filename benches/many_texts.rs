//! A pass over one row of each of many texts: what it takes by the number of texts, and whether it matters how their cells lie.
//! `cargo bench --bench many_texts -- -m FILE [--depth TOKENS] [--rounds N]`.
//!
//! The same texts lie in the cache in two ways by turns: *in runs*, one behind the other, as prompts do; and *mixed*, the n-th
//! tokens of all texts side by side, as texts do that grew together. Their rows must be the same to the bit.

mod common;

use std::{path::Path, process::ExitCode, sync::Arc, time::Instant};

use common::Flags;
use spec_run::{Batch, Context, ContextConfig, Gguf, Model, Result, scores::Want};

const TEXTS: [usize; 8] = [1, 2, 4, 8, 16, 24, 32, 64];

fn main() -> ExitCode {
    let mut flags = Flags::new();
    let model = flags.take("-m");
    let depth = flags.number("--depth").unwrap_or(256);
    let rounds = flags.number("--rounds").unwrap_or(5);
    let work = model.map(|model| move || run(Path::new(&model), depth, rounds));
    flags.run(work, "give -m FILE, and --depth TOKENS or --rounds N if you like")
}

fn run(path: &Path, depth: u32, rounds: usize) -> Result<()> {
    let model = Arc::new(Model::load(Arc::new(Gguf::open(path)?))?);
    println!("{}, {depth} tokens of each text; medians of {rounds} rounds", model.name);
    println!("| texts | in runs, ms | mixed, ms | mixed / in runs | over one text |");
    println!("|--:|--:|--:|--:|--:|");
    let mut alone = None;
    for texts in TEXTS {
        let n_ctx = (depth + 1) * texts as u32;
        let config = ContextConfig { n_ctx, sequences: texts + 1, ..ContextConfig::default() };
        let mut context = Context::new(model.clone(), &config)?;
        let (mut runs, mut mixed, mut bits) = (Vec::new(), Vec::new(), Vec::new());
        for (layout, times) in [(Layout::Runs, &mut runs), (Layout::Mixed, &mut mixed)] {
            fill(&mut context, texts as u32, depth, layout)?;
            // The first pass finds its threads asleep and its schedule unknown.
            let _ = pass(&mut context, texts as u32, depth)?;
            for _ in 0..rounds {
                times.push(pass(&mut context, texts as u32, depth)?);
            }
            bits.push(scores(&mut context, texts as u32, depth)?);
        }
        assert_eq!(bits[0], bits[1], "the rows depend on how cells lie");
        let (runs, mixed) = (median(runs), median(mixed));
        let one = *alone.get_or_insert(runs);
        println!("| {texts} | {runs:.1} | {mixed:.1} | {:.2} | {:.2} |", mixed / runs, runs / one);
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Layout {
    Runs,
    Mixed,
}

fn token(text: u32, pos: u32) -> u32 {
    3 + (pos * 7 + text * 31) % 250
}

fn fill(context: &mut Context, texts: u32, depth: u32, layout: Layout) -> Result<()> {
    context.remove_all();
    match layout {
        Layout::Runs => {
            for text in 0..texts {
                let tokens: Vec<u32> = (0..depth).map(|pos| token(text, pos)).collect();
                context.decode(&Batch::prompt(&tokens, 0, text))?;
            }
        }
        Layout::Mixed => {
            // Several positions a pass, which takes less time and gives the same order of cells.
            let together = (256 / texts).max(1);
            for first in (0..depth).step_by(together as usize) {
                let mut batch = Batch::new();
                for pos in first..depth.min(first + together) {
                    (0..texts).for_each(|text| batch.push(token(text, pos), pos, text, false));
                }
                context.decode_for(&batch, Want::Top(1))?;
            }
        }
    }
    Ok(())
}

fn rows(texts: u32, depth: u32) -> Batch {
    let mut batch = Batch::new();
    (0..texts).for_each(|text| batch.push(token(text, depth), depth, text, true));
    batch
}

/// Milliseconds of a pass, which is then taken back.
fn pass(context: &mut Context, texts: u32, depth: u32) -> Result<f64> {
    let batch = rows(texts, depth);
    let started = Instant::now();
    context.decode_for(&batch, Want::Top(1))?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    (0..texts).try_for_each(|text| context.truncate(text, depth as usize))?;
    Ok(ms)
}

fn scores(context: &mut Context, texts: u32, depth: u32) -> Result<Vec<u32>> {
    context.decode(&rows(texts, depth))?;
    let all = (0..texts as usize).flat_map(|row| context.logits(row).iter().map(|l| l.to_bits())).collect();
    (0..texts).try_for_each(|text| context.truncate(text, depth as usize))?;
    Ok(all)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
