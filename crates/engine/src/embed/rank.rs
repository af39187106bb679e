//! How well two texts fit: the tokens of a pair of texts, and the classifier that scores it.

use spec_run_kernels::{
    ops::{Activate, LayerNorm},
    simd::Isa,
};

use super::{Pooling, dense::Matrix};
use crate::{
    Error, Gguf, Model, Result, Tokenizer,
    model::{Classifier, HeadActivation},
    tokenizer::EncodeOptions,
};

/// Encodes a question and an answer as one text.
pub struct Pairs {
    /// The template for both, if the file has one.
    template: Option<String>,
}

impl Pairs {
    /// As a file says.
    pub fn of(gguf: &Gguf) -> Result<Self> {
        let template = gguf.metadata().str("tokenizer.chat_template.rerank")?.map(str::to_owned);
        Ok(Pairs { template })
    }

    /// The tokens of a question and an answer.
    pub fn encode(&self, tokenizer: &Tokenizer, question: &str, answer: &str) -> Vec<u32> {
        let Some(template) = &self.template else { return tokenizer.encode_pair(question, answer) };
        let text = template.replace("{query}", question).replace("{document}", answer);
        tokenizer.encode(&text, EncodeOptions { add_special: false, parse_special: true })
    }
}

/// A model's classifier, ready to be used.
pub struct Ranker {
    /// Which of the text's rows it reads.
    pub reads: Pooling,
    hidden: Option<Matrix>,
    activation: HeadActivation,
    norm: Option<(Vec<f32>, f32)>,
    out: Option<Matrix>,
    shares: bool,
}

impl Ranker {
    pub fn new(model: &Model) -> Result<Self> {
        let Some(classifier) = &model.tail.classifier else {
            return Err(Error::model(
                model.gguf.name(),
                "no head that says how well texts fit (`cls`): reranking needs a model that was made for it",
            ));
        };
        let Classifier { of_mean, hidden, activation, norm, out, shares } = classifier;
        let matrix = |dense: &Option<_>| dense.as_ref().map(|dense| Matrix::new(model, dense));
        Ok(Ranker {
            reads: match (of_mean, model.sees_both_ways()) {
                (true, _) => Pooling::Mean,
                (false, true) => Pooling::Cls,
                (false, false) => Pooling::Last,
            },
            hidden: matrix(hidden),
            activation: *activation,
            norm: norm.as_ref().map(|(weight, eps)| (model.numbers(weight), *eps)),
            out: matrix(out),
            shares: *shares,
        })
    }

    /// How many scores a text gets.
    pub fn labels(&self) -> usize {
        self.out.as_ref().or(self.hidden.as_ref()).map_or(1, Matrix::rows)
    }

    /// The scores from the row that represents a text.
    pub fn scores(&self, row: &[f32]) -> Vec<f32> {
        let mut x = row.to_vec();
        if let Some(hidden) = &self.hidden {
            x = hidden.times(&x);
            match self.activation {
                HeadActivation::Tanh => x.iter_mut().for_each(|x| *x = x.tanh()),
                HeadActivation::Of(activation) => {
                    Activate { activation, gate: &mut x, up: None }.on(Isa::detect());
                }
            }
            if let Some((weight, eps)) = &self.norm {
                let from = x.clone();
                LayerNorm { x: &from, weight: Some(weight), bias: None, eps: *eps, out: &mut x }
                    .on(Isa::detect());
            }
        }
        if let Some(out) = &self.out {
            x = out.times(&x);
        }
        if self.shares {
            let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            x.iter_mut().for_each(|x| *x = (*x - max).exp());
            let sum: f32 = x.iter().sum();
            x.iter_mut().for_each(|x| *x /= sum);
        }
        x
    }
}
