//! What can draft. A proposer may be right or wrong, never harmful: its tokens are verified.

mod ahead;
mod exits;
pub(crate) mod glance;
mod head;
mod kept;
mod mask;
mod model;
mod ngram;

pub use ahead::AheadProposer;
pub use exits::ExitsProposer;
pub(crate) use head::Choice;
pub use head::{HeadProposer, HeadSource};
pub(crate) use kept::Kept;
pub use mask::MaskProposer;
pub use model::{ModelProposer, ModelSource};
pub use ngram::NgramProposer;

use super::policy::{Drafted, Ready, SourceInfo};
use crate::{Context, RunLayers};

/// Bytes that a usual machine reads of its RAM in a second.
const RAM_SPEED: f64 = 40e9;

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

/// Something that drafts. It says how, and decodes nothing in the context of the text.
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

    /// The head that drafts for it, if its passes are [`Passes::Head`].
    fn head(&mut self) -> Option<&mut HeadProposer> {
        None
    }

    /// The model that drafts for it, if its passes are [`Passes::Model`].
    fn model(&mut self) -> Option<&mut ModelProposer> {
        None
    }

    /// The tokens that it knows after `text`, which [`Proposer::supply`] has just seen.
    fn tokens(&mut self, _text: &[u32]) -> Vec<u32> {
        Vec::new()
    }

    /// The mask that its draft steps run under, if that is all there is to them: so that others can time it.
    fn mask(&self) -> Option<&RunLayers> {
        match self.passes()? {
            Passes::Layers(passes) => passes.further.is_empty().then_some(&passes.mask),
            Passes::Ahead | Passes::Head | Passes::Model => None,
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
    /// Nothing: a small head computes by itself what it drafts, from rows that full passes leave.
    Head,
    /// Nothing: another model drafts, in a context of its own.
    Model,
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
    /// Other tokens that are verified in the place of the first, and what the draft gave them.
    pub others: Vec<u32>,
    pub others_drafted: Vec<Drafted>,
    /// Which of them was accepted, where the first was not.
    pub other: Option<usize>,
    /// It ended at the most that was allowed and would have gone on.
    pub cut: bool,
    /// What verification may go on from.
    pub kept: Kept,
}

impl Made {
    pub fn clear(&mut self) {
        let Made { proposals, drafted, candidates, others, others_drafted, other, cut, kept } = self;
        proposals.clear();
        drafted.clear();
        candidates.clear();
        others.clear();
        others_drafted.clear();
        *other = None;
        *cut = false;
        kept.begin(0);
    }

    /// What else a draft thought of in the place of its first token.
    pub fn consider(&mut self, first: u32, tokens: &[u32], confidences: &[f32]) {
        for (&token, &confidence) in tokens.iter().zip(confidences).filter(|(token, _)| **token != first) {
            self.others.push(token);
            self.others_drafted.push(Drafted { confidence });
        }
    }

    /// The token that was accepted in a place.
    pub fn accepted(&self, place: usize) -> u32 {
        self.other.map_or(self.proposals[place], |other| self.others[other])
    }

    /// Which row of the verification comes behind so many accepted tokens.
    pub fn row_behind(&self, accepted: usize) -> usize {
        match self.other {
            Some(other) if accepted > 0 => self.proposals.len() + other + 1,
            _ => accepted,
        }
    }

    /// Takes back what a proposer added against the rules: more than it may, or something after an end of text.
    pub fn trim(&mut self, most: usize, ends: &dyn Fn(u32) -> bool) {
        let end = self.proposals.iter().position(|&token| ends(token)).map_or(most, |end| most.min(end + 1));
        self.proposals.truncate(end);
        self.drafted.truncate(end);
        self.candidates.truncate(end);
    }
}
