//! A head's steps over many rows at once, and the slopes of a loss by each of its weights. [`crate::head`] has the formulas.

use rayon::prelude::*;
use spec_run_kernels::dense::{Dense, DenseMut};

use crate::head::{EPS, Part, Weights, mean_square};

/// Rows of texts, one text after the other: for each token what is known before the one that follows it.
#[derive(Default)]
pub struct Rows {
    /// What the full model left of the token before, as the head reads it: `[rows, inputs]`.
    pub inputs: Vec<f32>,
    /// Of the token: `[rows, dim]`.
    pub embeddings: Vec<f32>,
    /// What the full model left of the token: its output matrix makes the logits of the next of it. `[rows, dim]`
    pub states: Vec<f32>,
    /// The token that came next.
    pub next: Vec<u32>,
    /// Which row of its text it is.
    pub places: Vec<usize>,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.places.len()
    }
}

/// The n-th step of every row whose text has begun at least n rows before.
pub struct Step {
    /// Which rows.
    pub rows: Vec<usize>,
    /// `[rows, dim]`
    pub out: Vec<f32>,
    /// What it went on from, of the step before; empty in the first.
    before: Before,
    /// r over its root mean square.
    normed: Vec<f32>,
    /// By what r was multiplied for that.
    scales: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

#[derive(Default)]
struct Before {
    /// Which of the rows of the step before.
    rows: Vec<usize>,
    out: Vec<f32>,
}

/// What all steps share: products with the embedding, and the bias.
struct Shared {
    /// `[rows, dim]`
    r: Vec<f32>,
    /// `[rows, hidden]`
    gate: Vec<f32>,
    up: Vec<f32>,
}

/// So many steps, each from the outputs of the one before.
pub fn forward(weights: &Weights, rows: &Rows, steps: usize) -> Vec<Step> {
    let shape = weights.shape();
    let (count, dim, hidden) = (rows.len(), shape.dim, shape.hidden);
    let embeddings = Dense::new(&rows.embeddings, count, dim);
    let mut shared =
        Shared { r: repeated(weights.part(Part::Bias), count), gate: Vec::new(), up: Vec::new() };
    let embed = Dense::new(weights.part(Part::Embed), dim, dim).transposed();
    DenseMut::new(&mut shared.r, count, dim).product(embeddings, embed, 1.0, true);
    for (part, out) in [(Part::Gate, &mut shared.gate), (Part::Up, &mut shared.up)] {
        out.resize(count * hidden, 0.0);
        let of_embedding = Dense::new(weights.part(part), hidden, 2 * dim).columns(dim, dim).transposed();
        DenseMut::new(out, count, hidden).product(embeddings, of_embedding, 1.0, false);
    }
    let mut all: Vec<Step> = Vec::with_capacity(steps);
    for n in 0..steps {
        let taken: Vec<usize> = (0..count).filter(|&row| rows.places[row] >= n).collect();
        let mut r = gathered(&shared.r, dim, &taken);
        let before = match all.last() {
            None => {
                let inputs = Dense::new(&rows.inputs, count, shape.inputs());
                let fuse = Dense::new(weights.part(Part::Fuse), dim, shape.inputs()).transposed();
                DenseMut::new(&mut r, count, dim).product(inputs, fuse, 1.0, true);
                Before::default()
            }
            Some(last) => {
                let mut place = vec![0; count];
                last.rows.iter().enumerate().for_each(|(i, &row)| place[row] = i);
                let rows: Vec<usize> = taken.iter().map(|&row| place[row - 1]).collect();
                let before = Before { out: gathered(&last.out, dim, &rows), rows };
                let again = Dense::new(weights.part(Part::Again), dim, dim).transposed();
                let bias = weights.part(Part::AgainBias);
                r.par_chunks_mut(dim).for_each(|r| r.iter_mut().zip(bias).for_each(|(r, bias)| *r += bias));
                DenseMut::new(&mut r, taken.len(), dim).product(
                    Dense::new(&before.out, taken.len(), dim),
                    again,
                    1.0,
                    true,
                );
                before
            }
        };
        all.push(finish_step(weights, &shared, taken, before, r));
    }
    all
}

/// From r to the output.
fn finish_step(
    weights: &Weights,
    shared: &Shared,
    rows: Vec<usize>,
    before: Before,
    mut r: Vec<f32>,
) -> Step {
    let shape = weights.shape();
    let (count, dim, hidden) = (rows.len(), shape.dim, shape.hidden);
    let scales: Vec<f32> = r.par_chunks(dim).map(|r| 1.0 / (mean_square(r) + EPS).sqrt()).collect();
    let mut normed = r.clone();
    normed.par_chunks_mut(dim).zip(&scales).for_each(|(row, scale)| row.iter_mut().for_each(|x| *x *= scale));
    let product = |part: Part, of_embedding: &[f32]| {
        let mut out = gathered(of_embedding, hidden, &rows);
        let weight = Dense::new(weights.part(part), hidden, 2 * dim).columns(0, dim).transposed();
        DenseMut::new(&mut out, count, hidden).product(Dense::new(&normed, count, dim), weight, 1.0, true);
        out
    };
    let (gate, up) = (product(Part::Gate, &shared.gate), product(Part::Up, &shared.up));
    let passed: Vec<f32> = gate.par_iter().zip(&up).map(|(&gate, up)| silu(gate) * up).collect();
    let down = Dense::new(weights.part(Part::Down), dim, hidden).transposed();
    DenseMut::new(&mut r, count, dim).product(Dense::new(&passed, count, hidden), down, 1.0, true);
    Step { rows, out: r, before, normed, scales, gate, up }
}

/// The slopes of a loss by the weights, from those by the steps' outputs.
pub fn backward(weights: &Weights, rows: &Rows, steps: &[Step], mut by_outputs: Vec<Vec<f32>>) -> Weights {
    let shape = weights.shape().clone();
    let (count, dim, hidden) = (rows.len(), shape.dim, shape.hidden);
    let mut slopes = Weights::zero(shape.clone());
    let mut shared =
        Shared { r: vec![0.0; count * dim], gate: vec![0.0; count * hidden], up: vec![0.0; count * hidden] };
    for (n, step) in steps.iter().enumerate().rev() {
        let by_out = std::mem::take(&mut by_outputs[n]);
        let by_r = through_mlp(weights, step, by_out, &mut slopes, &mut shared);
        scatter_add(&by_r, dim, &step.rows, &mut shared.r);
        let by_r = Dense::new(&by_r, step.rows.len(), dim);
        if n == 0 {
            let inputs = Dense::new(&rows.inputs, count, shape.inputs());
            add_outer(slopes.part_mut(Part::Fuse), by_r, inputs, 0, shape.inputs());
            continue;
        }
        let before = Dense::new(&step.before.out, step.rows.len(), dim);
        add_outer(slopes.part_mut(Part::Again), by_r, before, 0, dim);
        add_sums(by_r, dim, slopes.part_mut(Part::AgainBias));
        let mut by_before = vec![0.0; step.rows.len() * dim];
        let again = Dense::new(weights.part(Part::Again), dim, dim);
        DenseMut::new(&mut by_before, step.rows.len(), dim).product(by_r, again, 1.0, false);
        scatter_add(&by_before, dim, &step.before.rows, &mut by_outputs[n - 1]);
    }
    let embeddings = Dense::new(&rows.embeddings, count, dim);
    let by_r = Dense::new(&shared.r, count, dim);
    add_outer(slopes.part_mut(Part::Embed), by_r, embeddings, 0, dim);
    add_sums(by_r, dim, slopes.part_mut(Part::Bias));
    for (part, by) in [(Part::Gate, &shared.gate), (Part::Up, &shared.up)] {
        add_outer(slopes.part_mut(part), Dense::new(by, count, hidden), embeddings, dim, 2 * dim);
    }
    slopes
}

/// From the slopes by the output to those by r.
fn through_mlp(
    weights: &Weights,
    step: &Step,
    by_out: Vec<f32>,
    slopes: &mut Weights,
    shared: &mut Shared,
) -> Vec<f32> {
    let (dim, hidden, count) = (weights.shape().dim, weights.shape().hidden, step.rows.len());
    let passed: Vec<f32> = step.gate.par_iter().zip(&step.up).map(|(&gate, up)| silu(gate) * up).collect();
    let out = Dense::new(&by_out, count, dim);
    add_outer(slopes.part_mut(Part::Down), out, Dense::new(&passed, count, hidden), 0, hidden);
    let mut by_passed = passed;
    let down = Dense::new(weights.part(Part::Down), dim, hidden);
    DenseMut::new(&mut by_passed, count, hidden).product(out, down, 1.0, false);
    let by_up: Vec<f32> = by_passed.par_iter().zip(&step.gate).map(|(by, &gate)| by * silu(gate)).collect();
    let mut by_gate = by_passed;
    by_gate
        .par_iter_mut()
        .zip(&step.gate)
        .zip(&step.up)
        .for_each(|((by, &gate), up)| *by *= up * silu_slope(gate));
    let normed = Dense::new(&step.normed, count, dim);
    let mut by_normed = vec![0.0; count * dim];
    for (part, by, of_embedding) in
        [(Part::Gate, &by_gate, &mut shared.gate), (Part::Up, &by_up, &mut shared.up)]
    {
        scatter_add(by, hidden, &step.rows, of_embedding);
        let by = Dense::new(by, count, hidden);
        add_outer(slopes.part_mut(part), by, normed, 0, 2 * dim);
        let weight = Dense::new(weights.part(part), hidden, 2 * dim).columns(0, dim);
        DenseMut::new(&mut by_normed, count, dim).product(by, weight, 1.0, true);
    }
    let mut by_r = by_out;
    let rows = by_r.par_chunks_mut(dim).zip(by_normed.par_chunks(dim));
    rows.zip(step.normed.par_chunks(dim)).zip(&step.scales).for_each(|(((by_r, by), normed), scale)| {
        let along = by.iter().zip(normed).map(|(by, x)| by * x).sum::<f32>() / dim as f32;
        for ((by_r, by), x) in by_r.iter_mut().zip(by).zip(normed) {
            *by_r += (by - x * along) * scale;
        }
    });
    by_r
}

/// `slopes[.., first..] += byᵀ · x`, where rows of `slopes` are `width` long.
fn add_outer(slopes: &mut [f32], by: Dense, x: Dense, first: usize, width: usize) {
    let (outputs, cols) = (slopes.len() / width, x.cols());
    DenseMut::new(slopes, outputs, width).columns(first, cols).product(by.transposed(), x, 1.0, true);
}

fn add_sums(rows: Dense, width: usize, sums: &mut [f32]) {
    for i in 0..rows.rows() {
        sums.iter_mut().zip(&rows.row(i)[..width]).for_each(|(sum, x)| *sum += x);
    }
}

fn repeated(row: &[f32], count: usize) -> Vec<f32> {
    row.repeat(count)
}

fn gathered(from: &[f32], width: usize, rows: &[usize]) -> Vec<f32> {
    rows.iter().flat_map(|&row| &from[row * width..][..width]).copied().collect()
}

/// No row is named twice.
fn scatter_add(from: &[f32], width: usize, rows: &[usize], to: &mut [f32]) {
    for (row, from) in rows.iter().zip(from.chunks_exact(width)) {
        to[row * width..][..width].iter_mut().zip(from).for_each(|(to, x)| *to += x);
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

fn silu_slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{fit::noise::Noise, head::HeadShape};

    pub fn shape() -> HeadShape {
        HeadShape { dim: 6, taps: vec![1, 2], hidden: 7 }
    }

    pub fn weights(seed: u64) -> Weights {
        let mut noise = Noise::new(seed);
        let mut weights = Weights::zero(shape());
        weights.numbers_mut().iter_mut().for_each(|x| *x = 0.4 * noise.normal());
        weights.part_mut(Part::Scale)[0] = 1.5;
        weights
    }

    /// Two texts, of four rows and of one.
    pub fn rows(seed: u64) -> Rows {
        let (mut noise, shape) = (Noise::new(seed), shape());
        let mut numbers = |width: usize| (0..5 * width).map(|_| noise.normal()).collect();
        Rows {
            inputs: numbers(shape.inputs()),
            embeddings: numbers(shape.dim),
            states: numbers(shape.dim),
            next: vec![0, 1, 2, 3, 4],
            places: vec![0, 1, 2, 3, 0],
        }
    }

    /// By the formulas, for one row.
    fn by_hand(weights: &Weights, rows: &Rows, row: usize, before: Option<&[f32]>) -> Vec<f32> {
        let shape = weights.shape();
        let dim = shape.dim;
        let times = |part: Part, x: &[f32]| -> Vec<f32> {
            weights.part(part).chunks(x.len()).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
        };
        let e = &rows.embeddings[row * dim..][..dim];
        let from = match before {
            None => times(Part::Fuse, &rows.inputs[row * shape.inputs()..][..shape.inputs()]),
            Some(out) => {
                let product = times(Part::Again, out);
                product.iter().zip(weights.part(Part::AgainBias)).map(|(x, bias)| x + bias).collect()
            }
        };
        let of_e = times(Part::Embed, e);
        let r: Vec<f32> = (0..dim).map(|i| from[i] + of_e[i] + weights.part(Part::Bias)[i]).collect();
        let rms = (r.iter().map(|x| x * x).sum::<f32>() / dim as f32 + EPS).sqrt();
        let u: Vec<f32> = r.iter().map(|x| x / rms).chain(e.iter().copied()).collect();
        let (gate, up) = (times(Part::Gate, &u), times(Part::Up, &u));
        let passed: Vec<f32> = gate.iter().zip(&up).map(|(g, up)| g / (1.0 + (-g).exp()) * up).collect();
        times(Part::Down, &passed).iter().zip(&r).map(|(x, r)| x + r).collect()
    }

    #[test]
    fn steps_over_many_rows_are_those_of_each_row() {
        let (weights, rows) = (weights(1), rows(2));
        let steps = forward(&weights, &rows, 3);
        assert_eq!(steps.iter().map(|step| step.rows.len()).collect::<Vec<_>>(), [5, 3, 2]);
        // The third step of row 2 goes on from the second of row 1, and that from the first of row 0.
        let first = by_hand(&weights, &rows, 0, None);
        let second = by_hand(&weights, &rows, 1, Some(&first));
        let third = by_hand(&weights, &rows, 2, Some(&second));
        for (step, row, wanted) in [(0, 0, &first), (1, 1, &second), (2, 2, &third)] {
            let at = steps[step].rows.iter().position(|&of| of == row).unwrap();
            for (found, wanted) in steps[step].out[at * 6..][..6].iter().zip(wanted) {
                assert!((found - wanted).abs() < 1e-5, "step {step}: {found} for {wanted}");
            }
        }
    }

    #[test]
    fn slopes_are_what_small_steps_change() {
        let (weights, rows) = (weights(3), rows(4));
        // A loss that is a fixed sum of all outputs.
        let factors: Vec<Vec<f32>> = forward(&weights, &rows, 3)
            .iter()
            .enumerate()
            .map(|(n, step)| (0..step.out.len()).map(|i| ((7 * i + n) % 11) as f32 / 5.0 - 1.0).collect())
            .collect();
        let loss = |weights: &Weights| -> f64 {
            let steps = forward(weights, &rows, 3);
            let of_step = |(step, factors): (&Step, &Vec<f32>)| {
                step.out.iter().zip(factors).map(|(x, f)| f64::from(*x) * f64::from(*f)).sum::<f64>()
            };
            steps.iter().zip(&factors).map(of_step).sum()
        };
        let steps = forward(&weights, &rows, 3);
        let slopes = backward(&weights, &rows, &steps, factors.clone());
        let at = |i: usize, step: f32| {
            let mut moved = weights.clone();
            moved.numbers_mut()[i] += step;
            loss(&moved)
        };
        for part in Part::ALL.into_iter().filter(|&part| part != Part::Scale) {
            for i in weights.shape().range(part) {
                let wanted = (at(i, 0.01) - at(i, -0.01)) / 0.02;
                let found = f64::from(slopes.numbers()[i]);
                assert!(
                    (found - wanted).abs() < 0.02 + 0.01 * wanted.abs(),
                    "{part:?} {i}: {found} for {wanted}"
                );
            }
        }
    }
}
