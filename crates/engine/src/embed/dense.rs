//! Products of a matrix with one row of a text. Sums go in sixteen lanes and then in order, on every processor alike.

use crate::{Model, model::Dense};

const LANES: usize = 16;

pub struct Matrix {
    /// `[rows, cols]`
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    cols: usize,
}

impl Matrix {
    pub fn new(model: &Model, dense: &Dense) -> Self {
        Matrix {
            weight: model.numbers(&dense.weight),
            bias: dense.bias.as_ref().map(|bias| model.numbers(bias)),
            cols: dense.weight.cols,
        }
    }

    pub fn rows(&self) -> usize {
        self.weight.len() / self.cols
    }

    pub fn times(&self, x: &[f32]) -> Vec<f32> {
        let mut out: Vec<f32> = self.weight.chunks_exact(self.cols).map(|row| product(row, x)).collect();
        if let Some(bias) = &self.bias {
            out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
        }
        out
    }
}

fn product(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let ((a, last_a), (b, last_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = last_a.iter().zip(last_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
