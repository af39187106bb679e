//! A head at work: its matrices in 8 bits, packed for the machine, and one step after the other for one text.

use std::sync::Arc;

use rayon::prelude::*;
use spec_run_kernels::{
    matmul::{Acts, Mode, OutMatrix, Packed, Planes, QuantRows, Weight, matmul},
    ops::{Activate, Activation},
    simd::Isa,
};

use super::{Head, HeadShape, Part, Tables, Vocabulary, over_rms};
use crate::{
    Result,
    quant::{GgmlType, quantize},
    scores,
};

/// Fewer bytes of a matrix than this are not worth another thread.
const BYTES_OF_A_SHARE: usize = 256 << 10;

/// What a step goes on from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// What the full model left of the token before: the rows of [`Context::taps`](crate::Context::taps), one after the
    /// other, the residual behind the last layer at the end.
    Taps(&'a [f32]),
    /// The step before, of this drafter.
    Itself,
}

/// A token that a step proposes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub token: u32,
    /// Its logit, as the model would scale it.
    pub logit: f32,
}

/// Drafts with a head.
pub struct Drafter {
    tables: Arc<Tables>,
    isa: Isa,
    shape: HeadShape,
    /// In the order of `MATRICES`.
    matrices: [Packed; MATRICES.len()],
    bias: Vec<f32>,
    again_bias: Vec<f32>,
    scale: f32,
    /// The output of the last step.
    out: Vec<f32>,
    logits: Vec<f32>,
    work: Work,
}

const MATRICES: [Part; 6] = [Part::Fuse, Part::Embed, Part::Again, Part::Gate, Part::Up, Part::Down];

#[derive(Default)]
struct Work {
    /// What a product reads.
    columns: Vec<f32>,
    quantized: QuantRows,
    embedding: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl Drafter {
    /// A head of the model whose tables these are.
    pub fn new(head: &Head, tables: Arc<Tables>, isa: Isa) -> Result<Self> {
        let shape = head.weights.shape().clone();
        let pack = |part: Part| -> Result<Packed> {
            let [rows, cols] = shape.size(part);
            let mut blocks = Vec::new();
            quantize(GgmlType::Q8_0, head.weights.part(part), &mut blocks).expect("whole blocks");
            let weight = Weight::new(GgmlType::Q8_0, &blocks, rows, cols);
            Ok(Packed::new(isa, &weight, Planes::Never, |_| ())?)
        };
        let [fuse, embed, again, gate, up, down] = MATRICES.map(pack);
        Ok(Drafter {
            matrices: [fuse?, embed?, again?, gate?, up?, down?],
            bias: head.weights.part(Part::Bias).to_vec(),
            again_bias: head.weights.part(Part::AgainBias).to_vec(),
            scale: head.weights.scale(),
            out: vec![0.0; shape.dim],
            logits: Vec::new(),
            work: Work::default(),
            tables,
            isa,
            shape,
        })
    }

    /// One step: from what is known of the token before, and `token`, to the logits of the token behind it, one for each of
    /// [`Vocabulary::tokens`].
    ///
    /// # Panics
    /// If the taps are not those of the head's shape.
    pub fn step(&mut self, from: Origin, token: u32, vocabulary: &Vocabulary) -> &[f32] {
        let dim = self.shape.dim;
        let Work { columns, embedding, .. } = &mut self.work;
        embedding.resize(dim, 0.0);
        self.tables.embedding(token, embedding);
        columns.clear();
        let mut r = self.bias.clone();
        let before = match from {
            Origin::Taps(taps) => {
                assert_eq!(taps.len(), self.shape.inputs(), "rows of taps");
                columns.resize(taps.len(), 0.0);
                inputs(&self.tables, taps, columns);
                Part::Fuse
            }
            Origin::Itself => {
                columns.extend_from_slice(&self.out);
                r.iter_mut().zip(&self.again_bias).for_each(|(r, bias)| *r += bias);
                Part::Again
            }
        };
        self.add_product(before, &mut r);
        self.work.columns.clear();
        self.work.columns.extend_from_slice(&self.work.embedding);
        self.add_product(Part::Embed, &mut r);
        self.work.columns.resize(2 * dim, 0.0);
        self.work.columns.copy_within(..dim, dim);
        over_rms(&r, &mut self.work.columns[..dim]);
        let [mut gate, mut up] = [&mut self.work.gate, &mut self.work.up].map(std::mem::take);
        for (part, out) in [(Part::Gate, &mut gate), (Part::Up, &mut up)] {
            out.clear();
            out.resize(self.shape.hidden, 0.0);
            self.add_product(part, out);
        }
        Activate { activation: Activation::Silu, gate: &mut gate, up: Some(&up) }.on(self.isa);
        self.work.columns.clear();
        self.work.columns.extend_from_slice(&gate);
        (self.work.gate, self.work.up) = (gate, up);
        self.add_product(Part::Down, &mut r);
        self.out = r;
        self.score(vocabulary);
        &self.logits
    }

    /// The best of the last step, best first.
    pub fn best(&self, count: usize, vocabulary: &Vocabulary) -> Vec<Candidate> {
        let candidate = |(place, logit)| Candidate { token: vocabulary.tokens()[place as usize], logit };
        scores::best(&self.logits, count).into_iter().map(candidate).collect()
    }

    /// What the last step left, to come back to by [`Drafter::go_on_from`]: a tree's branches share it.
    pub fn output(&self) -> &[f32] {
        &self.out
    }

    /// The next step goes on from this output.
    pub fn go_on_from(&mut self, output: &[f32]) {
        self.out.copy_from_slice(output);
    }

    /// Adds the product of a matrix with `work.columns`.
    fn add_product(&mut self, part: Part, out: &mut [f32]) {
        let packed = &self.matrices[MATRICES.iter().position(|&of| of == part).expect("a matrix")];
        let Work { columns, quantized, .. } = &mut self.work;
        multiply(self.isa, &Weight::packed(packed), packed.bytes(), columns, quantized, Mode::Add, out);
    }

    /// The logits of the tokens in the list.
    fn score(&mut self, vocabulary: &Vocabulary) {
        let Work { columns, quantized, .. } = &mut self.work;
        columns.clear();
        columns.extend(self.out.iter().map(|x| x * self.scale));
        self.logits.resize(vocabulary.tokens().len(), 0.0);
        let matrix = vocabulary.matrix();
        let bytes = matrix.bytes().len();
        multiply(self.isa, &matrix, bytes, columns, quantized, Mode::Store, &mut self.logits);
    }
}

/// Taps as a head reads them: each residual over its root mean square, the last one through the model's norm and over its own.
pub(crate) fn inputs(tables: &Tables, taps: &[f32], out: &mut [f32]) {
    let dim = tables.dim();
    let last = taps.len() / dim - 1;
    for (i, (tap, out)) in taps.chunks_exact(dim).zip(out.chunks_exact_mut(dim)).enumerate() {
        if i == last {
            let mut state = vec![0.0; dim];
            tables.final_state(tap, &mut state);
            over_rms(&state, out);
        } else {
            over_rms(tap, out);
        }
    }
}

/// A matrix times one column, on the threads of the current pool.
fn multiply(
    isa: Isa,
    weight: &Weight,
    bytes: usize,
    column: &[f32],
    quantized: &mut QuantRows,
    mode: Mode,
    out: &mut [f32],
) {
    let acts = if weight.wants_quantized() {
        quantized.resize(1, column.len());
        quantized.quantize(isa, column);
        Acts::Quantized(quantized)
    } else {
        Acts::Float(column)
    };
    let rows = weight.rows();
    let shares = (bytes / BYTES_OF_A_SHARE).clamp(1, rayon::current_num_threads());
    let share = rows.div_ceil(shares).next_multiple_of(32);
    let mut matrix = OutMatrix::new(out, rows, mode);
    if share >= rows {
        return matmul(isa, weight, acts, &mut matrix.whole());
    }
    (0..rows.div_ceil(share)).into_par_iter().for_each(|part| {
        // SAFETY: the parts have no row in common.
        let mut stripe = unsafe { matrix.stripe(part * share..rows.min((part + 1) * share)) };
        matmul(isa, weight, acts, &mut stripe);
    });
}

#[cfg(feature = "fit")]
#[cfg(test)]
mod tests {
    use super::{super::mean_square, *};
    use crate::{
        Gguf, Model,
        fit::{chain_outputs, noise::Noise},
        head::{Made, Weights},
    };

    fn tables() -> Arc<Tables> {
        let file =
            spec_run_fixtures::fixture("drafter", "models/stories260K.gguf").expect("the archive has it");
        Arc::new(Tables::new(Arc::new(Model::load(Arc::new(Gguf::open(&file).unwrap())).unwrap())))
    }

    fn head(tables: &Tables) -> Head {
        let mut noise = Noise::new(5);
        let mut weights = Weights::zero(HeadShape::of(tables.model()).unwrap());
        weights.numbers_mut().iter_mut().for_each(|x| *x = 0.1 * noise.normal());
        weights.part_mut(Part::Scale)[0] = 2.0;
        Head { weights, tokens: (0..60).rev().collect(), made: Made::default() }
    }

    /// Three steps in 8 bits are those of the floats that training has, but for rounding.
    #[test]
    fn steps_are_those_that_were_trained() {
        let tables = tables();
        let (head, mut noise) = (head(&tables), Noise::new(6));
        let shape = head.weights.shape().clone();
        let taps: Vec<f32> = (0..shape.inputs()).map(|_| 3.0 * noise.normal()).collect();
        let tokens = [7, 300, 12];
        let mut read = vec![0.0; shape.inputs()];
        inputs(&tables, &taps, &mut read);
        let wanted = chain_outputs(&head.weights, &tables, &read, &tokens);
        let vocabulary = Vocabulary::of(&head, &tables);
        for isa in Isa::available() {
            let mut drafter = Drafter::new(&head, tables.clone(), isa).unwrap();
            for (n, (&token, wanted)) in tokens.iter().zip(&wanted).enumerate() {
                let origin = if n == 0 { Origin::Taps(&taps) } else { Origin::Itself };
                let logits = drafter.step(origin, token, &vocabulary).to_vec();
                let size = mean_square(wanted).sqrt();
                let wrong: f32 = drafter.output().iter().zip(wanted).map(|(a, b)| (a - b).powi(2)).sum();
                let wrong = (wrong / wanted.len() as f32).sqrt() / size;
                assert!(wrong < 0.03, "{isa} step {n}: {wrong}");
                let mut row = vec![0.0; shape.dim];
                for (&token, &logit) in vocabulary.tokens().iter().zip(&logits) {
                    tables.output_row(token, &mut row);
                    let exact: f32 = row.iter().zip(drafter.output()).map(|(w, x)| 2.0 * w * x).sum();
                    let bound = 0.05 * size * 2.0 * row.iter().map(|w| w * w).sum::<f32>().sqrt();
                    assert!(
                        (logit - exact).abs() < bound.max(0.01),
                        "{isa} token {token}: {logit} for {exact}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_best_come_first_and_branches_share_a_step() {
        let tables = tables();
        let head = head(&tables);
        let mut vocabulary = Vocabulary::of(&head, &tables);
        let taps: Vec<f32> = (0..head.weights.shape().inputs()).map(|i| (i % 7) as f32 - 3.0).collect();
        let mut drafter = Drafter::new(&head, tables.clone(), Isa::detect()).unwrap();
        let logits = drafter.step(Origin::Taps(&taps), 9, &vocabulary).to_vec();
        let best = drafter.best(3, &vocabulary);
        assert_eq!(best.len(), 3);
        assert!(best.is_sorted_by(|a, b| a.logit >= b.logit));
        let better = |logit: f32| logits.iter().filter(|&&other| other > logit).count();
        assert_eq!(best.iter().map(|c| better(c.logit)).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(best.iter().all(|c| logits[59 - c.token as usize] == c.logit));
        let output = drafter.output().to_vec();
        let first = drafter.step(Origin::Itself, best[0].token, &vocabulary).to_vec();
        let other = drafter.step(Origin::Itself, best[0].token, &vocabulary).to_vec();
        assert_ne!(first, other);
        drafter.go_on_from(&output);
        assert_eq!(drafter.step(Origin::Itself, best[0].token, &vocabulary), first);
        // A token that joins the list does not change what the others have.
        assert!(!vocabulary.contains(400));
        vocabulary.add(&[5, 400, 400], &tables);
        assert_eq!((vocabulary.tokens().len(), vocabulary.contains(400)), (61, true));
        drafter.go_on_from(&output);
        assert_eq!(drafter.step(Origin::Itself, best[0].token, &vocabulary)[..60], first);
    }
}
