//! Small changes to good candidates: one sublayer put into another state, or two that trade places.

use super::{
    candidate::{Candidate, Movable, State},
    evaluator::{Evaluator, Valued},
};
use crate::Result;

/// Changes in either direction whose pairs are tried as trades.
const TRADED: usize = 5;
const MOST_STEPS: usize = 12;

/// Climbs from each of the `starts` best candidates until no change makes it better.
pub fn climb(evaluator: &mut Evaluator, states: &[State], starts: usize) -> Result<()> {
    let starts: Vec<Valued> = evaluator.ranking().into_iter().take(starts).collect();
    for (mut current, mut value) in starts {
        for _ in 0..MOST_STEPS {
            if evaluator.out_of_time()? {
                return Ok(());
            }
            let single = changes(&evaluator.movable(), &current, states);
            let first = evaluator.race(single.clone())?;
            let second = evaluator.race(trades(evaluator, &current, single))?;
            let better = [first, second].into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1));
            match better {
                Some((next, next_value)) if next_value > value => (current, value) = (next, next_value),
                _ => break,
            }
        }
    }
    Ok(())
}

/// Every candidate that differs in one sublayer.
fn changes(movable: &Movable, current: &Candidate, states: &[State]) -> Vec<Candidate> {
    let others = |sublayer: usize| {
        let now = current.states()[sublayer];
        let all = states.iter().copied().chain([State::Run]);
        all.filter(move |&to| to != now && to.is_for(sublayer)).map(move |to| current.with(sublayer, to))
    };
    (0..current.len())
        .filter(|&i| movable.has(i))
        .flat_map(others)
        .filter(|c| !movable.none_runs(c))
        .collect()
}

/// Pairs of a change that leaves out more and one that leaves out less, of the best few of either kind.
fn trades(evaluator: &Evaluator, current: &Candidate, mut single: Vec<Candidate>) -> Vec<Candidate> {
    let value =
        |c: &Candidate| evaluator.known().get(c).map_or(f64::NEG_INFINITY, |score| evaluator.value(c, score));
    single.sort_by(|a, b| value(b).total_cmp(&value(a)));
    let (more, less): (Vec<Candidate>, Vec<Candidate>) =
        single.into_iter().partition(|c| changed(current, c).is_some_and(|(_, from, to)| to > from));
    let mut pairs = Vec::new();
    for a in more.iter().take(TRADED) {
        for b in less.iter().take(TRADED) {
            if let (Some((i, ..)), Some((j, _, to))) = (changed(current, a), changed(current, b))
                && i != j
            {
                pairs.push(a.with(j, to));
            }
        }
    }
    pairs
}

fn changed(from: &Candidate, to: &Candidate) -> Option<(usize, State, State)> {
    let pairs = std::iter::zip(from.states(), to.states()).enumerate();
    pairs.into_iter().find(|(_, (a, b))| a != b).map(|(i, (&a, &b))| (i, a, b))
}
