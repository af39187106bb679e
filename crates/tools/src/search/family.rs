//! From thousands of candidates to the few that are worth keeping: those of which none is both cheaper and closer
//! to the full model.

use serde::{Deserialize, Serialize};

use super::{
    candidate::Candidate,
    costs::PassCosts,
    evaluator::Evaluator,
    judge::Drafts,
    speed::{self, Best},
};

/// What a candidate proved to be worth: whole drafts on positions that the search never saw, at a step's cost that
/// was timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// A draft step in plain steps.
    pub cost: f64,
    /// Held-out positions that it was judged on.
    #[serde(default)]
    pub positions: usize,
    /// Of the cost, what verification need not pay again.
    #[serde(default)]
    pub prefix: f64,
    /// The share of positions where both models' first choice is the same.
    pub agreement: f64,
    /// The mean of Σ min(p, q).
    pub overlap: f64,
    /// The mean KL divergence from the full model, in nats.
    pub kl: f64,
    /// Of greedy drafts: tokens per round by the length of the draft, from 1.
    pub greedy_tokens: Vec<f64>,
    /// Of drafts that are sampled with the program's defaults.
    pub sampled_tokens: Vec<f64>,
}

impl Proof {
    /// What drafts at this cost are worth.
    pub fn new(cost: f64, prefix: f64, drafts: &Drafts, depth: usize) -> Self {
        let tokens = |texts: &[Vec<Vec<f32>>]| {
            (1..=depth).map(|k| speed::tokens_walked(texts.iter().map(Vec::as_slice), k)).collect()
        };
        Proof {
            cost,
            positions: drafts.first.positions(),
            prefix,
            agreement: drafts.first.agreement(),
            overlap: drafts.first.overlap(),
            kl: drafts.first.kl(),
            greedy_tokens: tokens(&drafts.greedy),
            sampled_tokens: tokens(&drafts.sampled),
        }
    }

    /// One standard error of the agreement, as if each position were by itself; none where their number is not known.
    pub fn agreement_error(&self) -> Option<f64> {
        let n = Some(self.positions as f64).filter(|&n| n > 0.0)?;
        Some((self.agreement * (1.0 - self.agreement) / n).sqrt())
    }

    /// The best length of greedy drafts.
    pub fn greedy(&self, costs: &PassCosts) -> Best {
        costs.best(|k| self.greedy_tokens[k - 1], self.cost, self.prefix)
    }

    /// The best length of sampled drafts.
    pub fn sampled(&self, costs: &PassCosts) -> Best {
        costs.best(|k| self.sampled_tokens[k - 1], self.cost, self.prefix)
    }

    /// Predicted speedup of greedy drafts by their length, from 1.
    pub fn by_draft_len(&self, costs: &PassCosts) -> Vec<f64> {
        (1..=self.greedy_tokens.len()).map(|k| self.at(costs, k)).collect()
    }

    /// Of greedy drafts of `k` tokens.
    pub fn at(&self, costs: &PassCosts, k: usize) -> f64 {
        let verification = costs.verification(k + 1, self.prefix);
        speed::speedup(self.greedy_tokens[k - 1], k, self.cost, verification)
    }
}

/// Indices of the points `(cost, gain)` that no other point beats in both, cheapest first.
pub fn front(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&a, &b| points[a].0.total_cmp(&points[b].0).then(points[b].1.total_cmp(&points[a].1)));
    let mut best = f64::NEG_INFINITY;
    order.retain(|&i| {
        let beats = points[i].1 > best;
        best = best.max(points[i].1);
        beats
    });
    order
}

/// The candidates to prove: the best few by the objective, and of the front between agreement and cost some at all
/// costs.
pub fn finalists(evaluator: &Evaluator, best: usize, spread: usize) -> Vec<Candidate> {
    let mut chosen: Vec<Candidate> = Vec::new();
    let movable = evaluator.movable();
    let useful = |c: &Candidate| !c.is_full() && !movable.none_runs(c);
    let ranking = evaluator.ranking();
    chosen.extend(ranking.iter().map(|r| &r.0).filter(|c| useful(c)).take(best).cloned());
    let ranked: Vec<&Candidate> = ranking.iter().map(|r| &r.0).filter(|c| useful(c)).collect();
    let points: Vec<(f64, f64)> =
        ranked.iter().map(|c| (evaluator.costs().of(c), evaluator.known()[*c].agreement())).collect();
    let front = front(&points);
    // Evenly over the costs that the front covers.
    if let (Some(&first), Some(&last)) = (front.first(), front.last()) {
        let (low, high) = (points[first].0, points[last].0);
        for i in 0..spread {
            let wanted = low + (high - low) * (i as f64 + 0.5) / spread as f64;
            let nearest = front
                .iter()
                .filter(|&&p| !chosen.contains(ranked[p]))
                .min_by(|&&a, &&b| (points[a].0 - wanted).abs().total_cmp(&(points[b].0 - wanted).abs()));
            let Some(&p) = nearest else { break };
            chosen.push(ranked[p].clone());
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_has_who_is_not_beaten() {
        let points = [(0.5, 0.6), (0.3, 0.5), (0.4, 0.4), (0.5, 0.7), (0.9, 0.7), (0.2, 0.1)];
        assert_eq!(front(&points), [5, 1, 3]);
        assert!(front(&[]).is_empty());
    }
}
