//! What can draft. A proposer may be right or wrong, never harmful: its tokens are verified.

mod ahead;
mod exits;
pub(crate) mod glance;
mod kept;
mod mask;
mod ngram;

pub use ahead::AheadProposer;
pub use exits::ExitsProposer;
pub(crate) use kept::Kept;
pub use mask::MaskProposer;
pub use ngram::NgramProposer;

use super::policy::{Drafted, Ready, SourceInfo};
use crate::{Context, RunLayers};

/// What a proposer has for this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// Nothing to draft.
    Nothing,
    /// As many tokens as one likes, each at a price.
    Any,
    /// Tokens that are known already.
    Found(Ready),
}

/// Something that drafts. It says how, and never decodes.
pub trait Proposer: Send {
    /// What the policy is to know of it.
    fn info(&self, context: &Context) -> SourceInfo;

    /// What it could draft after `text`. From call to call the text of a run only grows.
    fn supply(&mut self, text: &[u32]) -> Supply;

    /// What of the model drafts for it; `None` if it knows tokens itself.
    fn passes(&self) -> Option<Passes<'_>> {
        None
    }

    /// What is drafted after `text` where its passes chose a token; `text` ends with what has been drafted before. Measurements
    /// say it in the model's place, to have drafts accepted as often as they want.
    fn overrule(&mut self, _text: &[u32], chosen: u32) -> u32 {
        chosen
    }

    /// The tokens that it knows after `text`, which [`Proposer::supply`] has just seen.
    fn tokens(&mut self, _text: &[u32]) -> Vec<u32> {
        Vec::new()
    }

    /// The mask that its draft steps run under, if that is all there is to them: so that others can time it.
    fn mask(&self) -> Option<&RunLayers> {
        match self.passes()? {
            Passes::Layers(passes) => passes.further.is_empty().then_some(&passes.mask),
            Passes::Ahead => None,
        }
    }
}

/// What of the model runs for a drafted token.
#[derive(Clone, Copy, Debug)]
pub enum Passes<'p> {
    /// Some of its layers.
    Layers(&'p LayerPasses),
    /// The head that predicts one token more.
    Ahead,
}

/// Passes of a token through some layers.
#[derive(Clone, Debug)]
pub struct LayerPasses {
    /// The first pass of each token.
    pub(crate) mask: RunLayers,
    /// So many of the first layers run in full, and what they made is left to verification. 0: nothing is.
    pub(crate) prefix: usize,
    /// Where the head is not sure, the row goes on from a layer, under a mask; and so on.
    pub(crate) further: Vec<(usize, RunLayers)>,
}

/// What came out; kept from round to round for its memory.
#[derive(Default)]
pub(crate) struct Made {
    pub proposals: Vec<u32>,
    pub drafted: Vec<Drafted>,
    /// Per token the draft's best candidates, best first; empty if it has none.
    pub candidates: Vec<Vec<u32>>,
    /// It ended at the most that was allowed and would have gone on.
    pub cut: bool,
    /// What verification may go on from.
    pub kept: Kept,
}

impl Made {
    pub fn clear(&mut self) {
        let Made { proposals, drafted, candidates, cut, kept } = self;
        proposals.clear();
        drafted.clear();
        candidates.clear();
        *cut = false;
        kept.begin(0);
    }

    /// Takes back what a proposer added against the rules: more than it may, or something after an end of text.
    pub fn trim(&mut self, most: usize, ends: &dyn Fn(u32) -> bool) {
        let end = self.proposals.iter().position(|&token| ends(token)).map_or(most, |end| most.min(end + 1));
        self.proposals.truncate(end);
        self.drafted.truncate(end);
        self.candidates.truncate(end);
    }
}
