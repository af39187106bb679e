//! From the rows of a text to the vectors that represent it.

use std::ops::Range;

use spec_run_kernels::{
    ops::{LayerNorm, RmsNorm},
    simd::Isa,
};

use super::Pooling;
use crate::{Model, plan::NormKind};

/// The norm before the model's head, which is used without the head too.
pub struct LastNorm {
    kind: NormKind,
    weight: Option<Vec<f32>>,
    bias: Option<Vec<f32>>,
    eps: f32,
}

impl LastNorm {
    pub fn new(model: &Model) -> Option<Self> {
        let norm = model.plan.last_norm()?;
        let vector = |id| model.vector(id);
        Some(LastNorm {
            kind: norm.kind,
            weight: norm.weight.map(vector),
            bias: norm.bias.map(vector),
            eps: norm.eps,
        })
    }

    pub fn of(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        let (weight, bias, eps, isa) =
            (self.weight.as_deref(), self.bias.as_deref(), self.eps, Isa::detect());
        match self.kind {
            NormKind::Rms => RmsNorm { x, weight, bias, eps, out: &mut out }.on(isa),
            NormKind::Layer => LayerNorm { x, weight, bias, eps, out: &mut out }.on(isa),
        }
        out
    }
}

/// The vectors of a text's rows.
pub fn pool(rows: Range<usize>, row: impl Fn(usize) -> Vec<f32>, pooling: Pooling) -> Vec<Vec<f32>> {
    match pooling {
        Pooling::None => rows.map(row).collect(),
        Pooling::Cls => vec![row(rows.start)],
        Pooling::Last | Pooling::Rank => vec![row(rows.end - 1)],
        Pooling::Mean => {
            let share = 1.0 / rows.len() as f32;
            let mut sum = row(rows.start);
            for i in rows.skip(1) {
                sum.iter_mut().zip(row(i)).for_each(|(sum, x)| *sum += x);
            }
            sum.iter_mut().for_each(|sum| *sum *= share);
            vec![sum]
        }
    }
}
