//! The tensors of a synthetic model, each with its type and the size of its weights.
//!
//! Sizes are chosen so that numbers stay near one at any depth. Matrices have `1/sqrt(fan-in)`; the two that
//! write to the residual stream are smaller by `sqrt(2·layers)`, so that all of them together add about as
//! much as the embedding brings. Queries are larger, or attention would be the mean of the context and tell
//! nothing; the head is larger, or all tokens would be about as likely.

use super::{Recipe, mix::Role, shape::Arch, weights::Fill};
use crate::quant::GgmlType;

/// Of the residual stream where it begins.
const EMBEDDING_STD: f32 = 0.5;
/// Of the logits: the first choice then gets some per cent to some ten per cent of the probability.
const LOGIT_STD: f32 = 4.0;
/// Of attention scores before the softmax: few cells get most of the weight.
const SCORE_STD: f32 = 2.0;
const NORM_STD: f32 = 0.1;
const BIAS_STD: f32 = 0.1;

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
    let (dim, ffn, vocab) = (u64::from(shape.dim), u64::from(shape.ffn), u64::from(shape.vocab));
    let (q, kv, head_dim) = (shape.q_width(), shape.kv_width(), u64::from(shape.head_dim));
    let matrix = |name: String, role: Role, layer: u32, [columns, rows]: [u64; 2], std: f32| {
        let ty = recipe.mix.type_of(role, layer, shape.layers, columns);
        Tensor { name, ty, shape: vec![columns, rows], fill: Fill::noise(std) }
    };
    let vector =
        |name: String, len: u64, fill: Fill| Tensor { name, ty: GgmlType::F32, shape: vec![len], fill };
    let norm = Fill::around(1.0, NORM_STD);
    let keeping = |fan_in: u64| 1.0 / (fan_in as f32).sqrt();
    let to_residual = |fan_in: u64| keeping(fan_in) / (2.0 * shape.layers as f32).sqrt();
    let head_std = LOGIT_STD * keeping(dim);

    let (table, table_std) =
        if shape.tied { (Role::Head, head_std) } else { (Role::Embedding, EMBEDDING_STD) };
    let mut list = vec![matrix("token_embd.weight".into(), table, 0, [dim, vocab], table_std)];
    for layer in 0..shape.layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let scale = |skippable: &[usize]| match skippable.contains(&(layer as usize)) {
            true => recipe.skippable.epsilon,
            false => 1.0,
        };
        // Where heads are normed, the size of queries comes from the norm.
        let head_norms = shape.arch == Arch::Qwen3;
        let q_std = if head_norms { keeping(dim) } else { SCORE_STD * keeping(dim) };
        let attn_std = to_residual(q) * scale(&recipe.skippable.attn);
        let mlp_std = to_residual(ffn) * scale(&recipe.skippable.mlp);
        list.push(vector(name("attn_norm.weight"), dim, norm));
        list.push(matrix(name("attn_q.weight"), Role::Other, layer, [dim, q], q_std));
        list.push(matrix(name("attn_k.weight"), Role::Other, layer, [dim, kv], keeping(dim)));
        list.push(matrix(name("attn_v.weight"), Role::AttnV, layer, [dim, kv], keeping(dim)));
        if shape.arch == Arch::Qwen2 {
            for (part, len) in [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)] {
                list.push(vector(name(part), len, Fill::noise(BIAS_STD)));
            }
        }
        if head_norms {
            let sharp = Fill::around(SCORE_STD, SCORE_STD * NORM_STD);
            list.push(vector(name("attn_q_norm.weight"), head_dim, sharp));
            list.push(vector(name("attn_k_norm.weight"), head_dim, norm));
        }
        list.push(matrix(name("attn_output.weight"), Role::Other, layer, [q, dim], attn_std));
        list.push(vector(name("ffn_norm.weight"), dim, norm));
        list.push(matrix(name("ffn_gate.weight"), Role::Other, layer, [dim, ffn], keeping(dim)));
        list.push(matrix(name("ffn_up.weight"), Role::Other, layer, [dim, ffn], keeping(dim)));
        list.push(matrix(name("ffn_down.weight"), Role::FfnDown, layer, [ffn, dim], mlp_std));
    }
    // With one table for both ends, a token would predict itself; random signs in between hide it from itself.
    list.push(vector("output_norm.weight".into(), dim, Fill { random_signs: shape.tied, ..norm }));
    if !shape.tied {
        list.push(matrix("output.weight".into(), Role::Head, 0, [dim, vocab], head_std));
    }
    list
}
