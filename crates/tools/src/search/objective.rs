//! What makes one candidate better than another.

use std::str::FromStr;

use super::{candidate::Candidate, costs::PassCosts, score::Score, speed};

/// What is sought. Only speed weighs agreement against cost; the other two are for research, and seek the best
/// that a given cost can buy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    /// The predicted speedup.
    Speed,
    /// The agreement with the full model.
    Agreement {
        /// The most that a draft step may cost, in plain steps.
        most_cost: f64,
    },
    /// The perplexity under the mask.
    Perplexity {
        /// The most that a draft step may cost, in plain steps.
        most_cost: f64,
    },
}

/// Names of the objectives, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The predicted speedup.
    Speed,
    /// The agreement with the full model.
    Agreement,
    /// The perplexity under the mask.
    Perplexity,
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "speed" => Ok(Goal::Speed),
            "agreement" => Ok(Goal::Agreement),
            "perplexity" => Ok(Goal::Perplexity),
            _ => Err("there is speed, agreement and perplexity".into()),
        }
    }
}

/// Above the allowed cost, each per cent of it outweighs anything that it could buy.
const EXCESS: f64 = 100.0;
/// Between equal agreements the overlap decides.
const TIE: f64 = 1e-3;

impl Objective {
    /// The goal, at this cost at most where it is not speed.
    pub fn new(goal: Goal, most_cost: f64) -> Self {
        match goal {
            Goal::Speed => Objective::Speed,
            Goal::Agreement => Objective::Agreement { most_cost },
            Goal::Perplexity => Objective::Perplexity { most_cost },
        }
    }

    /// The same at any cost: how steps that each take one sublayer are compared.
    pub fn of_steps(&self) -> Self {
        let most_cost = f64::INFINITY;
        match self {
            Objective::Speed => Objective::Speed,
            Objective::Agreement { .. } => Objective::Agreement { most_cost },
            Objective::Perplexity { .. } => Objective::Perplexity { most_cost },
        }
    }

    /// The cost that is allowed, where one is.
    pub fn most_cost(&self) -> Option<f64> {
        match *self {
            Objective::Speed => None,
            Objective::Agreement { most_cost } | Objective::Perplexity { most_cost } => Some(most_cost),
        }
    }

    /// More is better.
    pub fn value(&self, costs: &PassCosts, candidate: &Candidate, score: &Score) -> f64 {
        self.value_at(costs, candidate, score, 0.0)
    }

    /// If the agreement were so much higher.
    pub fn value_at(&self, costs: &PassCosts, candidate: &Candidate, score: &Score, more: f64) -> f64 {
        let c = costs.of(candidate);
        let agreement = (score.agreement() + more).min(1.0);
        let tie = TIE * score.overlap();
        match *self {
            Objective::Speed => {
                costs
                    .best(|k| speed::tokens_if_independent(agreement, k), c, costs.prefix(&candidate.mask()))
                    .speedup
                    + tie
            }
            Objective::Agreement { most_cost } => agreement + tie - EXCESS * (c - most_cost).max(0.0),
            Objective::Perplexity { most_cost } => {
                -score.perplexity().ln() * (1.0 - more) - EXCESS * (c - most_cost).max(0.0)
            }
        }
    }
}
