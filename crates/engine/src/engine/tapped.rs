//! What full passes leave of a text's rows before some layers, for what drafts from them.

use super::Lane;
use crate::{Batch, Context, speculation::proposer::Left};

/// Kept from pass to pass.
pub struct Tapped {
    /// What drafts from them.
    pub source: usize,
    /// The layers of which rows are taken out.
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

    /// A pass, in which the text's rows begin with this one, is to take them out.
    pub fn ask(&mut self, batch: &mut Batch, first_row: usize) {
        (self.asked, self.first_row) = (true, first_row);
        batch.taps.clone_from(&self.layers);
    }
}

impl Lane<'_> {
    /// Whether rows of a prompt are looked at before more of it is evaluated.
    pub fn reads_prompts(&self) -> bool {
        self.text.unseen.is_some() || self.text.tapped.as_ref().is_some_and(|tapped| tapped.of_prompts)
    }

    /// A pass has been made: what drafts from rows sees those of these tokens, which begin at a position. `row` says which row of
    /// the text's own a token is.
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

    /// What drafts from rows of the prompt evaluates what it has seen of it.
    pub fn read_rows(&mut self) {
        if let Some(tapped) = &self.text.tapped
            && let Some(apart) = self.proposers[tapped.source].apart()
        {
            apart.read(&[]);
        }
    }
}
