//! Training: batches of texts in random order, for as long as there is time.

use std::time::{Duration, Instant};

use spec_run_kernels::simd::Isa;

use super::{
    chain::{Rows, forward},
    loss::{List, Loss, STEPS},
    noise::Noise,
    optimizer::Optimizer,
    rows::TapNoise,
    store::Store,
};
use crate::{
    Result,
    head::{Tables, Weights},
};

/// Rows of a batch: more make a step truer, fewer let there be more steps in the time that there is.
const ROWS: std::ops::RangeInclusive<usize> = 256..=1200;
/// So many steps are worth more than large ones.
const WANTED_STEPS: f64 = 240.0;
/// Steps in which the rate grows to its full size.
const WARM_UP: u32 = 20;
/// What is left of the rate in the end.
const LAST_RATE: f32 = 0.05;

/// What training works on, and how far it goes.
pub struct Course<'a> {
    pub store: &'a Store,
    pub tables: &'a Tables,
    pub texts: &'a [usize],
    pub list: &'a List,
    pub time: Duration,
}

/// How far it has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub steps: u32,
    /// Since the first.
    pub passed: Duration,
    /// For all of them.
    pub time: Duration,
    /// The cross-entropy of the head's first step.
    pub loss: f32,
}

/// A head that is trained, and in how many steps.
pub struct Trained {
    pub weights: Weights,
    pub steps: u32,
}

/// The highest rate: wide heads diverge where narrow ones still learn.
fn rate_of(dim: usize) -> f32 {
    if dim < 1024 { 1e-3 } else { 4e-4 }
}

/// Hears how far it has come and what the head is by now, and says whether to go on.
pub type GoesOn<'g> = &'g mut dyn FnMut(&Progress, &Weights) -> Result<bool>;

/// Trains until the time is over or `goes_on` says no.
pub fn train(course: &Course, weights: Weights, goes_on: GoesOn) -> Result<Trained> {
    let isa = Isa::detect();
    let most_rate = rate_of(weights.shape().dim);
    let mut optimizer = Optimizer::new(weights);
    let mut order = Order::new(course);
    let mut tap_noise = TapNoise::new(3, course.store, course.tables, course.texts)?;
    let started = Instant::now();
    let mut progress = Progress { steps: 0, passed: Duration::ZERO, time: course.time, loss: f32::NAN };
    let mut most_rows = *ROWS.start();
    let (mut trained_rows, mut worked) = (0, 0.0);
    while progress.passed < course.time && goes_on(&progress, &optimizer.average)? {
        let begun = Instant::now();
        let texts = order.next_batch(most_rows);
        let rows = Rows::of(course.store, course.tables, &texts, Some(&mut tap_noise))?;
        let steps = forward(&optimizer.weights, &rows, STEPS);
        let loss = Loss::of(&optimizer.weights, &rows, &steps, course.list, isa);
        progress.loss = loss.of_steps[0];
        let slopes = loss.slopes(&optimizer.weights, &rows, &steps);
        let done = progress.passed.as_secs_f32() / course.time.as_secs_f32();
        let cosine = 0.5 * (1.0 + (std::f32::consts::PI * done.min(1.0)).cos());
        let warm = ((optimizer.steps() + 1) as f32 / WARM_UP as f32).min(1.0);
        optimizer.step(&slopes, most_rate * warm * (LAST_RATE + (1.0 - LAST_RATE) * cosine));
        progress.steps = optimizer.steps();
        progress.passed = started.elapsed();
        trained_rows += rows.len();
        worked += begun.elapsed().as_secs_f64();
        let rows_in_time = course.time.as_secs_f64() * trained_rows as f64 / worked;
        most_rows = ((rows_in_time / WANTED_STEPS) as usize).clamp(*ROWS.start(), *ROWS.end());
    }
    let steps = optimizer.steps();
    Ok(Trained { weights: optimizer.average, steps })
}

/// Texts in random order, again and again.
struct Order<'c, 'a> {
    course: &'c Course<'a>,
    random: Noise,
    left: Vec<usize>,
}

impl<'c, 'a> Order<'c, 'a> {
    fn new(course: &'c Course<'a>) -> Self {
        Order { course, random: Noise::new(2), left: Vec::new() }
    }

    /// About so many rows.
    fn next_batch(&mut self, most_rows: usize) -> Vec<usize> {
        let (mut batch, mut rows) = (Vec::new(), 0);
        while rows < most_rows && batch.len() < self.course.texts.len() {
            if self.left.is_empty() {
                self.left.extend(self.course.texts);
                self.random.shuffle(&mut self.left);
            }
            let text = self.left.pop().expect("there are texts");
            // Where texts are few, the next round must not bring one twice.
            if !batch.contains(&text) {
                rows += self.course.store.texts()[text].rows();
                batch.push(text);
            }
        }
        batch
    }
}
