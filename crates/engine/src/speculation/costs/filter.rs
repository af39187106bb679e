//! What takes how long, from timings that are noisy on a machine that drifts.
//!
//! A timing is modelled in logarithms as `pace + shape(kind) + noise`: the pace is the machine's and goes up and down
//! for everything alike, a shape is what one kind of work costs relative to a plain step and stays nearly put. A
//! Kalman filter over both tells them apart, also when a plain step is seen only now and then: the covariance
//! remembers that pace and shapes were seen together. Innovations are clipped, so that a time during which the
//! machine was busy with something else moves little.

/// How much one timing scatters, by itself.
const NOISE: f64 = 0.1;
/// How far the machine's pace wanders from one round to the next.
const PACE_DRIFT: f64 = 0.04;
/// How far a shape wanders: a context grows deeper, other kernels take over.
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
    /// Shapes as they are believed to be, and how sure that is; of the pace nothing is known.
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

    /// A round goes by.
    pub fn drift(&mut self) {
        let n = self.mean.len();
        for i in 0..n {
            let step = if i == 0 { PACE_DRIFT } else { SHAPE_DRIFT };
            self.covariance[i * n + i] += step * step;
        }
    }

    /// The logarithm of a timing; `None` is a plain step, whose shape is 0 by definition. The mean of `samples`
    /// timings scatters less than one.
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
