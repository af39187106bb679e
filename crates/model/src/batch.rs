//! What one decode call is given: tokens of any mix of sequences, and which layers to run for them.
//!
//! A pass can also be made in two parts, so that layers that have run need not run again. The first part runs at
//! least the first E layers in full, under whatever mask, and has `keep_hidden: Some(E)`: each row's residual stream as
//! it comes to layer E is then in `Context::hidden`. The second part names the same tokens,
//! positions and sequences and hands these rows back with [`Batch::resume`]: it begins at layer E, adds to the cells
//! that are there, and gives the same bits as one pass over all layers does. That holds if all that the rows could see
//! in the first part was the full model's up to layer E; whoever calls sees to it. What the cells had in other layers
//! before is replaced, for every sequence that holds them.

use std::sync::Arc;

use crate::{mask::RunLayers, shortlist::Shortlist};

/// Names a sequence in the cache; any number will do.
pub type SeqId = u32;

/// One token of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The token.
    pub token: u32,
    /// Position in its sequence; must lie beyond the sequence's last one.
    pub pos: u32,
    /// Its sequence.
    pub seq: SeqId,
    /// Whether the logits after this token are wanted.
    pub logits: bool,
}

/// What one decode call evaluates.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The tokens. Rows of one sequence are in the order of their positions.
    pub rows: Vec<Row>,
    /// Which sublayers run, for every row; `None` runs all of them.
    pub run_layers: Option<RunLayers>,
    /// Keep every row as it comes to this layer, 1 to the number of layers.
    pub keep_hidden: Option<usize>,
    /// The rows are not new: they go on from where they were kept.
    pub resume: Option<Resume>,
    /// The rows are for what predicts one token more, and for nothing else.
    pub mtp: Option<Mtp>,
    /// Keys and values of the rows are made of this, which another model left of their tokens, `[rows, width]`; of the tokens themselves
    /// nothing is computed. For models that draft for another one so.
    pub inject: Option<Vec<f32>>,
    /// Logits are wanted of these tokens; those of others may be negative infinity.
    pub shortlist: Option<Arc<Shortlist>>,
    /// Sequences that part from others within the batch.
    pub forks: Vec<Fork>,
    /// Take out every row as it comes to each of these layers, ascending, 1 to the number of layers: afterwards
    /// `Context::taps` has them. For full passes only.
    pub taps: Vec<usize>,
}

/// A sequence that was empty goes on from a row of the batch: as `Context::fork` does it between two
/// batches. Its own rows come behind that one. Not for models with recurrent layers, nor for rows that are not new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The row whose sequence it becomes the same as, as far as that has come with this row.
    pub after: usize,
    /// The new sequence.
    pub to: SeqId,
}

/// Rows that predict the token after their own from what was left of the token before: see
/// `Context::has_mtp`. Those at positions that the sequence has are
/// written there beside what the model keeps; the others are new, and hold nothing that a pass of the model reads.
/// Afterwards `Context::hidden` has each row, for those that come next, if any asked for logits.
#[derive(Clone, Debug)]
pub struct Mtp {
    /// What was left of the token before each row's, `[rows, width]`: by the last layer or, where the head reads several, by
    /// all of these.
    pub before: Vec<f32>,
    /// It was not the model's last layer, but such a pass.
    pub after_itself: bool,
}

/// Rows that have been through the first layers.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The layer to go on with; those before it have run in full.
    pub layer: usize,
    /// The residual stream before it, `[rows, dim]`.
    pub hidden: Vec<f32>,
}

/// One of several passes that follow each other without the host in between.
#[derive(Clone, Debug, Default)]
pub struct ChainBatch {
    /// What the pass evaluates.
    pub batch: Batch,
    /// Rows whose token is not known yet: the best one of an output of an earlier link, outputs counted through all
    /// links.
    pub picked: Vec<(usize, usize)>,
}

impl Batch {
    /// A batch without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row.
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

    /// Goes on from `layer` with rows that an earlier pass kept there.
    pub fn resuming(mut self, layer: usize, hidden: Vec<f32>) -> Self {
        self.resume = Some(Resume { layer, hidden });
        self
    }

    /// Sets which sublayers run.
    pub fn with_layers(mut self, run_layers: RunLayers) -> Self {
        self.run_layers = Some(run_layers);
        self
    }
}
