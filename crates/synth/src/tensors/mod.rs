//! The tensors of a synthetic model, each with its type and the size of its weights.
//!
//! Sizes are chosen so that numbers stay near one at any depth. Matrices have `1/sqrt(fan-in)`; the two that
//! write to the residual stream are smaller by `sqrt(2·layers)`, so that all of them together add about as
//! much as the embedding brings. Queries are larger, or attention would be the mean of the context and tell
//! nothing; the head is larger, or all tokens would be about as likely.

mod attention;
mod mlp;
mod recurrent;

use super::{Recipe, mix::Role, weights::Fill};
use crate::quant::GgmlType;

/// Of the residual stream where it begins.
const EMBEDDING_STD: f32 = 0.5;
/// Of the logits: the first choice then gets some per cent to some ten per cent of the probability.
const LOGIT_STD: f32 = 4.0;
/// Of attention scores before the softmax: few cells get most of the weight.
const SCORE_STD: f32 = 2.0;
const NORM_STD: f32 = 0.1;
const BIAS_STD: f32 = 0.1;
const NORM: Fill = Fill { center: 1.0, std: NORM_STD, random_signs: false };

pub(super) struct Tensor {
    pub name: String,
    pub ty: GgmlType,
    pub shape: Vec<u64>,
    pub fill: Fill,
}

impl Tensor {
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    pub fn bytes(&self) -> u64 {
        self.elements() / self.ty.block_len() as u64 * self.ty.block_bytes() as u64
    }
}

pub(super) fn list(recipe: &Recipe) -> Vec<Tensor> {
    let shape = &recipe.shape;
    let (dim, vocab) = (u64::from(shape.dim), u64::from(shape.vocab));
    let head_std = LOGIT_STD * keeping(dim);
    let (table, table_std) =
        if shape.tied { (Role::Head, head_std) } else { (Role::Embedding, EMBEDDING_STD) };
    let end = |name: &str, role, std| Tensor {
        name: name.into(),
        ty: recipe.mix.type_of(role, 0, shape.layers, dim),
        shape: vec![dim, vocab],
        fill: Fill::noise(std),
    };
    let mut list = vec![end("token_embd.weight", table, table_std)];
    // With one table for both ends, a token would predict itself; random signs in between hide it from itself.
    let last_norm = Fill { random_signs: shape.tied, ..NORM };
    for number in 0..shape.layers + shape.further {
        let mut layer = Layer { recipe, number, list: &mut list };
        layer.attention();
        layer.mlp();
        if number >= shape.layers {
            layer.ends_of_further(last_norm);
        }
    }
    list.push(Tensor {
        name: shape.arch.last_norm().into(),
        ty: GgmlType::F32,
        shape: vec![dim],
        fill: last_norm,
    });
    if !shape.tied {
        list.push(end("output.weight", Role::Head, head_std));
    }
    list
}

/// The size of weights that leaves the size of numbers as it is.
fn keeping(fan_in: u64) -> f32 {
    1.0 / (fan_in as f32).sqrt()
}

/// A layer whose tensors go to the list.
struct Layer<'a> {
    recipe: &'a Recipe,
    number: u32,
    list: &'a mut Vec<Tensor>,
}

impl Layer<'_> {
    fn dim(&self) -> u64 {
        u64::from(self.recipe.shape.dim)
    }

    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.number)
    }

    /// Of what writes to the residual stream, without the factor on what may be skipped.
    fn to_residual(&self, fan_in: u64) -> f32 {
        keeping(fan_in) / (2.0 * self.recipe.shape.layers as f32).sqrt()
    }

    /// The same where a norm stands between, which then has that size.
    fn added(&self, fan_in: u64, scale: f32) -> f32 {
        match self.recipe.shape.arch.norms_after() {
            None => self.to_residual(fan_in) * scale,
            Some(_) => keeping(fan_in),
        }
    }

    /// The factor on what a sublayer adds.
    fn scale(&self, skippable: &[usize]) -> f32 {
        match skippable.contains(&(self.number as usize)) {
            true => self.recipe.skippable.epsilon,
            false => 1.0,
        }
    }

    fn f32s(&mut self, part: &str, shape: &[u64], fill: Fill) {
        let (name, shape) = (self.name(part), shape.to_vec());
        self.list.push(Tensor { name, ty: GgmlType::F32, shape, fill });
    }

    fn matrix(&mut self, part: &str, role: Role, shape: [u64; 2], std: f32) {
        self.matrices(part, role, &shape, std);
    }

    /// One for each expert or head where a third number says how many.
    fn matrices(&mut self, part: &str, role: Role, shape: &[u64], std: f32) {
        let ty = self.recipe.mix.type_of(role, self.number, self.recipe.shape.layers, shape[0]);
        let (name, shape) = (self.name(&format!("{part}.weight")), shape.to_vec());
        self.list.push(Tensor { name, ty, shape, fill: Fill::noise(std) });
    }

    fn norm_after(&mut self, part: &str, scale: f32) {
        let size = LOGIT_STD / (2.0 * self.recipe.shape.layers as f32).sqrt() * scale;
        let dim = self.dim();
        self.f32s(&format!("{part}.weight"), &[dim], Fill::around(size, size * NORM_STD));
    }

    /// What a layer that predicts a further token reads and what goes to the head: it joins the row of the layers before it
    /// with the next token's embedding.
    fn ends_of_further(&mut self, last_norm: Fill) {
        let dim = self.dim();
        self.matrix("nextn.eh_proj", Role::Other, [2 * dim, dim], keeping(2 * dim));
        self.f32s("nextn.enorm.weight", &[dim], NORM);
        self.f32s("nextn.hnorm.weight", &[dim], NORM);
        self.f32s("nextn.shared_head_norm.weight", &[dim], last_norm);
    }
}
