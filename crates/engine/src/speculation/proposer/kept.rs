//! Rows of a draft's first layers, from which verification goes on.

/// Rows as they came to a layer: of the text's last token first, then of the drafted tokens but the last, which no draft step has
/// read. Their cells are the draft's.
#[derive(Debug, Default)]
pub struct Kept {
    /// The layer that comes next; 0 if nothing is to be kept.
    pub layer: usize,
    /// `[rows, dim]`
    pub hidden: Vec<f32>,
}

impl Kept {
    /// Drops all rows, and keeps those at `layer` from now on.
    pub fn begin(&mut self, layer: usize) {
        self.layer = layer;
        self.hidden.clear();
    }

    /// Adds the row of a draft step.
    pub fn add(&mut self, row: &[f32]) {
        self.hidden.extend_from_slice(row);
    }

    /// Whether the rows are those of a draft of so many tokens.
    pub fn fits(&self, drafted: usize, dim: usize) -> bool {
        self.layer > 0 && drafted > 0 && self.hidden.len() == drafted * dim
    }
}
