//! The Bayesian searcher: tree-structured Parzen estimators, one per sublayer, that have seen everything the other
//! strategies evaluated. They draw each sublayer's state from those of the better candidates, by how much more
//! often it is there than among the rest.

use std::convert::Infallible;

use rand_core::TryRng;
use tpe::{TpeOptimizer, TpeOptimizerBuilder, categorical_range, histogram_estimator};

use super::{
    candidate::{Candidate, State},
    evaluator::Evaluator,
};
use crate::{Result, rng::Rng};

/// The share of candidates that count as good.
const GOOD: f64 = 0.05;
/// Draws per state of which the more telling one is taken. With many the choice would be the same every time.
const DRAWS: usize = 2;
/// A trial is given up below this share of the best value.
const MARK: f64 = 0.98;
/// Draws that may come to what was tried before, in a row, until there is nothing new to be had.
const MOST_REPEATS: usize = 200;

pub fn search(evaluator: &mut Evaluator, states: &[State], trials: usize) -> Result<()> {
    let mut choices = vec![State::Run];
    choices.extend(states);
    let mut optimizers: Vec<TpeOptimizer> =
        (0..evaluator.costs().full.len()).map(|_| optimizer(choices.len())).collect();
    let tell = |optimizers: &mut [TpeOptimizer], candidate: &Candidate, value: f64| {
        for (optimizer, state) in optimizers.iter_mut().zip(candidate.states()) {
            let choice = choices.iter().position(|s| s == state).expect("one of the states");
            optimizer.tell(choice as f64, -value).expect("a number, and in range");
        }
    };
    let seen: Vec<(Candidate, f64)> =
        evaluator.known().iter().map(|(c, score)| (c.clone(), evaluator.value(c, score))).collect();
    for (candidate, value) in &seen {
        tell(&mut optimizers, candidate, *value);
    }
    let movable = evaluator.movable();
    let mut rng = Source(Rng::new(0));
    let mut repeats = 0;
    let mut done = 0;
    while done < trials && repeats < MOST_REPEATS && !evaluator.out_of_time()? {
        let candidate = movable.candidate(|sublayer| {
            let choice = optimizers[sublayer].ask(&mut rng).expect("a histogram never fails");
            choices[choice as usize]
        });
        if movable.none_runs(&candidate) || evaluator.known().contains_key(&candidate) {
            repeats += 1;
            continue;
        }
        (repeats, done) = (0, done + 1);
        let best = evaluator.ranking().first().map_or(f64::NEG_INFINITY, |(_, value)| *value);
        // Values may be negative: a log-likelihood is.
        let mark = best - (1.0 - MARK) * best.abs();
        let value = evaluator.challenge(&candidate, mark)?;
        tell(&mut optimizers, &candidate, value);
    }
    Ok(())
}

fn optimizer(choices: usize) -> TpeOptimizer {
    let range = categorical_range(choices).expect("at least one choice");
    TpeOptimizerBuilder::new()
        .gamma(GOOD)
        .candidates(DRAWS)
        .build(histogram_estimator(), range)
        .expect("a share, and some draws")
}

/// Our stream in the form that the crate wants.
struct Source(Rng);

impl TryRng for Source {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.next_u64() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next_u64().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}
