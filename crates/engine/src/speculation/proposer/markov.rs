//! The part that a DSpark head adds to a DFlash head: each token's logits also depend on the token before.

use std::sync::Arc;

use spec_run_kernels::{
    matmul::{Mode, QuantRows, Weight},
    simd::Isa,
};

use crate::{
    Model,
    head::{Together, products::product},
    model,
};

/// Two matrices of a head, as in its file.
pub struct Markov {
    head: Arc<Model>,
    matrices: model::Markov,
    isa: Isa,
}

impl Markov {
    /// Of a head.
    pub fn new(head: Arc<Model>, matrices: model::Markov) -> Self {
        Markov { head, matrices, isa: Isa::detect() }
    }

    /// Bytes that are read for a token.
    pub fn bytes(&self) -> usize {
        self.head.weight_bytes(self.matrices.to_logits).len()
    }

    /// Adds to logits what depends on the token before.
    pub fn add(&self, token: u32, logits: &mut [f32], together: Together) {
        let mut column = vec![0.0; self.head.weight(self.matrices.of_token).cols];
        self.head.weight_row(self.matrices.of_token, token as usize, &mut column);
        let to = self.head.weight(self.matrices.to_logits);
        let matrix = Weight::new(to.ty(), self.head.weight_bytes(self.matrices.to_logits), to.rows, to.cols)
            .times(to.factor);
        let mut quantized = QuantRows::new();
        product(self.isa, Mode::Add, logits, (&matrix, &column), &mut quantized, together);
    }
}
