//! Rows of the residual stream that full passes leave before some layers, for a head that drafts from them.

use super::Lane;
use crate::{Batch, Context, speculation::proposer::Left};

/// The state of this for one text.
pub struct Tapped {
    /// The source that drafts from them.
    pub source: usize,
    /// The layers before which rows are taken out.
    layers: Vec<usize>,
    /// Whether it wants those of prompts too.
    pub of_prompts: bool,
    /// Whether the pass that is being made takes them out.
    asked: bool,
    /// The text's first row in that pass.
    first_row: usize,
}

impl Tapped {
    pub fn of(source: usize, layers: Vec<usize>, of_prompts: bool) -> Self {
        Tapped { source, layers, of_prompts, asked: false, first_row: 0 }
    }

    /// Asks a pass to take the rows out. The text's rows begin with `first_row`.
    pub fn ask(&mut self, batch: &mut Batch, first_row: usize) {
        (self.asked, self.first_row) = (true, first_row);
        batch.taps.clone_from(&self.layers);
    }
}

impl Lane<'_> {
    /// Whether rows of a prompt are read before more of it is evaluated.
    pub fn reads_prompts(&self) -> bool {
        self.text.unseen.is_some() || self.text.tapped.as_ref().is_some_and(|tapped| tapped.of_prompts)
    }

    /// Shows the head the rows of these tokens after a pass. The tokens begin at position `pos`, and `row` gives the index of a token
    /// among the text's rows in the pass.
    pub fn show_rows(&mut self, context: &Context, tokens: &[u32], pos: u32, row: impl Fn(usize) -> usize) {
        let Some(tapped) = &mut self.text.tapped else { return };
        let Some(reader) = self.proposers[tapped.source].reader() else { return };
        if std::mem::take(&mut tapped.asked) {
            let rows: Vec<&[f32]> =
                (0..tokens.len()).map(|i| context.taps(tapped.first_row + row(i))).collect();
            let before = self.sampler.history().get(..pos as usize).unwrap_or_default();
            reader.see(Left { before, tokens, pos, rows: &rows });
        }
    }

    /// The head evaluates the rows of the prompt that it has seen.
    pub fn read_rows(&mut self) {
        if let Some(tapped) = &self.text.tapped
            && let Some(apart) = self.proposers[tapped.source].apart()
        {
            apart.read(&[]);
        }
    }
}
