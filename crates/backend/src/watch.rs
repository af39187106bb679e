//! For who wants to know what a model's matrices are multiplied with.

use crate::plan::WeightId;

/// Is told of every product of a pass, before it is made. It changes no number.
pub trait Watch: Send + Sync {
    /// These rows, each as long as a row of the matrix, are about to be multiplied with it.
    fn product(&self, matrix: WeightId, rows: &mut dyn Iterator<Item = &[f32]>);
}
