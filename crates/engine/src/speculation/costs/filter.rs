//! Estimates how long each kind of work takes, from noisy timings on a machine whose speed changes.
//!
//! A timing is modelled in logarithms as `pace + shape(kind) + noise`. The pace is the machine's, and changes for all work alike. A
//! shape is the cost of one kind of work relative to a plain step, and stays nearly constant. A Kalman filter estimates both,
//! even if plain steps are rarely measured: the covariance keeps that pace and shapes were measured together. Innovations are
//! clipped, so that a timing changes little if the machine was busy with something else.

/// The standard deviation of a single timing.
const NOISE: f64 = 0.1;
/// How much the machine's pace changes from one round to the next.
const PACE_DRIFT: f64 = 0.04;
/// How much a shape changes: a text grows longer, other kernels are used.
const SHAPE_DRIFT: f64 = 0.003;
/// Innovations count for at most so many of their standard deviations.
const CLIP: f64 = 2.0;

#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// The pace first, then the shapes.
    mean: Vec<f64>,
    /// `[n, n]`
    covariance: Vec<f64>,
}

impl Filter {
    /// With estimated shapes and their covariance. Nothing is known of the pace.
    pub fn new(shapes: &[f64], covariance: impl Fn(usize, usize) -> f64) -> Self {
        const NO_IDEA: f64 = 20.0;
        let n = shapes.len() + 1;
        let mean = std::iter::once(0.0).chain(shapes.iter().copied()).collect();
        let at = |i: usize, j: usize| match (i, j) {
            (0, 0) => NO_IDEA * NO_IDEA,
            (0, _) | (_, 0) => 0.0,
            _ => covariance(i - 1, j - 1),
        };
        Filter { mean, covariance: (0..n * n).map(|ij| at(ij / n, ij % n)).collect() }
    }

    pub fn pace(&self) -> f64 {
        self.mean[0]
    }

    pub fn shape(&self, kind: usize) -> f64 {
        self.mean[kind + 1]
    }

    /// Lets a round pass.
    pub fn drift(&mut self) {
        let n = self.mean.len();
        for i in 0..n {
            let step = if i == 0 { PACE_DRIFT } else { SHAPE_DRIFT };
            self.covariance[i * n + i] += step * step;
        }
    }

    /// Learns from the logarithm of a timing. `None` is a plain step, whose shape is 0 by definition. The timing is the mean of
    /// `samples` timings, which is less noisy than one.
    pub fn observe(&mut self, kind: Option<usize>, log_seconds: f64, samples: usize) {
        let n = self.mean.len();
        let other = kind.map(|kind| kind + 1);
        let believed = self.mean[0] + other.map_or(0.0, |i| self.mean[i]);
        // Covariance of every state with the timing, and the timing's own variance.
        let with: Vec<f64> = (0..n)
            .map(|i| self.covariance[i * n] + other.map_or(0.0, |j| self.covariance[i * n + j]))
            .collect();
        let known = with[0] + other.map_or(0.0, |j| with[j]);
        let variance = known + NOISE * NOISE / samples.max(1) as f64;
        let limit = CLIP * variance.sqrt();
        let surprise = (log_seconds - believed).clamp(-limit, limit);
        for i in 0..n {
            self.mean[i] += with[i] / variance * surprise;
            for j in 0..n {
                self.covariance[i * n + j] -= with[i] * with[j] / variance;
            }
        }
    }
}
