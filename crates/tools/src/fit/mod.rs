//! Fits a head to a model: the model writes text, its states are kept as they come, ridges find where to begin, and training
//! goes on from there. Texts that nothing was fitted to judge whether the head pays.
//!
//! ```text
//! Prompts ─ Author (many texts in a pass) ─ Store ─ start (ridges) ─ train ─ Head ─ judge ─ Verdict
//! ```

mod author;
mod chain;
#[cfg(test)]
mod drafter_tests;
mod judge;
mod loss;
pub mod noise;
mod optimizer;
mod prompts;
mod ridge;
mod rows;
mod speed;
mod start;
mod store;
mod train;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

pub use prompts::{MOST_CELLS, Prompts};
pub use train::Progress;

use self::{
    author::{Author, Written},
    judge::ranks,
    loss::List,
    speed::Costs,
    store::Store,
    train::{Course, train},
};
use crate::{
    Context, Error, Gguf, Result, Tokenizer,
    head::{Head, HeadShape, Made, Tables, Weights},
};

/// Texts that are written in one pass.
pub const AT_ONCE: usize = 16;
/// Of the time, for writing.
const WRITING: f64 = 0.55;
/// Tokens that training is judged by.
const LIST: usize = 8192;
/// Fewer tokens of text say too little.
const FEWEST_TOKENS: usize = 512;
/// A model whose texts have fewer different tokens repeats itself.
const FEWEST_DIFFERENT: usize = 64;
/// A head that is predicted to bring less is no gain that could be relied on.
const PAYS: f64 = 1.03;

/// How a head is to be fitted.
#[derive(Clone, Debug)]
pub struct FitConfig {
    /// For all of it.
    pub time: Duration,
    /// Where states are kept.
    pub states: PathBuf,
    /// Bytes of states at most.
    pub most_bytes: u64,
    /// Goes on with the texts that are kept there.
    pub resume: bool,
}

/// What happens meanwhile.
#[derive(Clone, Debug)]
pub enum Event {
    /// The model writes.
    Writing {
        /// So many tokens by now.
        tokens: usize,
        /// Of the time for it.
        share: f64,
    },
    /// No more states can be kept; fitting goes on with what there is.
    Full,
    /// The ridges are solved.
    Started {
        /// Of the penalty.
        strength: f32,
        /// What the head would bring now.
        verdict: Verdict,
    },
    /// Training goes on.
    Training(Progress),
    /// How good the head is by now.
    Judged(Verdict),
}

/// How good a head is on texts that it was not fitted to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Without a temperature, and with one.
    pub of_temps: [OfTemp; 2],
}

/// The same of one temperature.
#[derive(Clone, Debug)]
pub struct OfTemp {
    /// Drafts that were judged.
    pub drafts: usize,
    /// How often the first token is right, the first two, and so on.
    pub agreement: Vec<f64>,
    /// How often the right token is among the first 1, 2, 3 and 4 proposals.
    pub among: Vec<f64>,
    /// The share of tokens that were not to be chosen.
    pub missed: f64,
    /// What the best draft is, and how many times as fast as plain decoding it is predicted to be.
    pub draft: &'static str,
    /// See `draft`.
    pub speed: f64,
}

impl Verdict {
    /// The mean of both temperatures.
    pub fn speed(&self) -> f64 {
        self.of_temps.iter().map(|of| of.speed).sum::<f64>() / 2.0
    }

    /// Whether drafting with it is worth it.
    pub fn pays(&self) -> bool {
        self.speed() >= PAYS
    }
}

/// A head, and what it is worth.
pub struct Fitted {
    /// As it is in a file.
    pub head: Head,
    /// How good it is.
    pub verdict: Verdict,
    /// Time that writing took, and that training took.
    pub seconds: [f64; 2],
}

/// What came of a fit.
pub enum Outcome {
    /// A head.
    Fitted(Box<Fitted>),
    /// It was interrupted while texts were written; what is written is kept.
    Interrupted {
        /// Tokens that are kept.
        tokens: usize,
    },
}

/// Fits a head to the model of a context that has room for [`AT_ONCE`] texts of [`MOST_CELLS`] tokens. `watch` hears what
/// happens, and says whether to go on; during training what is there is taken.
pub fn fit(
    context: &mut Context,
    tokenizer: &Tokenizer,
    prompts: &Prompts,
    config: &FitConfig,
    watch: &mut dyn FnMut(Event) -> bool,
) -> Result<Outcome> {
    let model = context.model().clone();
    let shape = HeadShape::of(&model)?;
    if !context.keeps_hidden() {
        return Err(Error::Device(
            "a head is fitted on the CPU, with all of the model there: `device` cpu".into(),
        ));
    }
    let tables = Arc::new(Tables::new(model.clone()));
    let mut store = match config.resume {
        true => Store::open(&config.states, &model, &shape, config.most_bytes)?,
        false => Store::new(&config.states, &model, &shape, config.most_bytes)?,
    };
    let started = Instant::now();
    if !write(context, tokenizer, prompts, (&tables, &shape), &mut store, config.time, watch)? {
        return Ok(Outcome::Interrupted { tokens: store.all_tokens() });
    }
    let writing = started.elapsed();
    let texts = fitted_texts(&store)?;
    let frequent = frequent_tokens(&store, model.n_vocab());
    let few = if shape.dim < 1024 { 2048 } else { 4096 };
    let base: Vec<u32> = frequent.iter().take(few).copied().collect();
    let costs = Costs::measure(context, &shape, &tables, base.len())?;
    let judge = |weights: &Weights| judged(&store, &tables, weights, &base, &costs);
    let list = List::new(frequent.into_iter().take(LIST).collect(), &tables);
    let start = start::start(&store, &tables, &shape, &texts, &list)?;
    let verdict = judge(&start.weights)?;
    // Training can lead away from what is right for other texts.
    let mut best = Best { speed: verdict.speed(), weights: start.weights.clone(), steps: 0 };
    if !watch(Event::Started { strength: start.strength, verdict }) {
        return Ok(Outcome::Interrupted { tokens: store.all_tokens() });
    }
    let left = config.time.saturating_sub(started.elapsed()).max(config.time.mul_f64(0.2));
    let course = Course { store: &store, tables: &tables, texts: &texts, list: &list, time: left };
    let mut told = 0;
    let trained = train(&course, start.weights, &mut |progress, weights| {
        // At each quarter of the way.
        let quarter = (4.0 * progress.passed.as_secs_f64() / left.as_secs_f64()) as u32;
        let goes_on = match quarter > told && quarter < 4 {
            true => {
                let verdict = judge(weights)?;
                best.look_at(weights, progress.steps, &verdict);
                watch(Event::Judged(verdict))
            }
            false => true,
        };
        told = told.max(quarter);
        Ok(goes_on && watch(Event::Training(progress.clone())))
    })?;
    best.look_at(&trained.weights, trained.steps, &judge(&trained.weights)?);
    let training = started.elapsed() - writing;
    let Best { weights, steps, .. } = best;
    let text_tokens = store.tokens(false) as u32;
    let made = Made { text_tokens, steps, ridge: start.strength, agreement: Vec::new() };
    let embedding_rms = tables.embedding_rms();
    let mut head = as_in_file(Head { weights, tokens: base.clone(), embedding_rms, made }, &model)?;
    let verdict = judge(&head.weights)?;
    head.made.agreement = verdict.of_temps[0].agreement.iter().map(|&x| x as f32).collect();
    let seconds = [writing, training].map(|time| time.as_secs_f64());
    Ok(Outcome::Fitted(Box::new(Fitted { head, verdict, seconds })))
}

/// The head that is predicted to bring the most, of those that were judged.
struct Best {
    speed: f64,
    weights: Weights,
    steps: u32,
}

impl Best {
    fn look_at(&mut self, weights: &Weights, steps: u32, verdict: &Verdict) {
        if verdict.speed() >= self.speed {
            *self = Best { speed: verdict.speed(), weights: weights.clone(), steps };
        }
    }
}

/// Has texts written; says whether there is to be more than that.
fn write(
    context: &mut Context,
    tokenizer: &Tokenizer,
    prompts: &Prompts,
    (tables, shape): (&Tables, &HeadShape),
    store: &mut Store,
    time: Duration,
    watch: &mut dyn FnMut(Event) -> bool,
) -> Result<bool> {
    let started = Instant::now();
    let judges = store.tokens(true) == 0;
    let written = store.texts().iter().filter(|text| !text.held_out).count();
    let mut assignments = prompts.assignments(tokenizer, judges, written)?;
    let author = Author::new(context, tokenizer, tables, shape, AT_ONCE);
    let mut goes_on = true;
    let ended = author.write(&mut assignments, store, &mut |store, going| {
        let share = started.elapsed().as_secs_f64() / (WRITING * time.as_secs_f64());
        let tokens = store.all_tokens() + going;
        goes_on = watch(Event::Writing { tokens, share });
        goes_on && share < 1.0
    })?;
    Ok(goes_on && (ended == Written::Enough || watch(Event::Full)))
}

/// The texts to fit to, if they are enough.
fn fitted_texts(store: &Store) -> Result<Vec<usize>> {
    let texts: Vec<usize> = (0..store.texts().len())
        .filter(|&i| !store.texts()[i].held_out && store.texts()[i].rows() > 0)
        .collect();
    let of_texts = || texts.iter().flat_map(|&i| &store.texts()[i].tokens);
    let (count, held_out) = (of_texts().count(), store.tokens(true));
    if count < FEWEST_TOKENS || held_out == 0 {
        return Err(Error::Input(format!(
            "the model has written {count} tokens to fit to and {held_out} to judge by; {FEWEST_TOKENS} are the least: give it more `time`"
        )));
    }
    let mut different: Vec<u32> = of_texts().copied().collect();
    different.sort_unstable();
    different.dedup();
    if different.len() < FEWEST_DIFFERENT {
        return Err(Error::Input(format!(
            "the model's texts have {} different tokens in {count}: it repeats itself, and there is nothing to learn; give other prompts",
            different.len()
        )));
    }
    Ok(texts)
}

/// All tokens, the most frequent of the texts first; those of prompts count a little, and else the lower ids.
fn frequent_tokens(store: &Store, n_vocab: usize) -> Vec<u32> {
    let mut counts = vec![0u64; n_vocab];
    for text in store.texts().iter().filter(|text| !text.held_out) {
        text.tokens.iter().for_each(|&token| counts[token as usize] += 100);
        text.prompt.iter().for_each(|&token| counts[token as usize] += 1);
    }
    let mut tokens: Vec<u32> = (0..n_vocab as u32).collect();
    tokens.sort_by_key(|&token| std::cmp::Reverse(counts[token as usize]));
    tokens
}

fn judged(store: &Store, tables: &Tables, weights: &Weights, base: &[u32], costs: &Costs) -> Result<Verdict> {
    let of_temp = |greedy: bool| -> Result<OfTemp> {
        let ranks = ranks(store, tables, weights, base, greedy)?;
        let best = costs.best(&ranks);
        Ok(OfTemp {
            drafts: ranks.rows(),
            agreement: ranks.agreement().to_vec(),
            among: (1..=4).map(|count| ranks.among(count)).collect(),
            missed: ranks.missed(),
            draft: best.draft,
            speed: best.speed,
        })
    };
    Ok(Verdict { of_temps: [of_temp(true)?, of_temp(false)?] })
}

/// The head as it comes out of its file again: with weights of 8 bits.
fn as_in_file(head: Head, model: &crate::Model) -> Result<Head> {
    let name = format!("the head of {}", model.name);
    Head::of(&Gguf::from_bytes(&name, head.bytes(&name, model)?)?, model)
}

/// The outputs of a chain over some tokens, which begins with these inputs.
#[cfg(test)]
pub fn chain_outputs(weights: &Weights, tables: &Tables, inputs: &[f32], tokens: &[u32]) -> Vec<Vec<f32>> {
    let (dim, count) = (tables.dim(), tokens.len());
    let mut embeddings = vec![0.0; count * dim];
    embeddings.chunks_mut(dim).zip(tokens).for_each(|(row, &token)| tables.embedding(token, row));
    let rows = chain::Rows {
        inputs: inputs.repeat(count),
        embeddings,
        states: vec![0.0; count * dim],
        next: vec![0; count],
        places: (0..count).collect(),
    };
    // The n-th step of the n-th row has come from the first row.
    let steps = chain::forward(weights, &rows, count);
    steps.iter().map(|step| step.out[..dim].to_vec()).collect()
}
