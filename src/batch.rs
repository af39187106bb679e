//! What one decode call is given: tokens of any mix of sequences, and which layers to run for them.

use crate::model::layers::RunLayers;

/// Names a sequence in the cache; any number will do.
pub type SeqId = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub token: u32,
    /// Position in its sequence; must lie beyond the sequence's last one.
    pub pos: u32,
    pub seq: SeqId,
    /// Whether the logits after this token are wanted.
    pub logits: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub rows: Vec<Row>,
    /// Which sublayers run, for every row; `None` runs all of them.
    pub run_layers: Option<RunLayers>,
}

/// One of several passes that follow each other without the host in between.
#[derive(Clone, Debug, Default)]
pub struct Link {
    pub batch: Batch,
    /// Rows whose token is not known yet: the best one of an output of an earlier link, outputs counted through all
    /// links.
    pub picked: Vec<(usize, usize)>,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, token: u32, pos: u32, seq: SeqId, logits: bool) {
        self.rows.push(Row { token, pos, seq, logits });
    }

    /// `tokens` at positions `pos..` of one sequence, with the logits of the last one only.
    pub fn prompt(tokens: &[u32], pos: u32, seq: SeqId) -> Self {
        let mut batch = Self::new();
        for (i, &token) in tokens.iter().enumerate() {
            batch.push(token, pos + i as u32, seq, i + 1 == tokens.len());
        }
        batch
    }

    pub fn with_layers(mut self, run_layers: RunLayers) -> Self {
        self.run_layers = Some(run_layers);
        self
    }
}
