//! Measuring how fast a model runs here. Everything goes through [`Context::decode`]: what is measured is what
//! a program gets.
//!
//! Machines drift: a neighbour on the same memory, a clock that steps down. So nothing is measured in one block;
//! in each round every case has its turn once, and two configurations take each turn one after the other.

pub mod records;
pub mod report;
mod subject;
pub mod throughput;

use std::{ops::ControlFlow, sync::Arc, time::Instant};

use subject::Subject;

use crate::{
    Batch, Context, Error, Result, RunLayers,
    bench::report::Report,
    measure::memory::{self, ReadBuffer},
    provenance::Provenance,
};

/// The most rows of one verification that are measured.
pub const MOST_ROWS: usize = 16;
/// Tokens decoded one after another before the sequence is cut back to its depth.
const DECODE_STEPS: usize = 16;
/// As many as a draft usually has.
const DRAFT_STEPS: usize = 4;

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// The memory alone.
    Memory,
    /// One token after another, from `depth` tokens of context on.
    Decode { depth: usize },
    /// `n` rows of one sequence in one batch, with the logits of each.
    Rows { n: usize },
    /// One token after another under the mask.
    Draft,
    /// A prompt of `n` tokens on an empty sequence.
    Prefill { n: usize },
}

/// What to measure, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchSettings {
    pub prefill: Vec<usize>,
    /// Tokens of context under the decode steps, ascending.
    pub depths: Vec<usize>,
    /// The verify curve is measured for 1 to so many rows.
    pub rows: usize,
    /// Tokens of context under the verify curve and the draft steps.
    pub rows_depth: usize,
    pub decode_steps: usize,
    pub draft_steps: usize,
    pub rounds: usize,
    /// A sample repeats its case until about this much time is measured.
    pub sample_seconds: f64,
}

impl BenchSettings {
    /// The given lengths and depths, the rest cut to what `limit` tokens of context allow.
    pub fn new(limit: usize, prefill: Vec<usize>, depths: Vec<usize>, rows_depth: usize) -> Self {
        let rows = MOST_ROWS.min(limit);
        let deepest = depths.iter().copied().max().unwrap_or(0);
        let rows_depth = rows_depth.min(limit - rows);
        BenchSettings {
            prefill,
            depths,
            rows,
            rows_depth,
            decode_steps: DECODE_STEPS.min(limit.saturating_sub(deepest)).max(1),
            draft_steps: DRAFT_STEPS.min(limit - rows_depth),
            rounds: 5,
            sample_seconds: 0.1,
        }
    }

    /// Cells that a context needs: the deepest prefix stays, and each case adds its own rows to it.
    pub fn cells(&self) -> usize {
        let prompts = self.prefill.iter().copied().max().unwrap_or(0);
        self.prefix() + prompts.max(self.rows).max(self.decode_steps).max(self.draft_steps)
    }

    fn prefix(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(0).max(self.rows_depth)
    }

    /// Neighbours in this list are neighbours in time: the memory and the decode steps that are held against
    /// it, one row and the draft.
    fn cases(&self, with_draft: bool) -> Vec<Case> {
        let mut cases = vec![Case::Memory];
        cases.extend(self.depths.iter().map(|&depth| Case::Decode { depth }));
        cases.extend(with_draft.then_some(Case::Draft));
        cases.extend((1..=self.rows).map(|n| Case::Rows { n }));
        cases.extend(self.prefill.iter().map(|&n| Case::Prefill { n }));
        cases
    }
}

/// How to get a context, and what it is to be measured with.
pub struct Configuration<'a> {
    /// Opens the file and builds the context; timed.
    pub open: Box<dyn Fn() -> Result<Context> + 'a>,
    pub mask: Option<RunLayers>,
}

/// Where a long measurement stands.
#[derive(Clone, Debug)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
    pub doing: &'static str,
}

/// A context, and what it took to have it.
struct Loaded {
    context: Context,
    load: Vec<f64>,
    first_pass: Vec<f64>,
    /// Of the process with this configuration alone.
    resident: Option<u64>,
}

/// Measures the configurations in alternation, one report for each. `progress` may end it; then the whole
/// rounds so far are reported, and it is an error if there are none.
pub fn measure(
    configurations: &[Configuration],
    settings: &BenchSettings,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Vec<Report>> {
    let mut loaded = load(configurations, settings)?;
    let mut subjects = Vec::new();
    let with_draft = configurations.iter().any(|c| c.mask.is_some());
    let cases = settings.cases(with_draft);
    let turns = cases.len() * configurations.len();
    let total = turns * (settings.rounds + 1);
    let mut done = 0;
    let mut step = |doing| {
        done += 1;
        progress(Progress { done: done - 1, total, doing })
    };
    let interrupted = || Error::Input("interrupted before the first round was complete".into());
    for (loaded, configuration) in loaded.iter_mut().zip(configurations) {
        let before = memory::resident_bytes();
        let mut subject = Subject::new(&mut loaded.context, configuration.mask.clone(), settings)?;
        for &case in cases.iter().filter(|&&case| case != Case::Memory) {
            if step("warming up").is_break() {
                return Err(interrupted());
            }
            subject.warm_up(case)?;
        }
        // The first touch of the cache and of the work buffers.
        let growth = memory::resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
        loaded.resident = loaded.resident.zip(growth).map(|(alone, growth)| alone + growth);
        subjects.push(subject);
    }
    let buffer = Arc::new(ReadBuffer::new()?);
    for subject in &mut subjects {
        let _ = step("warming up");
        subject.add_memory(buffer.clone())?;
    }

    let mut samples = vec![vec![Vec::new(); cases.len()]; subjects.len()];
    'rounds: for round in 0..settings.rounds {
        let mut this_round = vec![vec![None; cases.len()]; subjects.len()];
        for (c, &case) in cases.iter().enumerate() {
            for turn in 0..subjects.len() {
                // Who goes first changes from round to round.
                let who = if round % 2 == 0 { turn } else { subjects.len() - 1 - turn };
                if step("measuring").is_break() {
                    break 'rounds;
                }
                this_round[who][c] = subjects[who].sample(case)?;
            }
        }
        for (all, new) in samples.iter_mut().flatten().zip(this_round.into_iter().flatten()) {
            all.extend(new);
        }
    }
    if samples.iter().any(|of_one| of_one[0].is_empty()) {
        return Err(interrupted());
    }
    let measured: Vec<_> = subjects.into_iter().map(Subject::finish).collect();
    let reports = loaded.iter().zip(samples).zip(configurations).zip(measured);
    Ok(reports
        .map(|(((loaded, samples), configuration), memory_bytes)| {
            let model = loaded.context.model();
            let mut provenance = Provenance::of(&loaded.context)
                .setting("rounds", settings.rounds)
                .setting("sample_seconds", settings.sample_seconds);
            if let Some(mask) = &configuration.mask {
                provenance = provenance.mask(&mask.to_string(), mask);
            }
            Report {
                model: model.name.clone(),
                file: model.gguf.name().to_string(),
                device: loaded.context.describe(),
                threads: loaded.context.threads(),
                mask: configuration.mask.clone(),
                mask_bytes: configuration.mask.as_ref().map(|mask| loaded.context.mask_cost(mask)),
                token_bytes: loaded.context.bytes_read(None),
                memory_bytes,
                gpu_read: loaded.context.weights_read_speed(),
                settings: settings.clone(),
                samples: cases.iter().copied().zip(samples).filter(|(_, s)| !s.is_empty()).collect(),
                load: loaded.load.clone(),
                first_pass: loaded.first_pass.clone(),
                resident: loaded.resident,
                provenance,
            }
        })
        .collect())
}

/// Loads all of them in turn, several times while that is quick, and keeps the last of each.
fn load(configurations: &[Configuration], settings: &BenchSettings) -> Result<Vec<Loaded>> {
    const SECONDS_FOR_REPEATS: f64 = 5.0;
    // Of several, each must once have the process to itself: in the last round they stay.
    let least_rounds = configurations.len().min(2);
    let started = Instant::now();
    let mut times = vec![(Vec::new(), Vec::new(), None); configurations.len()];
    for round in 1.. {
        let enough = round >= settings.rounds || started.elapsed().as_secs_f64() > SECONDS_FOR_REPEATS;
        let last = enough && round >= least_rounds;
        let mut kept = Vec::new();
        for (configuration, (load, first_pass, alone)) in configurations.iter().zip(&mut times) {
            let started = Instant::now();
            let mut context = (configuration.open)()?;
            load.push(started.elapsed().as_secs_f64());
            let started = Instant::now();
            context.decode(&Batch::prompt(&[0], 0, 0))?;
            first_pass.push(started.elapsed().as_secs_f64());
            context.remove(0);
            if round == 1 {
                *alone = memory::resident_bytes();
            }
            if last {
                kept.push(context);
            }
        }
        if last {
            return Ok(std::iter::zip(kept, times)
                .map(|(context, (load, first_pass, resident))| Loaded { context, load, first_pass, resident })
                .collect());
        }
    }
    unreachable!("the loop ends by returning")
}
