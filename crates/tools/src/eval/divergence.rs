//! How far a model is from another one, of which a file has what it says: llama-perplexity's statistics, by its formulas.

use super::{agreement::LogProbs, base::BaseRow};

/// Less likely tokens of the other model are passed over.
const LEAST: f32 = -16.0;
/// Of fewer positions nothing is said about errors.
const FEW: usize = 10;

/// A mean, and one standard error of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// One standard error.
    pub error: f64,
}

/// Sums over scored positions.
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    /// By position: the negative log-likelihood of the next token, by this model and by the other.
    nll: Vec<[f64; 2]>,
    /// The KL divergence from the other model, in nats.
    kl: Vec<f64>,
    /// How much more likely the next token is than by the other model.
    change: Vec<f64>,
    same_first: usize,
}

impl Divergence {
    /// Adds a position: this model's logits, what the other says, and the token that came next.
    pub fn add(&mut self, logits: &[f32], other: &BaseRow, next: u32) {
        let own = LogProbs::new(logits);
        let (mut kl, mut best) = (0.0, (0, f32::NEG_INFINITY));
        for token in 0..own.len() {
            let log_p = other.at(token);
            if token == 0 || log_p > best.1 {
                best = (token, log_p);
            }
            if log_p > LEAST {
                let log_p = f64::from(log_p);
                kl += log_p.exp() * (log_p - own.at(token));
            }
        }
        let nll = [-own.at(next as usize), -f64::from(other.at(next as usize))];
        self.nll.push(nll);
        self.kl.push(kl);
        self.change.push((-nll[0]).exp() - (-nll[1]).exp());
        self.same_first += usize::from(best.0 == own.best);
    }

    /// Positions so far.
    pub fn positions(&self) -> usize {
        self.kl.len()
    }

    /// The perplexities of this model and of the other.
    pub fn perplexities(&self) -> [Estimate; 2] {
        [0, 1].map(|which| {
            let log = estimate(self.nll.iter().map(|nll| nll[which]));
            let value = log.value.exp();
            Estimate { value, error: value * log.error }
        })
    }

    /// ln of the ratio of both perplexities.
    pub fn log_ratio(&self) -> Estimate {
        let [own, other] = [0, 1].map(|which| estimate(self.nll.iter().map(|nll| nll[which])));
        let variance = own.error.powi(2) + other.error.powi(2) - 2.0 * self.covariance();
        Estimate { value: own.value - other.value, error: variance.max(0.0).sqrt() }
    }

    /// How far the means of both move together: 1 is wholly.
    pub fn correlation(&self) -> f64 {
        let [own, other] = [0, 1].map(|which| estimate(self.nll.iter().map(|nll| nll[which])));
        self.covariance() / (own.error * other.error)
    }

    fn covariance(&self) -> f64 {
        let n = self.nll.len() as f64;
        let mean = |of: &dyn Fn(&[f64; 2]) -> f64| self.nll.iter().map(of).sum::<f64>() / n;
        let both = mean(&|nll| nll[0] * nll[1]);
        if self.nll.len() < FEW {
            0.0
        } else {
            (both - mean(&|nll| nll[0]) * mean(&|nll| nll[1])) / (n - 1.0)
        }
    }

    /// The mean KL divergence.
    pub fn kl(&self) -> Estimate {
        estimate(self.kl.iter().copied())
    }

    /// So much of the positions have less of it.
    pub fn kl_quantile(&self, share: f64) -> f64 {
        quantile(&self.kl, share)
    }

    /// The mean change of the next token's probability.
    pub fn change(&self) -> Estimate {
        estimate(self.change.iter().copied())
    }

    /// Its root mean square.
    pub fn change_rms(&self) -> Estimate {
        let squares = estimate(self.change.iter().map(|change| change * change));
        let value = squares.value.sqrt();
        Estimate { value, error: if value > 0.0 { 0.5 / value * squares.error } else { 0.0 } }
    }

    /// So much of the positions have a smaller one.
    pub fn change_quantile(&self, share: f64) -> f64 {
        quantile(&self.change, share)
    }

    /// How often both have the same first choice.
    pub fn same_first(&self) -> Estimate {
        let n = self.positions() as f64;
        let value = self.same_first as f64 / n;
        Estimate { value, error: (value * (1.0 - value) / (n - 1.0)).sqrt() }
    }
}

fn estimate(values: impl Iterator<Item = f64>) -> Estimate {
    let (mut n, mut sum, mut squares) = (0usize, 0.0, 0.0);
    for value in values {
        (n, sum, squares) = (n + 1, sum + value, squares + value * value);
    }
    let value = sum / n.max(1) as f64;
    let variance = squares / n.max(1) as f64 - value * value;
    let known = n > FEW && variance > 0.0;
    Estimate { value, error: if known { (variance / (n - 1) as f64).sqrt() } else { 0.0 } }
}

/// Between two values in proportion.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, part) = (at as usize, at.fract());
    (1.0 - part) * sorted[below] + part * sorted[last.min(below + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values_in_proportion() {
        let values = [4.0, 1.0, 3.0, 2.0];
        let at = |share| quantile(&values, share);
        assert_eq!([at(0.0), at(0.5), at(1.0), at(0.1)], [1.0, 2.5, 4.0, 1.0 + 0.1 * 3.0]);
    }

    #[test]
    fn an_error_is_the_spread_over_the_root_of_the_count() {
        let found = estimate((0..101).map(|i| f64::from(i % 2)));
        let mean = 50.0 / 101.0;
        let error = ((mean - mean * mean) / 100.0f64).sqrt();
        assert!((found.value - mean).abs() < 1e-12 && (found.error - error).abs() < 1e-12, "{found:?}");
        assert_eq!(estimate([1.0, 2.0].into_iter()).error, 0.0);
    }
}
