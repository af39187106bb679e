//! Drafts of the head that predicts one token more, accepted as often as is wanted, against the formula of speculation:
//! `cargo bench --bench mtp -- -m FILE [--draft N] [--tokens N] [--rounds N]`.
//!
//! **Acceptance is given by hand**: the text that plain decoding makes is known, and a drafted token is replaced by the right
//! one, or by a wrong one, as a random number has it. All passes are made as always, so the times are real, and the text
//! must be the same. Without a FILE that was trained, this says what a head would give that is right so often.
//!
//! The formula: `1 + a + … + aᵏ` tokens for `k` draft passes and one of `k + 1` rows, whose times are measured by
//! themselves in the same process, in plain steps. The first draft pass also has a row for each token that was accepted in the
//! round before. Drafts choose from the whole vocabulary here.

mod common;

use std::{ops::ControlFlow, path::Path, process::ExitCode, sync::Arc, time::Instant};

use common::{Flags, greedy, request};
use spec_run::{
    Batch, Context, ContextConfig, Error, Gguf, Model, Result, Tokenizer,
    batch::{Mtp, Row},
    generate::{Speculation, generate, speculate},
    rng::Rng,
    scores::Want,
    speculation::{Fixed, MtpProposer, Passes, Proposer, SourceInfo, Supply},
};

const RATES: [f64; 3] = [0.5, 0.7, 0.9];
const PROMPT: usize = 64;

fn main() -> ExitCode {
    let mut flags = Flags::new();
    let model = flags.take("-m");
    let draft = flags.number("--draft").unwrap_or(3);
    let tokens = flags.number("--tokens").unwrap_or(96);
    let rounds = flags.number("--rounds").unwrap_or(5);
    let work = model.map(|model| move || run(Path::new(&model), draft, tokens, rounds));
    flags.run(work, "give -m FILE, a model with a head for one token more, and --draft, --tokens or --rounds N if you like")
}

/// The head, told what to say.
struct ByHand {
    text: Arc<[u32]>,
    rate: f64,
    rng: Rng,
}

impl Proposer for ByHand {
    fn info(&self, context: &Context) -> SourceInfo {
        MtpProposer.info(context)
    }

    fn supply(&mut self, _: &[u32]) -> Supply {
        Supply::Any
    }

    fn passes(&self) -> Option<Passes<'_>> {
        Some(Passes::Mtp)
    }

    fn overrule(&mut self, text: &[u32], chosen: u32) -> u32 {
        match self.text.get(text.len()) {
            Some(&right) if self.rng.next_f64() < self.rate => right,
            Some(&right) => right ^ 1,
            None => chosen,
        }
    }
}

fn run(path: &Path, draft: usize, tokens: usize, rounds: usize) -> Result<()> {
    let gguf = Arc::new(Gguf::open(path)?);
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let config = ContextConfig { n_ctx: 1024, mtp: true, shortlists: false, ..ContextConfig::default() };
    let mut context = Context::new(model.clone(), &config)?;
    if !context.has_mtp() {
        return Err(Error::Input(format!("{} has no head for one token more", model.name)));
    }
    println!(
        "{}, {}; drafts of {draft}, {tokens} tokens; medians of {rounds} rounds",
        model.name,
        context.describe()
    );
    println!("acceptance is given by hand: the text is plain decoding's, and so is the text with drafts");
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|i| 7 * i + 3).collect();
    let request = request(&prompt, tokens);
    let go_on = |_| Ok(ControlFlow::Continue(()));
    let mut plain = Vec::new();
    let mut times = Times::default();
    let mut drafted: [Vec<f64>; RATES.len()] = Default::default();
    let mut shares = [0.0; RATES.len()];
    let mut parts: [[Vec<f64>; 3]; RATES.len()] = Default::default();
    let mut text: Arc<[u32]> = Arc::default();
    for round in 0..=rounds {
        let made = generate(&mut context, &tokenizer, &mut greedy()?, &request, go_on)?;
        text = prompt.iter().chain(&made.tokens).copied().collect();
        for (i, rate) in RATES.into_iter().enumerate() {
            let by_hand = ByHand { text: text.clone(), rate, rng: Rng::new(1000 * round as u64 + i as u64) };
            let mut policy = Fixed { max: draft, ..Fixed::default() };
            let proposers: &mut [Box<dyn Proposer>] = &mut [Box::new(by_hand)];
            let mut speculation = Speculation { proposers, policy: &mut policy };
            let (found, report) =
                speculate(&mut context, &tokenizer, &mut greedy()?, &request, &mut speculation, |_| {
                    Ok(ControlFlow::Continue(()))
                })?;
            assert_eq!(found.tokens, made.tokens, "drafts changed the text");
            // The first round warms up.
            if round > 0 {
                drafted[i].push(found.decode_seconds);
                let tally = &report.drafting;
                shares[i] += tally.acceptance().unwrap_or(0.0) / rounds as f64;
                let seconds = [report.draft_seconds, report.verify_seconds, report.other_seconds];
                let each = seconds.map(|seconds| seconds / tally.rounds as f64);
                parts[i].iter_mut().zip(each).for_each(|(all, seconds)| all.push(seconds));
            }
        }
        if round > 0 {
            plain.push(made.decode_seconds);
            times.add(&mut context, &text, draft)?;
        }
    }
    let (one, many) = (median(times.one), median(times.many));
    let head: Vec<f64> = times.head.into_iter().map(median).collect();
    let plain = median(plain);
    println!(
        "a plain step {:.2} ms, by itself {:.2}",
        1e3 * plain / text.len().saturating_sub(PROMPT + 1) as f64,
        1e3 * one
    );
    let in_steps: Vec<_> = head.iter().map(|head| format!("{:.3}", head / one)).collect();
    println!(
        "a pass of {} rows {:.2} steps, a draft's pass of 1, 2, … rows {} steps",
        draft + 1,
        many / one,
        in_steps.join(", ")
    );
    println!(
        "| given | accepted | times plain decoding | by the formula | measured / formula | a round: drafting, verifying, rest, in steps |"
    );
    println!("|--:|--:|--:|--:|--:|--:|");
    for (i, rate) in RATES.into_iter().enumerate() {
        let measured = plain / median(drafted[i].clone());
        let gained: f64 = (0..=draft).map(|n| rate.powi(n as i32)).sum();
        // The chance of so many accepted tokens, times the pass that has their rows too.
        let chance = |n: usize| rate.powi(n as i32) * if n < draft { 1.0 - rate } else { 1.0 };
        let first: f64 = head.iter().enumerate().map(|(n, head)| chance(n) * head).sum();
        let formula = gained / ((first + (draft - 1) as f64 * head[0] + many) / one);
        let [drafting, verifying, rest] = parts[i].clone().map(|seconds| median(seconds) / one);
        println!(
            "| {rate} | {:.3} | {measured:.3} | {formula:.3} | {:.3} | {drafting:.2} {verifying:.2} {rest:.2} |",
            shares[i],
            measured / formula
        );
    }
    Ok(())
}

/// Seconds of passes, in the middle of the text.
#[derive(Default)]
struct Times {
    /// One row, and those of a draft and the token before it.
    one: Vec<f64>,
    many: Vec<f64>,
    /// The head's, by rows less one.
    head: Vec<Vec<f64>>,
}

impl Times {
    fn add(&mut self, context: &mut Context, text: &[u32], draft: usize) -> Result<()> {
        let middle = (PROMPT + text.len()) / 2;
        let layers = Some(context.model().n_layer());
        context.remove(0);
        context.decode(&Batch { keep_hidden: layers, ..Batch::prompt(&text[..middle], 0, 0) })?;
        let before = context.hidden(middle - 1).to_vec();
        self.head.resize(draft + 1, Vec::new());
        for _ in 0..9 {
            for (rows, times) in [(1, &mut self.one), (draft + 1, &mut self.many)] {
                let mut batch = Batch { keep_hidden: layers, ..Batch::new() };
                (0..rows).for_each(|i| batch.push(text[middle + i], (middle + i) as u32, 0, true));
                let started = Instant::now();
                context.decode_for(&batch, Want::Top(1))?;
                times.push(started.elapsed().as_secs_f64());
                context.truncate(0, middle)?;
            }
            for (extra, times) in self.head.iter_mut().enumerate() {
                context.fork(0, 1);
                let row = |i: usize| Row {
                    token: text[middle + i],
                    pos: (middle + i) as u32,
                    seq: 1,
                    logits: i == extra,
                };
                let mtp = Some(Mtp { before: before.repeat(extra + 1), after_itself: false });
                let batch = Batch { rows: (0..=extra).map(row).collect(), mtp, ..Batch::new() };
                let started = Instant::now();
                context.decode_for(&batch, Want::Top(1))?;
                times.push(started.elapsed().as_secs_f64());
                context.remove(1);
            }
        }
        Ok(())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
