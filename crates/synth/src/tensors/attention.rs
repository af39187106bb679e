//! Attention, or what stands in its place, with the norm before it.

use super::{BIAS_STD, Layer, NORM, NORM_STD, SCORE_STD, keeping};
use crate::{arch::HeadNorms, mix::Role, shape::Latent, weights::Fill};

impl Layer<'_> {
    pub(super) fn attention(&mut self) {
        let scale = self.scale(&self.recipe.skippable.attn);
        let dim = self.dim();
        self.f32s("attn_norm.weight", &[dim], NORM);
        let shape = &self.recipe.shape;
        match (shape.recurrent_at(self.number), shape.latent) {
            (Some(recurrent), _) => self.recurrent(recurrent, scale),
            (None, Some(latent)) => self.latent(latent, scale),
            (None, None) => self.heads(scale),
        }
        if let Some([after, _]) = self.recipe.shape.arch.norms_after() {
            self.norm_after(after, scale);
        }
    }

    /// Queries, keys and values of heads, and what comes of them.
    fn heads(&mut self, scale: f32) {
        let (shape, dim) = (&self.recipe.shape, self.dim());
        let arch = shape.arch;
        let (q, kv, head_dim) = (shape.q_width(), shape.kv_width(), u64::from(shape.head_dim));
        // Where heads are normed, the size of queries comes from the norm.
        let q_std = match arch.head_norms() {
            HeadNorms::None => SCORE_STD * keeping(dim),
            HeadNorms::Each | HeadNorms::All => keeping(dim),
        };
        let with_gates = if arch.gates_heads() { 2 * q } else { q };
        self.matrix("attn_q", Role::Other, [dim, with_gates], q_std);
        self.matrix("attn_k", Role::Other, [dim, kv], keeping(dim));
        self.matrix("attn_v", Role::AttnV, [dim, kv], keeping(dim));
        if arch.has_qkv_biases() {
            for (part, len) in [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)] {
                self.f32s(part, &[len], Fill::noise(BIAS_STD));
            }
        }
        let normed = match arch.head_norms() {
            HeadNorms::None => None,
            HeadNorms::Each => Some([head_dim, head_dim]),
            HeadNorms::All => Some([q, kv]),
        };
        if let Some([q, k]) = normed {
            self.f32s("attn_q_norm.weight", &[q], Fill::around(SCORE_STD, SCORE_STD * NORM_STD));
            self.f32s("attn_k_norm.weight", &[k], NORM);
        }
        self.matrix("attn_output", Role::Other, [q, dim], self.added(q, scale));
        if arch.has_all_biases() {
            let size = self.to_residual(1) * BIAS_STD * scale;
            self.f32s("attn_output.bias", &[dim], Fill::noise(size));
            self.f32s("attn_sinks.weight", &[u64::from(shape.heads)], Fill::noise(1.0));
        }
    }

    /// Keys and values of all heads made of one latent, which is normed.
    fn latent(&mut self, latent: Latent, scale: f32) {
        let (shape, dim) = (&self.recipe.shape, self.dim());
        let [rank, turned, value] = [latent.rank, latent.turned, latent.value].map(u64::from);
        let (heads, still) = (u64::from(shape.heads), u64::from(shape.head_dim) - turned);
        self.matrix("attn_q", Role::Other, [dim, shape.q_width()], SCORE_STD * keeping(dim));
        self.matrix("attn_kv_a_mqa", Role::Other, [dim, rank + turned], keeping(dim));
        self.f32s("attn_kv_a_norm.weight", &[rank], NORM);
        // By way of queries: what they are multiplied with is what keys are made with.
        self.matrices("attn_k_b", Role::Other, &[still, rank, heads], keeping(rank));
        self.matrices("attn_v_b", Role::Other, &[rank, value, heads], keeping(rank));
        let read = heads * value;
        self.matrix("attn_output", Role::Other, [read, dim], self.added(read, scale));
    }
}
