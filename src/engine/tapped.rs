//! What the last full pass left of a text's last evaluated token, for a head that drafts from it.

use crate::Context;

/// Kept from pass to pass.
#[derive(Default)]
pub(crate) struct Tapped {
    /// What drafts from them.
    pub source: usize,
    /// The layers of which rows are taken out.
    layers: Vec<usize>,
    /// Whether the pass that is being made takes them out.
    asked: bool,
    /// Of one token.
    row: Vec<f32>,
    /// The position behind that token.
    next: u32,
}

impl Tapped {
    pub fn of(source: usize, layers: Vec<usize>) -> Self {
        Tapped { source, layers, ..Self::default() }
    }

    /// What a pass is to take out, which tells what the text's next token is.
    pub fn ask(&mut self) -> Vec<usize> {
        self.asked = true;
        self.layers.clone()
    }

    /// A pass has been made: its `i`-th row is that of the last token before position `next`.
    pub fn keep(&mut self, context: &Context, i: usize, next: u32) {
        self.row.clear();
        if std::mem::take(&mut self.asked) {
            self.row.extend_from_slice(context.taps(i));
            self.next = next;
        }
    }

    /// What a draft goes on from at a position, if that is known.
    pub fn before(&self, pos: u32) -> Option<&[f32]> {
        (!self.row.is_empty() && self.next == pos).then_some(&self.row)
    }
}
