//! Masks that follow the text, as CLaSp makes them (ACL 2025), beside masks that stay:
//! `cargo bench --bench following [-- --texts N --tokens N --widen K]`.
//!
//! At equal cost, M whole layers left out: an exit, the best mask that a small search finds on other texts, and a mask that is
//! made anew every R rounds. That one comes of the last verified token's hidden rows: `D(i, j)` is such a row behind `i` layers,
//! `j` of them left out. It is `D(i-1, j)` gone through layer `i` or `D(i-1, j-1)` as it is, whichever is nearer by cosine to
//! the full model's row; the way back from `D(L, M)` is the mask. Rows left out of none are verification's own.
//!
//! Tokens per round are counted, not timed: on greedy texts of the embedded model, by its own drafts. The price in time is that
//! of passes of as many rows a layer, measured here, on the embedded model and on the same one K times as wide, which
//! computes the same function.

mod common;

use std::{ops::ControlFlow, process::ExitCode, sync::Arc, time::Instant};

use common::{Flags, greedy, request};
use spec_run::{
    Batch, Context, ContextConfig, Gguf, Model, Result, RunLayers, Tokenizer, embedded, generate::generate,
    quant::dequantize, scores, tokenizer::EncodeOptions,
};
use spec_run_synth::Widened;

/// Tokens of a draft.
const DRAFT: usize = 4;
const LEFT_OUT: [usize; 3] = [4, 8, 12];
const EVERY: [usize; 3] = [1, 4, 16];
const PROMPT: usize = 64;
/// The full model's text; drafts are made on a fork, and rows of the dynamic programming on the others.
const TEXT: u32 = 0;
const FORK: u32 = 1;
/// Texts that fixed masks are chosen on.
const CHOSEN_ON: u32 = 1000;

fn main() -> ExitCode {
    let mut flags = Flags::new();
    let texts = flags.number("--texts").unwrap_or(12);
    let tokens = flags.number("--tokens").unwrap_or(128);
    let widen = flags.number("--widen").unwrap_or(8);
    flags.run(Some(move || run(texts, tokens, widen)), "--texts, --tokens and --widen N if you like")
}

fn run(texts: usize, tokens: usize, widen: u64) -> Result<()> {
    let gguf = Arc::new(embedded::open()?);
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let layers = model.n_layer();
    let mut of = Follower::new(&model)?;
    let texts = of.write(&tokenizer, texts, tokens)?;
    // Every second one to choose fixed masks on.
    let (searched, judged): (Vec<_>, Vec<_>) = texts.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
    let [searched, judged] =
        [searched, judged].map(|of| -> Vec<Vec<u32>> { of.into_iter().map(|(_, text)| text).collect() });

    println!("{}, {layers} layers; drafts of {DRAFT}; {} texts of {tokens} tokens", model.name, judged.len());
    let mut rows = Vec::new();
    for left_out in LEFT_OUT {
        let exit = RunLayers::exit(layers, layers - left_out);
        let fixed = of.search(&searched, left_out)?;
        println!("the best fixed mask without {left_out} layers: {fixed}");
        rows.push((left_out, "exit".to_string(), None, of.rounds(&judged, Source::Fixed(&exit))?));
        rows.push((left_out, "fixed".to_string(), None, of.rounds(&judged, Source::Fixed(&fixed))?));
        for every in EVERY {
            let tally = of.rounds(&judged, Source::Following { left_out, every })?;
            rows.push((left_out, format!("following, R = {every}"), Some(every), tally));
        }
    }
    let wide = widened(&model, widen)?;
    let measured = [Times::measure(&model)?, Times::measure(&wide)?];
    println!(
        "in plain steps, embedded and {widen} times as wide: T({}) {:.2}, {:.2}",
        DRAFT + 1,
        measured[0].verify,
        measured[1].verify
    );
    println!(
        "| left out | mask | accepted of {DRAFT} | step | layer rows | price | speedup | step, wide | price, wide | speedup, wide |"
    );
    println!("|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (left_out, name, every, tally) in rows {
        let accepted = tally.accepted as f64 / tally.rounds as f64;
        let counts = batches(layers, left_out);
        let layer_rows = every.map_or(0.0, |every| counts.iter().sum::<usize>() as f64 / every as f64);
        let of = |times: &Times| {
            let step = times.steps[left_out];
            let price = every.map_or(0.0, |every| times.price(&counts) / every as f64);
            let speedup = (accepted + 1.0) / (DRAFT as f64 * step + times.verify + price);
            format!("{step:.2} | {price:.2} | {speedup:.2}")
        };
        let [narrow, wide] = [of(&measured[0]), of(&measured[1])];
        let (step, rest) = narrow.split_once(" | ").expect("three figures");
        println!("| {left_out} | {name} | {accepted:.2} | {step} | {layer_rows:.0} | {rest} | {wide} |");
    }
    Ok(())
}

fn widened(model: &Model, factor: u64) -> Result<Arc<Model>> {
    let mut file = Vec::new();
    Widened::plan(model, factor)?.write(&mut file, |_| ControlFlow::Continue(()))?;
    Ok(Arc::new(Model::load(Arc::new(Gguf::from_bytes("widened", file)?))?))
}

/// Which mask drafts.
#[derive(Clone, Copy)]
enum Source<'a> {
    Fixed(&'a RunLayers),
    Following { left_out: usize, every: usize },
}

#[derive(Default)]
struct Tally {
    rounds: usize,
    accepted: usize,
}

/// How many rows go through each layer but the first: those of which some layer was left out, and which can still come to
/// the number that is wanted.
fn batches(layers: usize, left_out: usize) -> Vec<usize> {
    (1..=layers).map(|i| ran(layers, left_out, i).filter(|&j| j > 0).count()).collect()
}

/// Numbers of layers that may be left out of the first `i`, with the last of these run.
fn ran(layers: usize, left_out: usize, i: usize) -> impl Iterator<Item = usize> {
    let least = (left_out + i).saturating_sub(layers);
    least..=left_out.min(i - 1)
}

struct Follower {
    model: Arc<Model>,
    context: Context,
}

impl Follower {
    fn new(model: &Arc<Model>) -> Result<Self> {
        let config = ContextConfig { n_ctx: 2048, ..ContextConfig::default() };
        Ok(Follower { model: model.clone(), context: Context::new(model.clone(), &config)? })
    }

    /// Greedy texts, after prompts from stories.
    fn write(&mut self, tokenizer: &Tokenizer, texts: usize, tokens: usize) -> Result<Vec<Vec<u32>>> {
        let stories = include_str!("../models/stories-val.txt");
        let options = EncodeOptions { add_special: false, parse_special: false };
        let stories = tokenizer.encode(stories, options);
        let distance = stories.len() / texts;
        let mut all = Vec::new();
        for i in 0..texts {
            let prompt: Vec<u32> = tokenizer
                .bos()
                .into_iter()
                .chain(stories[i * distance..][..PROMPT].iter().copied())
                .collect();
            let request = request(&prompt, tokens);
            let go_on = |_| Ok(ControlFlow::Continue(()));
            let made = generate(&mut self.context, tokenizer, &mut greedy()?, &request, go_on)?;
            all.push([prompt, made.tokens].concat());
        }
        self.context.remove_all();
        Ok(all)
    }

    /// Evaluates a text in full.
    fn read(&mut self, text: &[u32]) -> Result<()> {
        self.context.remove_all();
        self.context.decode(&Batch::prompt(text, 0, TEXT))
    }

    /// Rounds over the texts, from the ends of their prompts on.
    fn rounds(&mut self, texts: &[Vec<u32>], source: Source) -> Result<Tally> {
        let mut tally = Tally::default();
        for text in texts {
            self.read(text)?;
            let mut mask = None;
            let mut at = PROMPT + 1;
            for round in 0.. {
                if at + DRAFT >= text.len() {
                    break;
                }
                let mask = match source {
                    Source::Fixed(mask) => mask,
                    Source::Following { left_out, every } => {
                        if round % every == 0 {
                            mask = Some(self.follow(text, at - 1, left_out)?);
                        }
                        mask.as_ref().expect("the first round makes one")
                    }
                };
                let accepted = self.draft(text, at, mask)?;
                tally.rounds += 1;
                tally.accepted += accepted;
                at += accepted + 1;
            }
        }
        Ok(tally)
    }

    /// How many tokens of a draft behind the token at `at` are the text's.
    fn draft(&mut self, text: &[u32], at: usize, mask: &RunLayers) -> Result<usize> {
        self.context.fork(TEXT, FORK);
        self.context.truncate(FORK, at)?;
        for i in 0..DRAFT {
            // What was drafted so far is the text.
            let batch = Batch::prompt(&text[at + i..=at + i], (at + i) as u32, FORK);
            self.context.decode(&batch.with_layers(mask.clone()))?;
            if scores::greedy(self.context.logits(0)) != text[at + i + 1] {
                return Ok(i);
            }
        }
        Ok(DRAFT)
    }

    /// The mask by the hidden rows of the token at `at`.
    fn follow(&mut self, text: &[u32], at: usize, left_out: usize) -> Result<RunLayers> {
        let layers = self.model.n_layer();
        // Each row has a cell of its own, which has been through all layers.
        let forks: Vec<u32> = (0..=left_out as u32).map(|j| FORK + 1 + j).collect();
        let mut batch = Batch::new();
        for &fork in &forks {
            self.context.fork(TEXT, fork);
            self.context.truncate(fork, at)?;
            batch.push(text[at], at as u32, fork, false);
        }
        self.context.decode(&batch)?;
        // Behind the layers so far, by how many of them are left out; and by what choice each came to be.
        let mut rows: Vec<Option<Vec<f32>>> = vec![None; left_out + 1];
        rows[0] = Some(self.embedding(text[at]));
        let mut skipped = Vec::with_capacity(layers);
        for i in 1..=layers {
            let mut next = vec![None; left_out + 1];
            let further = ran(layers, left_out, i).filter(|&j| j > 0 && rows[j].is_some());
            let ran: Vec<usize> = std::iter::once(0).chain(further).collect();
            let begin = |&j: &usize| (forks[j], rows[j].as_deref().expect("filtered"));
            let through = self.through(i, ran.iter().map(begin).collect(), (text[at], at))?;
            ran.iter().zip(through).for_each(|(&j, row)| next[j] = Some(row));
            let full = next[0].clone().expect("it always runs");
            let mut choices = vec![false; left_out + 1];
            let least = (left_out + i).saturating_sub(layers);
            for j in least.max(1)..=left_out.min(i) {
                let Some(carried) = rows[j - 1].clone() else { continue };
                if next[j].as_ref().is_none_or(|run| cosine(&carried, &full) > cosine(run, &full)) {
                    (next[j], choices[j]) = (Some(carried), true);
                }
            }
            rows = next;
            skipped.push(choices);
        }
        forks.iter().for_each(|&fork| self.context.remove(fork));
        let (mut mask, mut j) = (RunLayers::all(layers), left_out);
        for (layer, choices) in skipped.iter().enumerate().rev() {
            if choices[j] {
                (mask, j) = (mask.skip_attn(layer).skip_mlp(layer), j - 1);
            }
        }
        assert_eq!(j, 0, "a way back from the last layer");
        Ok(mask)
    }

    /// Takes rows of a token, each on a fork, through layer `i`, counted from 1.
    fn through(
        &mut self,
        i: usize,
        rows: Vec<(u32, &[f32])>,
        (token, at): (u32, usize),
    ) -> Result<Vec<Vec<f32>>> {
        let mut batch = Batch::new().with_layers(RunLayers::exit(self.model.n_layer(), i));
        rows.iter().for_each(|&(fork, _)| batch.push(token, at as u32, fork, false));
        if i == 1 {
            // Only one row goes through the first layer, and it begins as a token.
            self.context.truncate(rows[0].0, at)?;
        } else {
            batch = batch.resuming(i - 1, rows.iter().flat_map(|(_, row)| *row).copied().collect());
        }
        batch.keep_hidden = Some(i);
        self.context.decode(&batch)?;
        Ok((0..rows.len()).map(|n| self.context.hidden(n).to_vec()).collect())
    }

    /// What goes into the first layer.
    fn embedding(&self, token: u32) -> Vec<f32> {
        let gguf = &self.model.gguf;
        let tensor = gguf.tensors().iter().find(|tensor| tensor.name == "token_embd.weight");
        let tensor = tensor.expect("every model has one");
        let (bytes, dim) = (gguf.bytes(tensor), tensor.shape[0] as usize);
        let row = bytes.len() / tensor.shape[1] as usize;
        let mut numbers = vec![0.0; dim];
        dequantize(tensor.ty, &bytes[token as usize * row..][..row], &mut numbers);
        numbers
    }

    /// The mask of so many whole layers left out with the most accepted tokens on the texts: by trades from a greedy choice and
    /// from the exit.
    fn search(&mut self, texts: &[Vec<u32>], left_out: usize) -> Result<RunLayers> {
        let layers = self.model.n_layer();
        self.context.remove_all();
        for (seq, text) in (CHOSEN_ON..).zip(texts) {
            self.context.decode(&Batch::prompt(text, 0, seq))?;
        }
        let mut out: Vec<usize> = Vec::new();
        while out.len() < left_out {
            let mut best = (0, None);
            for layer in (0..layers).filter(|layer| !out.contains(layer)) {
                let accepted = self.first_tokens(texts, &[&out[..], &[layer]].concat())?;
                if best.1.is_none() || accepted > best.0 {
                    best = (accepted, Some(layer));
                }
            }
            out.extend(best.1);
        }
        let exit: Vec<usize> = (layers - left_out..layers).collect();
        let [greedy, exit] = [self.trade(texts, out)?, self.trade(texts, exit)?];
        Ok(without(layers, if greedy.0 > exit.0 { &greedy.1 } else { &exit.1 }))
    }

    /// Layers left out, each exchanged for a better one while there is such.
    fn trade(&mut self, texts: &[Vec<u32>], mut out: Vec<usize>) -> Result<(usize, Vec<usize>)> {
        let layers = self.model.n_layer();
        let mut value = self.first_tokens(texts, &out)?;
        for place in 0..out.len() {
            for layer in 0..layers {
                let mut other = out.clone();
                other[place] = layer;
                if out.contains(&layer) {
                    continue;
                }
                let accepted = self.first_tokens(texts, &other)?;
                if accepted > value {
                    (out, value) = (other, accepted);
                }
            }
        }
        Ok((value, out))
    }

    /// On how many of a few hundred positions a draft's first token is the text's.
    fn first_tokens(&mut self, texts: &[Vec<u32>], out: &[usize]) -> Result<usize> {
        let mask = without(self.model.n_layer(), out);
        let mut right = 0;
        for (seq, text) in (CHOSEN_ON..).zip(texts) {
            let places: Vec<usize> = (PROMPT + 1..text.len() - 1).step_by(2).collect();
            let mut batch = Batch::new().with_layers(mask.clone());
            for (fork, &at) in (FORK..).zip(&places) {
                self.context.fork(seq, fork);
                self.context.truncate(fork, at)?;
                batch.push(text[at], at as u32, fork, true);
            }
            self.context.decode(&batch)?;
            for (i, &at) in places.iter().enumerate() {
                right += usize::from(scores::greedy(self.context.logits(i)) == text[at + 1]);
            }
            (FORK..).take(places.len()).for_each(|fork| self.context.remove(fork));
        }
        Ok(right)
    }
}

fn without(layers: usize, out: &[usize]) -> RunLayers {
    out.iter().fold(RunLayers::all(layers), |mask, &layer| mask.skip_attn(layer).skip_mlp(layer))
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| std::iter::zip(a, b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// What passes take, in plain steps.
struct Times {
    /// Of one row, by how many layers are left out.
    steps: Vec<f64>,
    verify: f64,
    /// Of so many rows through one layer.
    layer: Vec<f64>,
}

impl Times {
    fn measure(model: &Arc<Model>) -> Result<Self> {
        const TURNS: usize = 21;
        let most = *LEFT_OUT.iter().max().expect("some");
        let layers = model.n_layer();
        let mut context = Context::new(model.clone(), &ContextConfig { n_ctx: 512, ..Default::default() })?;
        let text: Vec<u32> = (0..128).map(|i| i * 7 + 3).collect();
        context.decode(&Batch::prompt(&text, 0, TEXT))?;
        let batch = |rows: usize, logits: bool, mask: Option<RunLayers>| {
            let mut batch = Batch { run_layers: mask, ..Batch::new() };
            (0..rows).for_each(|i| batch.push(i as u32 * 31 + 5, (128 + i) as u32, TEXT, logits));
            batch
        };
        let mut cases = vec![batch(1, true, None), batch(DRAFT + 1, true, None)];
        cases.extend((0..=most).map(|out| batch(1, true, Some(RunLayers::exit(layers, layers - out)))));
        cases.extend((1..=most).map(|rows| batch(rows, false, None)));
        let mut seconds = vec![Vec::new(); cases.len()];
        for turn in 0..=TURNS {
            for (case, seconds) in cases.iter().zip(&mut seconds) {
                let started = Instant::now();
                context.decode(case)?;
                // The first turn warms up.
                if turn > 0 {
                    seconds.push(started.elapsed().as_secs_f64());
                }
                context.truncate(TEXT, 128)?;
            }
        }
        let median = |seconds: &mut Vec<f64>| {
            seconds.sort_by(f64::total_cmp);
            seconds[seconds.len() / 2]
        };
        let medians: Vec<f64> = seconds.iter_mut().map(median).collect();
        let units: Vec<f64> = medians.iter().map(|seconds| seconds / medians[0]).collect();
        println!("{}: a plain step {:.2} ms", model.name, 1e3 * medians[0]);
        let (steps, layer) = units[2..].split_at(most + 1);
        let layer = layer.iter().map(|pass| pass / layers as f64).collect();
        Ok(Times { steps: steps.to_vec(), verify: units[1], layer })
    }

    /// Of a dynamic programming with so many rows in each layer.
    fn price(&self, counts: &[usize]) -> f64 {
        counts.iter().filter(|&&rows| rows > 0).map(|&rows| self.layer[rows - 1]).sum()
    }
}
