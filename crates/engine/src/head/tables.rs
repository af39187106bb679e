//! The parts of its model that a head uses: rows of the table of tokens and of the output matrix, and the final norm.

use std::sync::Arc;

use rayon::prelude::*;

use super::mean_square;
use crate::{
    Model,
    plan::{EmbedBy, NormKind, Op, WeightId},
    quant::GgmlType,
};

/// Tables of one model.
pub struct Tables {
    model: Arc<Model>,
    embedding: WeightId,
    output: WeightId,
    /// The factor of the model's logits.
    logit_scale: f32,
    norm: FinalNorm,
    /// The root mean square of the table of tokens.
    embedding_rms: f32,
}

struct FinalNorm {
    kind: NormKind,
    weight: Vec<f32>,
    bias: Vec<f32>,
    eps: f32,
}

impl Tables {
    /// For a model that a head can be made for.
    ///
    /// # Panics
    /// If [`HeadShape::of`](super::HeadShape::of) refuses it.
    pub fn new(model: Arc<Model>) -> Self {
        let mut tables = Self::of(model, 1.0);
        tables.embedding_rms = tables.rms_of_embedding();
        tables
    }

    /// The same where the root mean square of the table of tokens is known: to compute it, all of the table has to be read.
    ///
    /// # Panics
    /// As [`Tables::new`].
    pub fn of(model: Arc<Model>, embedding_rms: f32) -> Self {
        let embedding = model.plan.embed.iter().find_map(|op| match *op {
            Op::Embed { table, by: EmbedBy::Token, .. } => Some(table),
            _ => None,
        });
        let Some(Op::Head { norm, weight: output, scale, .. }) = model.plan.head else {
            unreachable!("a plan ends with its head")
        };
        let vector = |id: Option<WeightId>| id.map_or_else(Vec::new, |id| model.vector(id));
        let norm = FinalNorm {
            kind: norm.kind,
            weight: vector(norm.weight),
            bias: vector(norm.bias),
            eps: norm.eps,
        };
        let embedding = embedding.expect("a model that looks tokens up");
        Tables { embedding, output, logit_scale: scale, norm, embedding_rms, model }
    }

    /// The root mean square of the table of tokens.
    pub fn embedding_rms(&self) -> f32 {
        self.embedding_rms
    }

    fn rms_of_embedding(&self) -> f32 {
        let rows = self.model.weight(self.embedding).rows;
        // Sums of blocks, so that the result does not depend on the number of threads.
        const BLOCK: usize = 1024;
        let blocks: Vec<f64> = (0..rows.div_ceil(BLOCK))
            .into_par_iter()
            .map(|block| {
                let mut row = vec![0.0; self.dim()];
                let of_block = block * BLOCK..rows.min((block + 1) * BLOCK);
                let squares = of_block.map(|token| {
                    self.row(self.embedding, token as u32, &mut row);
                    f64::from(mean_square(&row))
                });
                squares.sum()
            })
            .collect();
        let mean = blocks.iter().sum::<f64>() / rows as f64;
        if mean > 0.0 { mean.sqrt() as f32 } else { 1.0 }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Of the residual stream.
    pub fn dim(&self) -> usize {
        self.model.plan.dims.dim
    }

    fn row(&self, table: WeightId, token: u32, out: &mut [f32]) {
        self.model.weight_row(table, token as usize, out);
    }

    /// A token's embedding over the root mean square of the table.
    pub fn embedding(&self, token: u32, out: &mut [f32]) {
        self.row(self.embedding, token, out);
        out.iter_mut().for_each(|x| *x /= self.embedding_rms);
    }

    /// A token's row of the output matrix.
    pub fn output_row(&self, token: u32, out: &mut [f32]) {
        self.row(self.output, token, out);
        if self.logit_scale != 1.0 {
            out.iter_mut().for_each(|x| *x *= self.logit_scale);
        }
    }

    /// Such rows of many tokens, `[tokens, dim]`.
    pub fn output_rows(&self, tokens: &[u32]) -> Vec<f32> {
        let mut rows = vec![0.0; tokens.len() * self.dim()];
        rows.par_chunks_mut(self.dim()).zip(tokens).for_each(|(row, &token)| self.output_row(token, row));
        rows
    }

    /// The format of the output matrix.
    pub(super) fn output_type(&self) -> GgmlType {
        self.model.weight(self.output).ty()
    }

    /// A token's row of the output matrix as in the file, without [`Tables::output_factor`].
    pub(super) fn output_bytes(&self, token: u32) -> &[u8] {
        let row = self.model.weight(self.output).row_bytes();
        &self.model.weight_bytes(self.output)[token as usize * row..][..row]
    }

    pub(super) fn output_factor(&self) -> f32 {
        self.model.weight(self.output).factor * self.logit_scale
    }

    /// Bytes of a row of the output matrix.
    pub fn output_row_bytes(&self) -> u64 {
        self.model.weight(self.output).row_bytes() as u64
    }

    /// The last layer's row after the final norm, as the output matrix reads it.
    pub fn final_state(&self, x: &[f32], out: &mut [f32]) {
        let FinalNorm { kind, weight, bias, eps } = &self.norm;
        let mean = match kind {
            NormKind::Rms => 0.0,
            NormKind::Layer => x.iter().sum::<f32>() / x.len() as f32,
        };
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x - mean);
        let scale = 1.0 / (mean_square(out) + eps).sqrt();
        out.iter_mut().for_each(|x| *x *= scale);
        out.iter_mut().zip(weight).for_each(|(x, weight)| *x *= weight);
        out.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
    }
}
