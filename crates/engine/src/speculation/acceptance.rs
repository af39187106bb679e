//! The probability that a drafted token is accepted, learnt from tokens that were accepted or rejected.
//!
//! A logistic regression on what is known of the token: how sure the draft was or how long the match, its position in the draft,
//! and how the source's last draft ended. It is kept as a mean and a covariance and updated token by token. Counting in buckets
//! of confidence would take some hundred tokens to be useful; three slopes with a prior are useful after five, and their
//! uncertainty is known as well. Old evidence fades, because texts change.

use serde::{Deserialize, Serialize};

/// What is known before a token is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The draft's confidence as a logit, or the logarithm of a match's length; 0 if there is neither.
    pub strength: f64,
    /// Place in the draft, from 0.
    pub place: usize,
    /// The source's draft before this one was accepted whole.
    pub hot: bool,
}

impl Evidence {
    pub fn of_confidence(confidence: f32, place: usize, hot: bool) -> Self {
        Evidence { strength: logit(f64::from(confidence).clamp(0.01, 0.995)), place, hot }
    }

    fn features(self) -> [f64; DIMS] {
        [1.0, self.strength, (1.0 + self.place as f64).ln(), f64::from(self.hot)]
    }
}

const DIMS: usize = 4;
/// How much each weight may change with every token that is checked (a variance).
const FADE: [f64; DIMS] = [0.004, 0.0004, 0.0004, 0.001];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acceptance {
    weights: [f64; DIMS],
    covariance: [[f64; DIMS]; DIMS],
}

impl Acceptance {
    /// A prior: the weights of the constant, `strength`, `place` and `hot`, and the standard deviation of each.
    pub fn prior(weights: [f64; DIMS], doubt: [f64; DIMS]) -> Self {
        let mut covariance = [[0.0; DIMS]; DIMS];
        (0..DIMS).for_each(|i| covariance[i][i] = doubt[i] * doubt[i]);
        Acceptance { weights, covariance }
    }

    /// The chance that the token is accepted, given that all before it are.
    pub fn chance(&self, evidence: Evidence) -> f64 {
        self.hopeful_chance(evidence, 0.0)
    }

    /// The chance if it is better than estimated by so many standard deviations.
    pub fn hopeful_chance(&self, evidence: Evidence, deviations: f64) -> f64 {
        let x = evidence.features();
        let spread = if deviations == 0.0 { 0.0 } else { deviations * dot(&x, &self.spread(&x)).sqrt() };
        logistic(dot(&x, &self.weights) + spread)
    }

    /// Learns from a token that was checked: one step of the extended Kalman filter for a yes-or-no observation.
    pub fn learn(&mut self, evidence: Evidence, accepted: bool) {
        (0..DIMS).for_each(|i| self.covariance[i][i] += FADE[i]);
        let x = evidence.features();
        let chance = self.chance(evidence);
        let information = chance * (1.0 - chance);
        let along = self.spread(&x);
        let gain = 1.0 / (1.0 + information * dot(&x, &along));
        let surprise = f64::from(accepted) - chance;
        for i in 0..DIMS {
            self.weights[i] += along[i] * gain * surprise;
            for j in 0..DIMS {
                self.covariance[i][j] -= along[i] * along[j] * information * gain;
            }
        }
    }

    /// Makes the learnt level less certain, after a time without checked tokens.
    pub fn doubt(&mut self, level: f64) {
        self.covariance[0][0] = self.covariance[0][0].max(level * level);
    }

    /// Whether learning could have given these numbers: a file may hold anything.
    pub fn is_sound(&self) -> bool {
        let variances = (0..DIMS).all(|i| self.covariance[i][i] > 0.0 && self.covariance[i][i] < 1e3);
        let bounded = |v: &f64| v.abs() < 1e3;
        variances && self.weights.iter().all(bounded) && self.covariance.iter().flatten().all(bounded)
    }

    fn spread(&self, x: &[f64; DIMS]) -> [f64; DIMS] {
        std::array::from_fn(|i| dot(&self.covariance[i], x))
    }
}

pub fn logit(p: f64) -> f64 {
    (p / (1.0 - p)).ln()
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn dot(a: &[f64; DIMS], b: &[f64; DIMS]) -> f64 {
    std::iter::zip(a, b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn vague() -> Acceptance {
        Acceptance::prior([0.5, 0.5, 0.0, 0.0], [1.0, 0.5, 0.3, 0.5])
    }

    #[test]
    fn learns_what_confidence_is_worth() {
        let mut model = vague();
        let mut rng = Rng::new(3);
        for _ in 0..2000 {
            let confidence = if rng.next_f64() < 0.5 { 0.95_f32 } else { 0.3 };
            let truth = if confidence > 0.5 { 0.9 } else { 0.2 };
            model.learn(Evidence::of_confidence(confidence, 0, false), rng.next_f64() < truth);
        }
        let sure = model.chance(Evidence::of_confidence(0.95, 0, false));
        let unsure = model.chance(Evidence::of_confidence(0.3, 0, false));
        assert!((sure - 0.9).abs() < 0.08 && (unsure - 0.2).abs() < 0.12, "{sure} {unsure}");
    }

    #[test]
    fn hope_shrinks_with_evidence_and_a_text_that_changes_is_noticed() {
        let mut model = vague();
        let evidence = Evidence { strength: 0.0, place: 0, hot: false };
        let before = model.hopeful_chance(evidence, 1.0) - model.chance(evidence);
        (0..30).for_each(|_| model.learn(evidence, false));
        assert!(model.hopeful_chance(evidence, 1.0) < 0.2);
        assert!(model.hopeful_chance(evidence, 1.0) - model.chance(evidence) < before);
        (0..40).for_each(|_| model.learn(evidence, true));
        assert!(model.chance(evidence) > 0.7, "{}", model.chance(evidence));
    }

    #[test]
    fn a_covariance_stays_one_under_any_evidence() {
        let mut model = vague();
        let mut rng = Rng::new(9);
        for _ in 0..20_000 {
            let evidence = Evidence {
                strength: 10.0 * (rng.next_f64() - 0.5),
                place: (rng.next_f64() * 16.0) as usize,
                hot: rng.next_f64() < 0.5,
            };
            model.learn(evidence, rng.next_f64() < 0.7);
            let x = evidence.features();
            assert!(dot(&x, &model.spread(&x)) > 0.0 && model.is_sound());
        }
    }
}
