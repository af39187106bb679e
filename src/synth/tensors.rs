//! The tensors of a synthetic model, each with its type and the size of its weights.
//!
//! Sizes are chosen so that numbers stay near one at any depth. Matrices have `1/sqrt(fan-in)`; the two that
//! write to the residual stream are smaller by `sqrt(2·layers)`, so that all of them together add about as
//! much as the embedding brings. Queries are larger, or attention would be the mean of the context and tell
//! nothing; the head is larger, or all tokens would be about as likely.

use super::{Recipe, arch::HeadNorms, mix::Role, weights::Fill};
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
    let arch = shape.arch;
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
        let (attn_scale, mlp_scale) = (scale(&recipe.skippable.attn), scale(&recipe.skippable.mlp));
        // Where heads are normed, the size of queries comes from the norm; the same holds for what is normed before it
        // is added to the stream.
        let q_std = match arch.head_norms() {
            HeadNorms::None => SCORE_STD * keeping(dim),
            HeadNorms::Each | HeadNorms::All => keeping(dim),
        };
        let added = |fan_in: u64, scale: f32| match arch.norms_after() {
            None => to_residual(fan_in) * scale,
            Some(_) => keeping(fan_in),
        };
        let norm_after = |part: &str, scale: f32| {
            let size = LOGIT_STD / (2.0 * shape.layers as f32).sqrt() * scale;
            vector(name(&format!("{part}.weight")), dim, Fill::around(size, size * NORM_STD))
        };
        list.push(vector(name("attn_norm.weight"), dim, norm));
        list.push(matrix(name("attn_q.weight"), Role::Other, layer, [dim, q], q_std));
        list.push(matrix(name("attn_k.weight"), Role::Other, layer, [dim, kv], keeping(dim)));
        list.push(matrix(name("attn_v.weight"), Role::AttnV, layer, [dim, kv], keeping(dim)));
        if arch.has_qkv_biases() {
            for (part, len) in [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)] {
                list.push(vector(name(part), len, Fill::noise(BIAS_STD)));
            }
        }
        let normed = match arch.head_norms() {
            HeadNorms::None => None,
            HeadNorms::Each => Some([head_dim, head_dim]),
            HeadNorms::All => Some([q, kv]),
        };
        if let Some([q, k]) = normed {
            let sharp = Fill::around(SCORE_STD, SCORE_STD * NORM_STD);
            list.push(vector(name("attn_q_norm.weight"), q, sharp));
            list.push(vector(name("attn_k_norm.weight"), k, norm));
        }
        list.push(matrix(name("attn_output.weight"), Role::Other, layer, [q, dim], added(q, attn_scale)));
        if arch.has_all_biases() {
            list.push(vector(
                name("attn_output.bias"),
                dim,
                Fill::noise(to_residual(1) * BIAS_STD * attn_scale),
            ));
            list.push(vector(name("attn_sinks.weight"), u64::from(shape.heads), Fill::noise(1.0)));
        }
        if let Some([after, _]) = arch.norms_after() {
            list.push(norm_after(after, attn_scale));
        }
        list.push(vector(name(&format!("{}.weight", arch.mlp_norm())), dim, norm));
        if let Some(experts) = shape.experts_of(layer) {
            let (n, ffn) = (u64::from(experts.count), u64::from(experts.ffn));
            let all = |part: &str, role, [columns, rows]: [u64; 2], std| {
                let of_one = matrix(name(&format!("{part}.weight")), role, layer, [columns, rows], std);
                Tensor { shape: vec![columns, rows, n], ..of_one }
            };
            let down = added(ffn, mlp_scale);
            // As in all files a router is f32. Its scores differ enough for the choice to be the row's own.
            list.push(Tensor {
                shape: vec![dim, n],
                ..vector(name("ffn_gate_inp.weight"), dim * n, Fill::noise(SCORE_STD * keeping(dim)))
            });
            list.push(all("ffn_gate_exps", Role::Other, [dim, ffn], keeping(dim)));
            list.push(all("ffn_up_exps", Role::Other, [dim, ffn], keeping(dim)));
            list.push(all("ffn_down_exps", Role::FfnDown, [ffn, dim], down));
            if arch.has_all_biases() {
                let biases = |part: &str, len: u64, std: f32| Tensor {
                    shape: vec![len, n],
                    ..vector(name(&format!("{part}.bias")), len * n, Fill::noise(std))
                };
                list.push(vector(name("ffn_gate_inp.bias"), n, Fill::noise(BIAS_STD)));
                list.push(biases("ffn_gate_exps", ffn, BIAS_STD));
                list.push(biases("ffn_up_exps", ffn, BIAS_STD));
                list.push(biases("ffn_down_exps", dim, to_residual(1) * BIAS_STD * mlp_scale));
            }
            if arch.shares_an_expert() {
                list.push(vector(name("exp_probs_b.bias"), n, Fill::noise(BIAS_STD)));
                list.push(matrix(
                    name("ffn_gate_shexp.weight"),
                    Role::Other,
                    layer,
                    [dim, ffn],
                    keeping(dim),
                ));
                list.push(matrix(name("ffn_up_shexp.weight"), Role::Other, layer, [dim, ffn], keeping(dim)));
                list.push(matrix(name("ffn_down_shexp.weight"), Role::FfnDown, layer, [ffn, dim], down));
            }
        } else {
            list.push(matrix(name("ffn_gate.weight"), Role::Other, layer, [dim, ffn], keeping(dim)));
            list.push(matrix(name("ffn_up.weight"), Role::Other, layer, [dim, ffn], keeping(dim)));
            let std = added(ffn, mlp_scale);
            list.push(matrix(name("ffn_down.weight"), Role::FfnDown, layer, [ffn, dim], std));
        }
        if let Some([_, after]) = arch.norms_after() {
            list.push(norm_after(after, mlp_scale));
        }
    }
    // With one table for both ends, a token would predict itself; random signs in between hide it from itself.
    list.push(vector("output_norm.weight".into(), dim, Fill { random_signs: shape.tied, ..norm }));
    if !shape.tied {
        list.push(matrix("output.weight".into(), Role::Head, 0, [dim, vocab], head_std));
    }
    list
}
