//! Greedy from both ends: start with everything and give up the sublayer that is missed least, again and again;
//! or start with nothing and take the one that helps most. What was learnt of a move in an earlier step says
//! whether it is worth looking at in this one, so each step tries a few moves only.

use super::{
    candidate::{Candidate, State},
    evaluator::Evaluator,
};
use crate::Result;

/// Steps downwards end when the value has fallen to this share of the best one met.
const HOPELESS: f64 = 0.6;
/// Steps upwards end at this cost: what is added beyond is better taken from the other end.
const COST_ENOUGH: f64 = 0.9;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Move {
    sublayer: usize,
    to: State,
    /// What the last look at it promised, more is better.
    promise: f64,
}

/// Moves in the order of their promise; only the first few of them are looked at again.
fn most_promising(moves: &mut [Move], width: usize) -> Vec<Move> {
    moves.sort_by(|a, b| b.promise.total_cmp(&a.promise));
    moves.iter().take(width).copied().collect()
}

/// From everything downwards. `states` are those that a sublayer may go to.
pub fn from_full(evaluator: &mut Evaluator, states: &[State], width: usize) -> Result<()> {
    if evaluator.out_of_time()? {
        return Ok(());
    }
    let movable = evaluator.movable();
    let (objective, costs) = (evaluator.objective().of_steps(), evaluator.costs().clone());
    let cheap_enough = evaluator.objective().most_cost().unwrap_or(0.0);
    let mut current = movable.candidate(|_| State::Run);
    let mut value = objective.value(&costs, &current, evaluator.score(&current)?);
    let mut best = value;
    let all = movable.options(states);
    let mut moves: Vec<Move> =
        all.map(|(sublayer, to)| Move { sublayer, to, promise: f64::INFINITY }).collect();
    while !moves.is_empty() && costs.of(&current) > cheap_enough && !evaluator.out_of_time()? {
        // What was never looked at comes first, all of it.
        let fresh = moves.iter().filter(|m| m.promise == f64::INFINITY).count();
        let tried = most_promising(&mut moves, width.max(fresh));
        let candidates = tried.iter().map(|m| current.with(m.sublayer, m.to)).collect();
        let raced =
            evaluator.race_by(candidates, |c, score, more| objective.value_at(&costs, c, score, more))?;
        let Some((next, next_value)) = raced else { break };
        for m in moves.iter_mut().filter(|m| tried.contains(m)) {
            let candidate = current.with(m.sublayer, m.to);
            m.promise = objective.value(&costs, &candidate, &evaluator.known()[&candidate]) - value;
        }
        // A step only ever leaves out more.
        moves.retain(|m| m.to > next.states()[m.sublayer]);
        (current, value) = (next, next_value);
        best = best.max(value);
        if best > 0.0 && value < HOPELESS * best {
            break;
        }
    }
    Ok(())
}

/// From nothing upwards. Until most of the model runs no draft is right, so agreement says nothing there: steps
/// follow the divergence from the full model, per cost.
pub fn from_empty(evaluator: &mut Evaluator, states: &[State], width: usize) -> Result<()> {
    if evaluator.out_of_time()? {
        return Ok(());
    }
    let movable = evaluator.movable();
    let mut current = movable.candidate(|_| State::Skip);
    let costs = evaluator.costs().clone();
    let mut kl = evaluator.score(&current)?.kl();
    let mut to: Vec<State> = states.iter().copied().filter(|&s| s != State::Skip).collect();
    to.push(State::Run);
    let all = movable.options(&to);
    let mut moves: Vec<Move> =
        all.map(|(sublayer, to)| Move { sublayer, to, promise: f64::INFINITY }).collect();
    while !moves.is_empty() && costs.of(&current) < COST_ENOUGH && !evaluator.out_of_time()? {
        let fresh = moves.iter().filter(|m| m.promise == f64::INFINITY).count();
        let tried = most_promising(&mut moves, width.max(fresh));
        let (from, from_cost) = (kl, costs.of(&current));
        let gain = |candidate: &Candidate, kl: f64| {
            let price = (costs.of(candidate) - from_cost).max(1e-6);
            // Where nothing helps, what harms least for its size goes first.
            if kl < from { (from - kl) / price } else { (from - kl) * price }
        };
        let apply = |m: &Move| current.with(m.sublayer, m.to);
        let candidates = tried.iter().map(apply).collect();
        let raced = evaluator.race_by(candidates, |c, score, more| gain(c, score.kl() * (1.0 - more)))?;
        let Some((next, _)) = raced else { break };
        for m in moves.iter_mut().filter(|m| tried.contains(m)) {
            let candidate = current.with(m.sublayer, m.to);
            m.promise = gain(&candidate, evaluator.known()[&candidate].kl());
        }
        moves.retain(|m| m.to < next.states()[m.sublayer]);
        kl = evaluator.score(&next)?.kl();
        current = next;
    }
    Ok(())
}
