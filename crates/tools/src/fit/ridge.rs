//! Linear maps by least squares with a penalty: all that is kept of the rows is their products with each other, so memory
//! does not grow with them.

use std::ops::Range;

use spec_run_kernels::dense::{Dense, DenseMut};

use crate::{Error, Result};

/// Columns that are taken together.
const BLOCK: usize = 256;
/// A column that hardly varies counts as if it varied so much.
const LEAST: f32 = 1e-9;

/// Sums over rows of inputs and of what is wanted of them.
pub struct Ridge {
    inputs: usize,
    outputs: usize,
    rows: usize,
    /// About what the inputs and outputs are on average: sums of differences lose fewer bits.
    around: Option<[Vec<f32>; 2]>,
    sums: [Vec<f64>; 2],
    /// `[inputs, inputs]`: below the diagonal what a solution makes of it, above it and on it the products.
    gram: Vec<f32>,
    /// `[inputs, outputs]`
    cross: Vec<f32>,
    /// The roots of the diagonal, once no more rows come.
    scales: Vec<f32>,
}

/// `out = weights · in + bias`
pub struct Linear {
    /// `[outputs, inputs]`
    pub weights: Vec<f32>,
    pub bias: Vec<f32>,
}

impl Ridge {
    pub fn new(inputs: usize, outputs: usize) -> Result<Self> {
        let mut gram = Vec::new();
        gram.try_reserve_exact(inputs * inputs).map_err(|_| {
            Error::Memory(format!(
                "no memory for the products of {inputs} inputs: free {} MiB",
                (inputs * inputs) >> 18
            ))
        })?;
        gram.resize(inputs * inputs, 0.0);
        Ok(Ridge {
            inputs,
            outputs,
            rows: 0,
            around: None,
            sums: [vec![0.0; inputs], vec![0.0; outputs]],
            gram,
            cross: vec![0.0; inputs * outputs],
            scales: Vec::new(),
        })
    }

    /// Adds rows: `x` is `[rows, inputs]`, `y` `[rows, outputs]`; both are changed.
    pub fn add(&mut self, x: &mut [f32], y: &mut [f32]) {
        let Ridge { inputs, outputs, .. } = *self;
        let rows = x.len() / inputs;
        assert_eq!(y.len(), rows * outputs, "what is wanted of {rows} rows");
        assert!(self.scales.is_empty(), "rows come before solutions");
        if rows == 0 {
            return;
        }
        let [mean_x, mean_y] = self.around.get_or_insert_with(|| [means(x, inputs), means(y, outputs)]);
        for (numbers, mean, sums) in [(&mut *x, mean_x, 0), (&mut *y, mean_y, 1)] {
            for row in numbers.chunks_exact_mut(mean.len()) {
                row.iter_mut().zip(&*mean).for_each(|(x, mean)| *x -= mean);
                self.sums[sums].iter_mut().zip(&*row).for_each(|(sum, &x)| *sum += f64::from(x));
            }
        }
        self.rows += rows;
        let (x, y) = (Dense::new(x, rows, inputs), Dense::new(y, rows, outputs));
        for begin in (0..inputs).step_by(BLOCK) {
            let count = BLOCK.min(inputs - begin);
            let block = &mut self.gram[begin * inputs..][..count * inputs];
            let right = inputs - begin;
            DenseMut::new(block, count, inputs).columns(begin, right).product(
                x.columns(begin, count).transposed(),
                x.columns(begin, right),
                1.0,
                true,
            );
        }
        DenseMut::new(&mut self.cross, inputs, outputs).product(x.transposed(), y, 1.0, true);
    }

    /// Sums become covariances with a diagonal of ones.
    fn finish(&mut self) {
        let Ridge { inputs, outputs, rows, .. } = *self;
        let [mean_x, mean_y] =
            self.sums.each_ref().map(|sums| sums.iter().map(|sum| sum / rows as f64).collect::<Vec<_>>());
        for i in 0..inputs {
            let all = rows as f64 * mean_x[i];
            let row = &mut self.gram[i * inputs..][..inputs];
            (i..inputs).for_each(|j| row[j] -= (all * mean_x[j]) as f32);
            let row = &mut self.cross[i * outputs..][..outputs];
            (0..outputs).for_each(|j| row[j] -= (all * mean_y[j]) as f32);
        }
        self.scales = (0..inputs).map(|i| self.gram[i * inputs + i].max(LEAST).sqrt()).collect();
        for i in 0..inputs {
            let row = &mut self.gram[i * inputs..][..inputs];
            (i..inputs).for_each(|j| row[j] /= self.scales[i] * self.scales[j]);
            let row = &mut self.cross[i * outputs..][..outputs];
            row.iter_mut().for_each(|x| *x /= self.scales[i]);
        }
    }

    /// The map of least squared error, where squared weights of inputs of variance 1 cost `strength` of the rows' variance.
    /// May be asked again with another strength.
    pub fn solve(&mut self, strength: f32) -> Result<Linear> {
        let Ridge { inputs, outputs, rows, .. } = *self;
        if rows == 0 {
            return Err(Error::Input("no rows to fit a map to: give more text".into()));
        }
        if self.scales.is_empty() {
            self.finish();
        }
        let inverses = factorize(&mut self.gram, inputs, strength)?;
        let mut solution = self.cross.clone();
        substitute(&self.gram, &inverses, &mut solution, outputs);
        let mut weights = vec![0.0; outputs * inputs];
        for (i, row) in solution.chunks_exact(outputs).enumerate() {
            row.iter().enumerate().for_each(|(j, x)| weights[j * inputs + i] = x / self.scales[i]);
        }
        let [around_x, around_y] = self.around.as_ref().expect("there are rows");
        let center = |around: &[f32], sums: &[f64]| -> Vec<f64> {
            around.iter().zip(sums).map(|(&x, sum)| f64::from(x) + sum / rows as f64).collect()
        };
        let (x, y) = (center(around_x, &self.sums[0]), center(around_y, &self.sums[1]));
        let bias = weights
            .chunks_exact(inputs)
            .zip(&y)
            .map(|(row, y)| (y - row.iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum::<f64>()) as f32);
        Ok(Linear { bias: bias.collect(), weights })
    }
}

fn means(rows: &[f32], width: usize) -> Vec<f32> {
    let count = (rows.len() / width) as f32;
    let mut sums = vec![0.0; width];
    for row in rows.chunks_exact(width) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x / count);
    }
    sums
}

/// Below the diagonal the matrix becomes Cholesky's factor of what is on and above it, which stays: so it can be factorized
/// again. Gives the inverses of the factor's blocks on the diagonal.
fn factorize(matrix: &mut [f32], n: usize, strength: f32) -> Result<Vec<Vec<f32>>> {
    for i in 0..n {
        for j in 0..i {
            matrix[i * n + j] = matrix[j * n + i];
        }
    }
    let blocks: Vec<Range<usize>> = (0..n).step_by(BLOCK).map(|begin| begin..n.min(begin + BLOCK)).collect();
    // Blocks on the diagonal lie apart until they are done, since their upper halves must stay.
    let mut diagonal: Vec<Vec<f32>> = blocks
        .iter()
        .map(|block| {
            let mut square: Vec<f32> =
                block.clone().flat_map(|i| &matrix[i * n..][block.clone()]).copied().collect();
            (0..block.len()).for_each(|i| square[i * block.len() + i] += strength);
            square
        })
        .collect();
    for (b, block) in blocks.iter().enumerate() {
        let width = block.len();
        factorize_block(&mut diagonal[b], width).map_err(|column| {
            Error::Input(format!(
                "input {} of {n} follows from the others: give more text, or a stronger ridge than {strength}",
                block.start + column
            ))
        })?;
        for (i, row) in diagonal[b].chunks_exact(width).enumerate() {
            matrix[(block.start + i) * n + block.start..][..i].copy_from_slice(&row[..i]);
        }
        diagonal[b] = inverse_of_lower(&diagonal[b], width);
        let rows = n - block.end;
        let below = &mut matrix[block.end * n..];
        let old: Vec<f32> = below.chunks_exact(n).flat_map(|row| &row[block.clone()]).copied().collect();
        let inverse = Dense::new(&diagonal[b], width, width).transposed();
        let mut panel = vec![0.0; rows * width];
        DenseMut::new(&mut panel, rows, width).product(Dense::new(&old, rows, width), inverse, 1.0, false);
        for (row, new) in below.chunks_exact_mut(n).zip(panel.chunks_exact(width)) {
            row[block.clone()].copy_from_slice(new);
        }
        let panel = Dense::new(&panel, rows, width);
        for (below, square) in blocks[b + 1..].iter().zip(&mut diagonal[b + 1..]) {
            let (first, count) = (below.start - block.end, below.len());
            let of_block = panel.some_rows(first, count);
            let out = DenseMut::new(&mut matrix[below.start * n..below.end * n], count, n);
            out.columns(block.end, first).product(
                of_block,
                panel.some_rows(0, first).transposed(),
                -1.0,
                true,
            );
            DenseMut::new(square, count, count).product(of_block, of_block.transposed(), -1.0, true);
        }
    }
    Ok(diagonal)
}

/// Cholesky's factor of a small matrix, in its lower triangle; or the column at which there is none.
fn factorize_block(matrix: &mut [f32], n: usize) -> Result<(), usize> {
    for j in 0..n {
        for i in j..n {
            let dot: f32 = (0..j).map(|k| matrix[i * n + k] * matrix[j * n + k]).sum();
            let left = matrix[i * n + j] - dot;
            if i > j {
                matrix[i * n + j] = left / matrix[j * n + j];
            } else if left > 0.0 {
                matrix[i * n + j] = left.sqrt();
            } else {
                return Err(j);
            }
        }
    }
    Ok(())
}

/// Of the lower triangle; zero above.
fn inverse_of_lower(lower: &[f32], n: usize) -> Vec<f32> {
    let mut inverse = vec![0.0; n * n];
    for i in 0..n {
        let (done, row) = inverse.split_at_mut(i * n);
        for k in 0..i {
            let factor = lower[i * n + k];
            row[..=k].iter_mut().zip(&done[k * n..][..=k]).for_each(|(x, y)| *x -= factor * y);
        }
        row[i] = 1.0;
        row[..=i].iter_mut().for_each(|x| *x /= lower[i * n + i]);
    }
    inverse
}

/// Solves for `[n, width]` right sides, which become the solution.
fn substitute(matrix: &[f32], inverses: &[Vec<f32>], sides: &mut [f32], width: usize) {
    let n = sides.len() / width;
    let factor = Dense::new(matrix, n, n);
    let mut solved = vec![0.0; BLOCK * width];
    for (b, inverse) in inverses.iter().enumerate() {
        let (begin, end) = (b * BLOCK, n.min((b + 1) * BLOCK));
        let count = end - begin;
        let (here, below) = sides[begin * width..].split_at_mut(count * width);
        let solved = &mut solved[..count * width];
        let inverse = Dense::new(inverse, count, count);
        DenseMut::new(solved, count, width).product(inverse, Dense::new(here, count, width), 1.0, false);
        here.copy_from_slice(solved);
        let panel = factor.some_rows(end, n - end).columns(begin, count);
        DenseMut::new(below, n - end, width).product(panel, Dense::new(here, count, width), -1.0, true);
    }
    for (b, inverse) in inverses.iter().enumerate().rev() {
        let (begin, end) = (b * BLOCK, n.min((b + 1) * BLOCK));
        let count = end - begin;
        let (here, below) = sides[begin * width..].split_at_mut(count * width);
        let panel = factor.some_rows(end, n - end).columns(begin, count).transposed();
        let below = Dense::new(below, n - end, width);
        DenseMut::new(here, count, width).product(panel, below, -1.0, true);
        let solved = &mut solved[..count * width];
        let inverse = Dense::new(inverse, count, count).transposed();
        DenseMut::new(solved, count, width).product(inverse, Dense::new(here, count, width), 1.0, false);
        here.copy_from_slice(solved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::noise::Noise;

    /// A matrix of random numbers times its transpose is a covariance that has an inverse.
    fn rows(count: usize, width: usize, seed: u64) -> Vec<f32> {
        let mut noise = Noise::new(seed);
        (0..count * width).map(|_| noise.normal()).collect()
    }

    #[test]
    fn a_map_that_is_there_is_found() {
        let (n, inputs, outputs) = (900, 300, 3);
        let truth = rows(outputs, inputs, 1);
        let mut x = rows(n, inputs, 2);
        // Far from zero, and of different sizes.
        x.chunks_exact_mut(inputs).for_each(|row| {
            row.iter_mut().enumerate().for_each(|(i, x)| *x = 20.0 + *x * (1.0 + i as f32 / 30.0));
        });
        let y = x.chunks_exact(inputs).flat_map(|x| {
            let out = truth.chunks_exact(inputs).zip([5.0, -3.0, 0.5]);
            out.map(move |(w, bias)| {
                bias + w.iter().zip(x).map(|(w, x)| f64::from(w * x)).sum::<f64>() as f32
            })
        });
        let y: Vec<f32> = y.collect();
        let mut ridge = Ridge::new(inputs, outputs).unwrap();
        for part in 0..3 {
            let (x, y) = (&x[part * 300 * inputs..], &y[part * 300 * outputs..]);
            ridge.add(&mut x[..300 * inputs].to_vec(), &mut y[..300 * outputs].to_vec());
        }
        // A second solution begins with what the first has left.
        ridge.solve(0.5).unwrap();
        let Linear { weights, bias } = ridge.solve(1e-6).unwrap();
        for (found, wanted) in weights.iter().zip(&truth) {
            assert!((found - wanted).abs() < 2e-3, "{found} for {wanted}");
        }
        for (found, wanted) in bias.iter().zip([5.0, -3.0, 0.5]) {
            assert!((found - wanted).abs() < 2.0, "{found} for {wanted}");
        }
    }

    /// With one input the solution is cov / (var + strength · var), since inputs are scaled to a variance of 1.
    #[test]
    fn a_penalty_shrinks_a_slope_as_it_should() {
        let (x, y) = ([1.0, 2.0, 3.0, 6.0], [2.0, 1.0, 5.0, 8.0]);
        let mut ridge = Ridge::new(1, 1).unwrap();
        ridge.add(&mut x.to_vec(), &mut y.to_vec());
        // Means 3 and 4; covariance 19, variance 14, summed.
        let Linear { weights, bias } = ridge.solve(0.5).unwrap();
        let slope = 19.0 / (14.0 * 1.5);
        assert!((weights[0] - slope).abs() < 1e-6, "{} for {slope}", weights[0]);
        assert!((bias[0] - (4.0 - 3.0 * slope)).abs() < 1e-5);
    }

    #[test]
    fn what_is_solved_satisfies_the_equations_in_more_than_one_block() {
        let n = BLOCK + 70;
        let a = rows(2 * n, n, 7);
        let mut matrix = vec![0.0; n * n];
        let a = Dense::new(&a, 2 * n, n);
        DenseMut::new(&mut matrix, n, n).product(a.transposed(), a, 1.0 / n as f32, false);
        let (whole, sides) = (matrix.clone(), rows(n, 2, 8));
        let inverses = factorize(&mut matrix, n, 0.1).unwrap();
        let mut solution = sides.clone();
        substitute(&matrix, &inverses, &mut solution, 2);
        for i in 0..n {
            for side in 0..2 {
                let row = (0..n)
                    .map(|j| (whole[i * n + j] + if i == j { 0.1 } else { 0.0 }) * solution[2 * j + side]);
                let (found, wanted) = (row.sum::<f32>(), sides[2 * i + side]);
                assert!((found - wanted).abs() < 1e-3, "{i}: {found} for {wanted}");
            }
        }
    }

    #[test]
    fn no_rows_and_rows_that_say_nothing_are_errors() {
        let mut ridge = Ridge::new(2, 1).unwrap();
        assert!(ridge.solve(0.1).err().unwrap().to_string().contains("no rows"));
        ridge.add(&mut [1.0, 1.0, 2.0, 2.0, 5.0, 5.0], &mut [1.0, 2.0, 3.0]);
        let message = ridge.solve(0.0).err().unwrap().to_string();
        assert!(message.starts_with("input 1 of 2 follows from the others"), "{message}");
        ridge.solve(0.01).unwrap();
    }
}
