//! Drafts with a head: its matrices in 8 bits, packed for the machine, and its steps for one text.

use std::sync::Arc;

use spec_run_kernels::{
    matmul::{Mode, Packed, Planes, QuantRows, Weight},
    ops::{Activate, Activation},
    simd::Isa,
};

use super::{
    Head, HeadShape, Part, Tables, Vocabulary, over_rms,
    products::{Together, product, products, quantize_row},
};
use crate::{
    Result,
    quant::{GgmlType, quantize},
    scores,
};

/// The input of a step besides the token.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// The full model's rows of the token before: those of [`Context::taps`](crate::Context::taps), one after the other, and then the
    /// residual after the last layer.
    Taps(&'a [f32]),
    /// The output of this drafter's step before.
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

/// A head that is ready to draft, for any number of texts.
pub struct PackedHead {
    tables: Arc<Tables>,
    isa: Isa,
    shape: HeadShape,
    /// In the order of `MATRICES`.
    matrices: [Packed; MATRICES.len()],
    bias: Vec<f32>,
    again_bias: Vec<f32>,
    scale: f32,
    /// The tokens that drafts choose from at the beginning of a text.
    vocabulary: Vocabulary,
}

const MATRICES: [Part; 6] = [Part::Fuse, Part::Embed, Part::Again, Part::Gate, Part::Up, Part::Down];

impl PackedHead {
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
        Ok(PackedHead {
            matrices: [fuse?, embed?, again?, gate?, up?, down?],
            bias: head.weights.part(Part::Bias).to_vec(),
            again_bias: head.weights.part(Part::AgainBias).to_vec(),
            scale: head.weights.scale(),
            vocabulary: Vocabulary::of(head, &tables),
            tables,
            isa,
            shape,
        })
    }

    /// Its sizes.
    pub fn shape(&self) -> &HeadShape {
        &self.shape
    }

    fn matrix(&self, part: Part) -> Weight<'_> {
        Weight::packed(&self.matrices[MATRICES.iter().position(|&of| of == part).expect("a matrix")])
    }
}

/// Drafts for one text.
pub struct Drafter {
    head: Arc<PackedHead>,
    vocabulary: Vocabulary,
    /// The output of the last step.
    out: Vec<f32>,
    logits: Vec<f32>,
    /// The quantized inputs of products.
    columns: [QuantRows; 2],
    rows: Rows,
}

/// Intermediate results of a step.
#[derive(Default)]
struct Rows {
    inputs: Vec<f32>,
    embedding: Vec<f32>,
    /// r over its root mean square, then the embedding.
    both: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl Drafter {
    /// For a new text.
    pub fn new(head: Arc<PackedHead>) -> Self {
        Drafter {
            vocabulary: head.vocabulary.clone(),
            out: vec![0.0; head.shape.dim],
            logits: Vec::new(),
            columns: Default::default(),
            rows: Rows::default(),
            head,
        }
    }

    /// The tokens that drafts choose from.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Sizes of the head.
    pub fn shape(&self) -> &HeadShape {
        &self.head.shape
    }

    /// Bytes that a first step reads.
    pub fn step_bytes(&self) -> u64 {
        self.head.shape.step_bytes(true) + self.vocabulary.bytes()
    }

    /// Adds tokens that drafts may choose, from the next step on.
    pub fn add_tokens(&mut self, tokens: &[u32]) {
        self.vocabulary.add(tokens, &self.head.tables);
    }

    /// One step: computes the logits of the token after `token`, one for each of [`Vocabulary::tokens`].
    ///
    /// # Panics
    /// If the taps are not those of the head's shape.
    pub fn step(&mut self, from: Origin, token: u32, together: Together) -> &[f32] {
        let Drafter { head, columns: [first, second], rows, out, .. } = self;
        let (dim, isa) = (head.shape.dim, head.isa);
        let Rows { inputs, embedding, both, gate, up } = rows;
        embedding.resize(dim, 0.0);
        head.tables.embedding(token, embedding);
        let mut r = head.bias.clone();
        let before = match from {
            Origin::Taps(taps) => {
                assert_eq!(taps.len(), head.shape.inputs(), "rows of taps");
                inputs.resize(taps.len(), 0.0);
                read_taps(&head.tables, taps, inputs);
                quantize_row(isa, inputs, first);
                Part::Fuse
            }
            Origin::Itself => {
                r.iter_mut().zip(&head.again_bias).for_each(|(r, bias)| *r += bias);
                quantize_row(isa, out, first);
                Part::Again
            }
        };
        quantize_row(isa, embedding, second);
        let (of_before, of_embedding) = (head.matrix(before), head.matrix(Part::Embed));
        products(isa, Mode::Add, &mut r, &[(&of_before, first), (&of_embedding, second)], together);
        both.resize(2 * dim, 0.0);
        over_rms(&r, &mut both[..dim]);
        both[dim..].copy_from_slice(embedding);
        quantize_row(isa, both, first);
        for (part, out) in [(Part::Gate, &mut *gate), (Part::Up, &mut *up)] {
            out.resize(head.shape.hidden, 0.0);
            products(isa, Mode::Store, out, &[(&head.matrix(part), first)], together);
        }
        Activate { activation: Activation::Silu, gate, up: Some(up) }.on(isa);
        quantize_row(isa, gate, first);
        products(isa, Mode::Add, &mut r, &[(&head.matrix(Part::Down), first)], together);
        *out = r;
        self.score(together);
        &self.logits
    }

    /// The logits of the tokens in the list.
    fn score(&mut self, together: Together) {
        let Drafter { head, vocabulary, rows, columns: [column, _], out, logits } = self;
        rows.inputs.clear();
        rows.inputs.extend(out.iter().map(|x| x * head.scale));
        logits.resize(vocabulary.tokens().len(), 0.0);
        product(head.isa, Mode::Store, logits, (&vocabulary.matrix(), &rows.inputs), column, together);
    }

    /// The logits of the last step.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The best of the last step, best first.
    pub fn best(&self, count: usize) -> Vec<Candidate> {
        let tokens = self.vocabulary.tokens();
        let candidate = |(place, logit)| Candidate { token: tokens[place as usize], logit };
        scores::best(&self.logits, count).into_iter().map(candidate).collect()
    }

    /// The output of the last step, to come back to with [`Drafter::go_on_from`]: the branches of a tree share it.
    pub fn output(&self) -> &[f32] {
        &self.out
    }

    /// The next step goes on from this output.
    pub fn go_on_from(&mut self, output: &[f32]) {
        self.out.copy_from_slice(output);
    }
}

/// Scales taps as a head reads them: each residual over its root mean square, the last one first through the model's norm.
pub fn read_taps(tables: &Tables, taps: &[f32], out: &mut [f32]) {
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
