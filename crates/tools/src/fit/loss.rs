//! How far a head's predictions are from the full model's: cross-entropy to its probabilities on a list of tokens.

use rayon::prelude::*;
use spec_run_kernels::{
    dense::{CrossEntropy, Dense, DenseMut, Softmax},
    simd::Isa,
};

use super::chain::{Rows, Step};
use crate::head::{Part, Tables, Weights};

/// Of the first step, the second and so on.
const STEP_WEIGHTS: [f32; 3] = [1.0, 0.8, 0.6];

/// Steps that are trained.
pub const STEPS: usize = STEP_WEIGHTS.len();

/// Tokens with their rows of the model's output matrix.
pub struct List {
    pub tokens: Vec<u32>,
    /// `[tokens, dim]`
    rows: Vec<f32>,
    dim: usize,
}

impl List {
    pub fn new(tokens: Vec<u32>, tables: &Tables) -> Self {
        List { rows: tables.output_rows(&tokens), tokens, dim: tables.dim() }
    }

    /// `[states, tokens]` of `[states, dim]`, times a number.
    pub fn logits(&self, states: &[f32], times: f32) -> Vec<f32> {
        let (count, tokens) = (states.len() / self.dim, self.tokens.len());
        let mut logits = vec![0.0; count * tokens];
        let rows = Dense::new(&self.rows, tokens, self.dim).transposed();
        DenseMut::new(&mut logits, count, tokens).product(
            Dense::new(states, count, self.dim),
            rows,
            times,
            false,
        );
        logits
    }
}

/// A loss and its slopes.
pub struct Loss {
    /// The mean cross-entropy of each step.
    pub of_steps: Vec<f32>,
    /// By each step's outputs.
    pub by_outputs: Vec<Vec<f32>>,
    /// By [`Part::Scale`].
    pub by_scale: f32,
}

impl Loss {
    pub fn of(weights: &Weights, rows: &Rows, steps: &[Step], list: &List, isa: Isa) -> Self {
        let (dim, tokens) = (list.dim, list.tokens.len());
        let scale = weights.scale();
        let mut wanted = list.logits(&rows.states, 1.0);
        wanted.par_chunks_mut(tokens).for_each(|logits| Softmax { logits }.on(isa));
        let mut loss = Loss { of_steps: Vec::new(), by_outputs: Vec::new(), by_scale: 0.0 };
        for (step, weight) in steps.iter().zip(STEP_WEIGHTS) {
            let count = step.rows.len();
            let share = 1.0 / count.max(1) as f32;
            let mut logits = list.logits(&step.out, scale);
            let row_loss = |(logits, &row): (&mut [f32], &usize)| {
                CrossEntropy { logits, wanted: &wanted[row * tokens..][..tokens] }.on(isa)
            };
            let losses: Vec<f32> =
                logits.par_chunks_mut(tokens).zip(step.rows.par_iter()).map(row_loss).collect();
            loss.of_steps.push(losses.iter().sum::<f32>() * share);
            let mut by_output = vec![0.0; count * dim];
            DenseMut::new(&mut by_output, count, dim).product(
                Dense::new(&logits, count, tokens),
                Dense::new(&list.rows, tokens, dim),
                weight * share,
                false,
            );
            loss.by_scale += by_output.iter().zip(&step.out).map(|(by, x)| by * x).sum::<f32>();
            by_output.iter_mut().for_each(|by| *by *= scale);
            loss.by_outputs.push(by_output);
        }
        loss
    }

    /// The slopes by all of a head's weights.
    pub fn slopes(self, weights: &Weights, rows: &Rows, steps: &[Step]) -> Weights {
        let by_scale = self.by_scale;
        let mut slopes = super::chain::backward(weights, rows, steps, self.by_outputs);
        slopes.part_mut(Part::Scale)[0] = by_scale;
        slopes
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::chain::{forward, tests::*},
        *,
    };
    use crate::fit::noise::Noise;

    #[test]
    fn slopes_of_the_whole_loss_are_what_small_steps_change() {
        let (weights, rows, mut noise) = (weights(5), rows(6), Noise::new(7));
        let list =
            List { tokens: (0..9).collect(), rows: (0..9 * 6).map(|_| noise.normal()).collect(), dim: 6 };
        let isa = Isa::detect();
        let loss = |weights: &Weights| {
            let steps = forward(weights, &rows, STEPS);
            Loss::of(weights, &rows, &steps, &list, isa)
        };
        let steps = forward(&weights, &rows, STEPS);
        let slopes = loss(&weights).slopes(&weights, &rows, &steps);
        let at = |i: usize, step: f32| {
            let mut moved = weights.clone();
            moved.numbers_mut()[i] += step;
            let losses = loss(&moved).of_steps;
            losses.iter().zip(STEP_WEIGHTS).map(|(loss, weight)| f64::from(loss * weight)).sum::<f64>()
        };
        for part in Part::ALL {
            for i in weights.shape().range(part) {
                let wanted = (at(i, 0.01) - at(i, -0.01)) / 0.02;
                let found = f64::from(slopes.numbers()[i]);
                assert!(
                    (found - wanted).abs() < 0.003 + 0.02 * wanted.abs(),
                    "{part:?} {i}: {found} for {wanted}"
                );
            }
        }
    }

    #[test]
    fn the_loss_is_least_where_the_head_says_what_the_model_says() {
        let (mut weights, mut rows, mut noise) = (weights(8), rows(9), Noise::new(10));
        let list =
            List { tokens: (0..9).collect(), rows: (0..9 * 6).map(|_| noise.normal()).collect(), dim: 6 };
        weights.part_mut(Part::Scale)[0] = 1.0;
        let steps = forward(&weights, &rows, 1);
        rows.states.clone_from(&steps[0].out);
        let loss = Loss::of(&weights, &rows, &steps, &list, Isa::detect());
        assert!(loss.by_outputs[0].iter().all(|by| by.abs() < 1e-5));
        // The entropy of the model's own probabilities, which no prediction is below.
        let entropy = |logits: &[f32]| {
            let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
            logits.iter().map(|&x| f64::from(x).exp() / sum * (sum.ln() - f64::from(x))).sum::<f64>()
        };
        let wanted = list.logits(&rows.states, 1.0).chunks(9).map(entropy).sum::<f64>() / 5.0;
        assert!((f64::from(loss.of_steps[0]) - wanted).abs() < 1e-4);
    }
}
