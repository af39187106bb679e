//! What training begins with: the maps from taps and embedding to the next final state, by ridges.

use super::{
    chain::{Rows, forward},
    loss::List,
    noise::Noise,
    ridge::Ridge,
    store::Store,
};
use crate::{
    Result,
    head::{HeadShape, Part, Tables, Weights, mean_square},
};

/// Strengths of the ridge: the best is that whose predictions are right most often, not that of the least squared error.
const STRENGTHS: [f32; 3] = [0.001, 0.01, 0.1];
/// Products of inputs that are added up at most: beyond so many rows say little more.
const MOST_PRODUCTS: f64 = 2e12;
/// Rows that choose the strength.
const CHOOSING_ROWS: usize = 2000;
/// Rows at a time.
const ROWS: usize = 1024;

/// A head that is not trained yet.
pub struct Start {
    pub weights: Weights,
    pub strength: f32,
}

/// Of some texts; the last of them choose the strength.
pub fn start(
    store: &Store,
    tables: &Tables,
    shape: &HeadShape,
    texts: &[usize],
    list: &List,
) -> Result<Start> {
    let (inputs, dim) = (shape.inputs(), shape.dim);
    let mut chosen_by = 0;
    let mut choosing = 0;
    let enough = |rows: usize| rows >= CHOOSING_ROWS.min(store.tokens(false) / 8);
    while choosing < texts.len() / 4 + 1 && choosing < texts.len() && !enough(chosen_by) {
        choosing += 1;
        chosen_by += store.texts()[texts[texts.len() - choosing]].rows();
    }
    let (fitted, choosing) = texts.split_at(if texts.len() > 1 { texts.len() - choosing } else { 1 });
    let choosing = Rows::of(store, tables, if choosing.is_empty() { fitted } else { choosing }, None)?;
    let columns = inputs + dim;
    let most_rows = (MOST_PRODUCTS / (columns * columns) as f64) as usize;
    let (fitted, squares) = scale_of(store, shape, fitted, most_rows)?;
    let scale = squares.sqrt();

    let mut weights = Weights::zero(shape.clone());
    weights.part_mut(Part::Scale)[0] = scale;
    begin_mlp(&mut weights);
    let mut ridge = Ridge::new(columns, dim)?;
    for texts in batches(store, fitted) {
        let rows = Rows::of(store, tables, texts, None)?;
        let mut x = Vec::with_capacity(rows.len() * columns);
        for (inputs, embedding) in rows.inputs.chunks_exact(inputs).zip(rows.embeddings.chunks_exact(dim)) {
            x.extend_from_slice(inputs);
            x.extend_from_slice(embedding);
        }
        let mut y: Vec<f32> = rows.states.iter().map(|z| z / scale).collect();
        ridge.add(&mut x, &mut y);
    }
    let mut best: Option<(usize, Start)> = None;
    for strength in STRENGTHS {
        let map = ridge.solve(strength)?;
        for (output, row) in map.weights.chunks_exact(columns).enumerate() {
            let (of_taps, of_embedding) = row.split_at(inputs);
            weights.part_mut(Part::Fuse)[output * inputs..][..inputs].copy_from_slice(of_taps);
            weights.part_mut(Part::Embed)[output * dim..][..dim].copy_from_slice(of_embedding);
        }
        weights.part_mut(Part::Bias).copy_from_slice(&map.bias);
        let right = right_of(&weights, &choosing, list);
        if best.as_ref().is_none_or(|(most, _)| right > *most) {
            best = Some((right, Start { weights: weights.clone(), strength }));
        }
    }
    drop(ridge);
    let (_, mut start) = best.expect("there are strengths");
    add_again(store, tables, fitted, &mut start)?;
    Ok(start)
}

/// The first of the texts, as far as their rows count, and the mean square of their final states.
fn scale_of<'t>(
    store: &Store,
    shape: &HeadShape,
    texts: &'t [usize],
    most_rows: usize,
) -> Result<(&'t [usize], f32)> {
    let texts = store.first_of(texts, most_rows);
    let (mut count, mut sum) = (0, 0.0);
    for &text in texts {
        for states in store.states(text)?.chunks_exact(shape.inputs()) {
            sum += mean_square(&states[shape.inputs() - shape.dim..]);
            count += 1;
        }
    }
    Ok((texts, sum / count.max(1) as f32))
}

/// Texts of about so many rows together.
fn batches<'t>(store: &Store, texts: &'t [usize]) -> Vec<&'t [usize]> {
    let mut batches = Vec::new();
    let (mut begin, mut rows) = (0, 0);
    for (i, &text) in texts.iter().enumerate() {
        rows += store.texts()[text].rows();
        if rows >= ROWS || i + 1 == texts.len() {
            batches.push(&texts[begin..=i]);
            (begin, rows) = (i + 1, 0);
        }
    }
    batches
}

/// The MLP begins with nothing to add: random numbers go in, and none comes out.
fn begin_mlp(weights: &mut Weights) {
    let mut noise = Noise::new(1);
    let most = 1.0 / ((2 * weights.shape().dim) as f32).sqrt();
    for part in [Part::Gate, Part::Up] {
        weights.part_mut(part).iter_mut().for_each(|x| *x = most * (2.0 * noise.uniform() - 1.0));
    }
}

/// Rows of which the first step proposes the right token.
fn right_of(weights: &Weights, rows: &Rows, list: &List) -> usize {
    let step = &forward(weights, rows, 1)[0];
    let logits = list.logits(&step.out, weights.scale());
    let proposed = logits.chunks_exact(list.tokens.len()).map(|logits| {
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        list.tokens[best.expect("a list has tokens")]
    });
    proposed.zip(&rows.next).filter(|(proposed, next)| proposed == *next).count()
}

/// The map of later steps, from what the first one gives.
fn add_again(store: &Store, tables: &Tables, texts: &[usize], start: &mut Start) -> Result<()> {
    let dim = tables.dim();
    let scale = start.weights.scale();
    let mut ridge = Ridge::new(dim, dim)?;
    for texts in batches(store, texts) {
        let rows = Rows::of(store, tables, texts, None)?;
        let first = &forward(&start.weights, &rows, 1)[0];
        // What the embedding and the bias give is there already: a step of nothing else.
        let mut only = start.weights.clone();
        only.part_mut(Part::Fuse).fill(0.0);
        let given = &forward(&only, &rows, 1)[0];
        let later: Vec<usize> = (0..rows.len()).filter(|&row| rows.places[row] > 0).collect();
        let of = |from: &[f32], row: usize| -> Vec<f32> { from[row * dim..][..dim].to_vec() };
        let mut x: Vec<f32> = later.iter().flat_map(|&row| of(&first.out, row - 1)).collect();
        let mut y: Vec<f32> = later
            .iter()
            .flat_map(|&row| {
                let wanted = of(&rows.states, row).into_iter().zip(of(&given.out, row));
                wanted.map(|(z, given)| z / scale - given)
            })
            .collect();
        ridge.add(&mut x, &mut y);
    }
    let map = ridge.solve(start.strength)?;
    start.weights.part_mut(Part::Again).copy_from_slice(&map.weights);
    start.weights.part_mut(Part::AgainBias).copy_from_slice(&map.bias);
    Ok(())
}
