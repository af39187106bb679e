//! AdamW, with slopes cut to a length, and an average of the weights over the last steps.

use rayon::prelude::*;

use crate::head::{Part, Weights};

const BETAS: [f32; 2] = [0.9, 0.98];
const EPS: f32 = 1e-8;
/// What matrices of the MLP lose in each step, times the rate.
const DECAY: f32 = 0.01;
/// The ridges' maps are good already, and move so much more slowly.
const OF_LINEAR: f32 = 0.1;
/// The length that the slopes of a step are cut to.
const MOST_LENGTH: f32 = 1.0;
const AVERAGE: f32 = 0.99;
/// Numbers for one thread at a time.
const SHARE: usize = 1 << 16;

/// A head in training.
pub struct Optimizer {
    pub weights: Weights,
    /// What is taken in the end.
    pub average: Weights,
    moments: [Vec<f32>; 2],
    steps: i32,
}

/// What a number's step depends on beside its own slope.
#[derive(Clone, Copy)]
struct Pace {
    rate: f32,
    decay: f32,
    cut: f32,
    /// What the moments lack because they began at zero.
    begun: [f32; 2],
    /// Of the new weights in the average.
    fresh: f32,
}

impl Optimizer {
    pub fn new(weights: Weights) -> Self {
        let zero = vec![0.0; weights.numbers().len()];
        Optimizer { average: weights.clone(), weights, moments: [zero.clone(), zero], steps: 0 }
    }

    pub fn steps(&self) -> u32 {
        self.steps as u32
    }

    pub fn step(&mut self, slopes: &Weights, rate: f32) {
        self.steps += 1;
        let steps = self.steps;
        let squares: f32 =
            slopes.numbers().par_chunks(SHARE).map(|part| part.iter().map(|x| x * x).sum::<f32>()).sum();
        let length = squares.sqrt();
        let shape = self.weights.shape().clone();
        for part in Part::ALL {
            let range = shape.range(part);
            let pace = Pace {
                rate: if part.is_linear() { OF_LINEAR * rate } else { rate },
                decay: if part.is_matrix() && !part.is_linear() { DECAY } else { 0.0 },
                cut: (MOST_LENGTH / length.max(MOST_LENGTH)).min(1.0),
                begun: BETAS.map(|beta| 1.0 - beta.powi(steps)),
                // At first the average has seen few steps.
                fresh: 1.0 - AVERAGE.min(steps as f32 / (steps + 9) as f32),
            };
            let [first, second] = self.moments.each_mut().map(|moments| &mut moments[range.clone()]);
            self.weights.numbers_mut()[range.clone()]
                .par_chunks_mut(SHARE)
                .zip(self.average.numbers_mut()[range.clone()].par_chunks_mut(SHARE))
                .zip(first.par_chunks_mut(SHARE).zip(second.par_chunks_mut(SHARE)))
                .zip(slopes.numbers()[range].par_chunks(SHARE))
                .for_each(|(((weights, average), (first, second)), slopes)| {
                    for i in 0..weights.len() {
                        let slope = slopes[i] * pace.cut;
                        first[i] += (1.0 - BETAS[0]) * (slope - first[i]);
                        second[i] += (1.0 - BETAS[1]) * (slope * slope - second[i]);
                        let deviation = (second[i] / pace.begun[1]).sqrt() + EPS;
                        weights[i] -= pace.rate * pace.decay * weights[i];
                        weights[i] -= pace.rate * first[i] / pace.begun[0] / deviation;
                        average[i] += pace.fresh * (weights[i] - average[i]);
                    }
                });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HeadShape;

    fn one() -> Weights {
        let mut weights = Weights::zero(HeadShape { dim: 2, taps: vec![1], hidden: 2 });
        weights.numbers_mut().fill(1.0);
        weights
    }

    /// Adam's first step is the rate in the direction of the slope, whatever its size.
    #[test]
    fn the_first_step_is_as_long_as_the_rate() {
        let mut optimizer = Optimizer::new(one());
        let mut slopes = one();
        slopes.numbers_mut().iter_mut().for_each(|x| *x = 1e-3);
        optimizer.step(&slopes, 0.5);
        let moved = |part: Part| optimizer.weights.part(part)[0];
        assert!((moved(Part::Fuse) - 0.95).abs() < 1e-3, "{}", moved(Part::Fuse));
        assert!((moved(Part::Scale) - 0.5).abs() < 1e-3);
        // Decay takes 0.5 · 0.01 of a matrix of the MLP.
        assert!((moved(Part::Down) - 0.495).abs() < 1e-3);
        // After one step the average has a tenth of the way left behind.
        assert!((optimizer.average.part(Part::Scale)[0] - (1.0 - 0.9 * 0.5)).abs() < 1e-3);
    }

    #[test]
    fn long_slopes_are_cut_and_keep_their_direction() {
        let run = |size: f32| {
            let mut optimizer = Optimizer::new(one());
            for step in 0..3 {
                let mut slopes = one();
                slopes
                    .numbers_mut()
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, x)| *x = size * ((i + step) % 5) as f32);
                optimizer.step(&slopes, 0.01);
            }
            optimizer.weights
        };
        assert_eq!(
            run(10.0).numbers().iter().map(|x| (x * 1e4).round()).collect::<Vec<_>>(),
            run(1000.0).numbers().iter().map(|x| (x * 1e4).round()).collect::<Vec<_>>()
        );
    }
}
