//! A layer's MLP or its experts, with the norm before it.

use super::{BIAS_STD, Layer, NORM, SCORE_STD, keeping};
use crate::{mix::Role, shape::Experts, weights::Fill};

impl Layer<'_> {
    pub(super) fn mlp(&mut self) {
        let shape = &self.recipe.shape;
        let scale = self.scale(&self.recipe.skippable.mlp);
        let dim = self.dim();
        self.f32s(&format!("{}.weight", shape.arch.mlp_norm()), &[dim], NORM);
        match shape.experts_of(self.number) {
            Some(experts) => self.experts(experts, scale),
            None => self.dense("", u64::from(shape.ffn), scale),
        }
        if let Some([_, after]) = shape.arch.norms_after() {
            self.norm_after(after, scale);
        }
    }

    /// `kind` is the end of their names.
    fn dense(&mut self, kind: &str, ffn: u64, scale: f32) {
        let dim = self.dim();
        self.matrix(&format!("ffn_gate{kind}"), Role::Other, [dim, ffn], keeping(dim));
        self.matrix(&format!("ffn_up{kind}"), Role::Other, [dim, ffn], keeping(dim));
        self.matrix(&format!("ffn_down{kind}"), Role::FfnDown, [ffn, dim], self.added(ffn, scale));
    }

    fn experts(&mut self, experts: Experts, scale: f32) {
        let (arch, dim) = (self.recipe.shape.arch, self.dim());
        let (n, ffn) = (u64::from(experts.count), u64::from(experts.ffn));
        // As in all files a router is f32. Its scores differ enough for the choice to be the row's own.
        self.f32s("ffn_gate_inp.weight", &[dim, n], Fill::noise(SCORE_STD * keeping(dim)));
        self.matrices("ffn_gate_exps", Role::Other, &[dim, ffn, n], keeping(dim));
        self.matrices("ffn_up_exps", Role::Other, &[dim, ffn, n], keeping(dim));
        self.matrices("ffn_down_exps", Role::FfnDown, &[ffn, dim, n], self.added(ffn, scale));
        if arch.has_all_biases() {
            let to_residual = self.to_residual(1) * BIAS_STD * scale;
            self.f32s("ffn_gate_inp.bias", &[n], Fill::noise(BIAS_STD));
            self.f32s("ffn_gate_exps.bias", &[ffn, n], Fill::noise(BIAS_STD));
            self.f32s("ffn_up_exps.bias", &[ffn, n], Fill::noise(BIAS_STD));
            self.f32s("ffn_down_exps.bias", &[dim, n], Fill::noise(to_residual));
        }
        if arch.biases_the_choice_of_experts() {
            self.f32s("exp_probs_b.bias", &[n], Fill::noise(BIAS_STD));
        }
        if arch.shared_experts() > 0 {
            self.dense("_shexp", u64::from(arch.shared_experts()) * ffn, scale);
        }
    }
}
