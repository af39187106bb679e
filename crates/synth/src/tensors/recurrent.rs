//! What recurrent layers have in the place of attention.

use super::{BIAS_STD, Layer, NORM, keeping};
use crate::{mix::Role, shape::Recurrent, weights::Fill};

/// SiLU makes numbers of size one that much smaller.
const SILU: f32 = 0.6;
/// What a gated delta net forgets in a step of size one: steps are mostly smaller, so a text reaches back some dozens of
/// tokens.
const FORGOTTEN: f32 = 0.05;

impl Layer<'_> {
    pub(super) fn recurrent(&mut self, recurrent: Recurrent, scale: f32) {
        let dim = self.dim();
        match recurrent {
            Recurrent::GatedDelta { kernel, heads, key_heads, head_dim } => {
                let [kernel, heads, key_heads, head_dim] =
                    [kernel, heads, key_heads, head_dim].map(u64::from);
                let inner = heads * head_dim;
                let channels = inner + 2 * key_heads * head_dim;
                self.matrix("attn_qkv", Role::Other, [dim, channels], keeping(dim));
                self.matrix("attn_gate", Role::Other, [dim, inner], keeping(dim));
                self.matrix("ssm_beta", Role::Other, [dim, heads], keeping(dim));
                self.matrix("ssm_alpha", Role::Other, [dim, heads], keeping(dim));
                self.f32s("ssm_conv1d.weight", &[kernel, channels], Fill::noise(keeping(kernel)));
                self.f32s("ssm_dt.bias", &[heads], Fill::noise(BIAS_STD));
                self.f32s("ssm_a", &[heads], Fill::around(-FORGOTTEN, FORGOTTEN / 4.0));
                self.f32s("ssm_norm.weight", &[head_dim], NORM);
                self.matrix("ssm_out", Role::Other, [inner, dim], self.added(inner, scale) / SILU);
            }
            Recurrent::ShortConv { kernel, .. } => {
                let kernel = u64::from(kernel);
                self.matrix("shortconv.in_proj", Role::Other, [dim, 3 * dim], keeping(dim));
                self.f32s("shortconv.conv.weight", &[kernel, dim], Fill::noise(keeping(kernel)));
                self.matrix("shortconv.out_proj", Role::Other, [dim, dim], self.added(dim, scale));
            }
        }
    }
}
