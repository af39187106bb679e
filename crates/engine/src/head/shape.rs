//! The sizes of a head, the layers that it reads, and where each of its matrices is in its list of numbers.

use std::ops::Range;

use crate::{Error, Model, Result, plan::Op};

/// What a head reads, and its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadShape {
    /// Of the model's residual stream.
    pub dim: usize,
    /// The layers before which the residual stream is read, ascending. The final state comes after them.
    pub taps: Vec<usize>,
    /// Rows of `gate` and `up`.
    pub hidden: usize,
}

/// The parts of a head's weights, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// From the taps, `[dim, inputs]`.
    Fuse,
    /// From the embedding, `[dim, dim]`.
    Embed,
    /// From the head's own output before, `[dim, dim]`.
    Again,
    /// Of every step.
    Bias,
    /// Of every step but the first, in addition to `Bias`.
    AgainBias,
    /// `[hidden, 2 · dim]`: first the columns for r, then those for e.
    Gate,
    /// As `Gate`.
    Up,
    /// `[dim, hidden]`
    Down,
    /// One number by which an output is multiplied before the model's output matrix.
    Scale,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 9] = [
        Part::Fuse,
        Part::Embed,
        Part::Again,
        Part::Bias,
        Part::AgainBias,
        Part::Gate,
        Part::Up,
        Part::Down,
        Part::Scale,
    ];

    /// Its name in a file.
    pub fn name(self) -> &'static str {
        match self {
            Part::Fuse => "fuse.weight",
            Part::Embed => "embed.weight",
            Part::Again => "again.weight",
            Part::Bias => "embed.bias",
            Part::AgainBias => "again.bias",
            Part::Gate => "gate.weight",
            Part::Up => "up.weight",
            Part::Down => "down.weight",
            Part::Scale => "scale",
        }
    }

    /// Whether rows are multiplied with it.
    pub fn is_matrix(self) -> bool {
        !matches!(self, Part::Bias | Part::AgainBias | Part::Scale)
    }

    /// Whether ridge regression determines it.
    pub fn is_linear(self) -> bool {
        matches!(self, Part::Fuse | Part::Embed | Part::Again | Part::Bias | Part::AgainBias)
    }
}

impl HeadShape {
    /// The shape of a model's head, or why it can have none.
    pub fn of(model: &Model) -> Result<Self> {
        let no_head = |what: &str| Err(Error::model(&model.name, format!("no head can be fitted: {what}")));
        let plan = &model.plan;
        if !plan.mixers.is_empty() {
            return no_head("it is recurrent, and states between its layers cannot be taken out of a pass");
        }
        if !plan.carries_only_the_stream() {
            return no_head("its layers hand on more than the residual stream");
        }
        if !plan.embed.iter().any(|op| matches!(op, Op::Embed { .. })) {
            return no_head("it looks no tokens up");
        }
        if !matches!(plan.head, Some(Op::Head { bias: None, .. })) {
            return no_head("its output matrix has a bias");
        }
        let (dim, n_layer) = (plan.dims.dim, plan.dims.n_layer);
        if !dim.is_multiple_of(32) {
            return no_head(&format!("its rows of {dim} are no whole blocks of 32"));
        }
        let mut taps = vec![2, n_layer / 2, n_layer.saturating_sub(3), n_layer - 1];
        taps.retain(|tap| (1..n_layer).contains(tap));
        taps.sort_unstable();
        taps.dedup();
        // A step is cheap with a small model, where a wider head gains more than it costs.
        let hidden = if dim < 1024 { 2 * dim } else { dim };
        Ok(HeadShape { dim, taps, hidden })
    }

    /// Numbers of a token's taps, the final state last.
    pub fn inputs(&self) -> usize {
        (self.taps.len() + 1) * self.dim
    }

    /// `[rows, columns]`; a vector is one row.
    pub fn size(&self, part: Part) -> [usize; 2] {
        let HeadShape { dim, hidden, .. } = *self;
        match part {
            Part::Fuse => [dim, self.inputs()],
            Part::Embed | Part::Again => [dim, dim],
            Part::Bias | Part::AgainBias => [1, dim],
            Part::Gate | Part::Up => [hidden, 2 * dim],
            Part::Down => [dim, hidden],
            Part::Scale => [1, 1],
        }
    }

    /// How many numbers it is.
    pub fn len(&self, part: Part) -> usize {
        let [rows, cols] = self.size(part);
        rows * cols
    }

    /// Its range among all numbers.
    pub fn range(&self, part: Part) -> Range<usize> {
        let before = Part::ALL.iter().take_while(|other| **other != part);
        let begin = before.map(|&other| self.len(other)).sum();
        begin..begin + self.len(part)
    }

    /// How many numbers a head has.
    pub fn numbers(&self) -> usize {
        Part::ALL.iter().map(|&part| self.len(part)).sum()
    }

    /// Bytes that a step reads of matrices of 8 bits.
    pub fn step_bytes(&self, first: bool) -> u64 {
        let before = if first { Part::Fuse } else { Part::Again };
        let read = [before, Part::Embed, Part::Gate, Part::Up, Part::Down];
        read.iter().map(|&part| self.len(part) as u64 * 34 / 32).sum()
    }
}
