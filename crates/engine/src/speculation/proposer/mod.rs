//! What can draft. A proposer may be right or wrong, never harmful: its tokens are verified.

pub mod confidence;
mod dflash;
mod eagle;
mod exits;
mod head;
mod kept;
mod markov;
mod mask;
mod model;
mod mtp;
mod ngram;
mod read_texts;
mod trained;

pub use dflash::DflashProposer;
pub use eagle::EagleProposer;
pub use exits::ExitsProposer;
pub use head::Choice;
pub use head::{HeadProposer, HeadSource};
pub use kept::Kept;
pub use mask::MaskProposer;
pub use model::{ModelProposer, ModelSource};
pub use mtp::MtpProposer;
pub use ngram::NgramProposer;
pub use trained::TrainedSource;

use super::policy::{Drafted, Ready, SourceInfo};
use crate::{
    Context, RunLayers,
    scores::{Scores, Want},
};

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

    /// What drafts for it, if its passes are [`Passes::Apart`].
    fn apart(&mut self) -> Option<&mut dyn Apart> {
        None
    }

    /// What is to see rows that full passes leave, if it drafts from them.
    fn reader(&mut self) -> Option<&mut dyn ReadsRows> {
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
            Passes::Mtp | Passes::Head | Passes::Apart => None,
        }
    }
}

/// What of the model runs for a drafted token.
#[derive(Clone, Copy, Debug)]
pub enum Passes<'p> {
    /// Some of its layers.
    Layers(&'p LayerPasses),
    /// The head that predicts one token more.
    Mtp,
    /// Nothing: a small head computes by itself what it drafts, from rows that full passes leave.
    Head,
    /// Nothing: something else drafts, in a context of its own.
    Apart,
}

/// What drafts in a context of its own.
pub trait Apart {
    /// How many tokens it knows.
    fn n_vocab(&self) -> usize;

    /// Evaluates what it can of a text, whose last token comes later.
    fn read(&mut self, text: &[u32]);

    /// A draft of at most so many tokens begins behind a text, whose last token is its first step's.
    fn begin(&mut self, text: &[u32], most: usize);

    /// Shows what comes behind a token; false where that cannot be told.
    fn step(&mut self, token: u32, want: Want, look: &mut dyn FnMut(Scores)) -> bool;
}

/// What drafts from rows that full passes leave before some layers.
pub trait ReadsRows {
    /// Which layers of so many, ascending; their number is behind the last one.
    fn layers(&self, n_layer: usize) -> Vec<usize>;

    /// Whether it wants the rows of prompts too.
    fn reads_prompts(&self) -> bool;

    /// Sees rows of a text. Passes may have left none for the tokens before them.
    fn see(&mut self, left: Left);

    /// Whether a draft can begin behind the token before this position.
    fn leads_to(&self, pos: u32) -> bool;
}

/// What a full pass left of tokens that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// The text before them, as far as it is known.
    pub before: &'a [u32],
    /// Which tokens they are.
    pub tokens: &'a [u32],
    /// The position of the first.
    pub pos: u32,
    /// Of each, its rows as they came to the layers, one after the other.
    pub rows: &'a [&'a [f32]],
}

/// Passes of a token through some layers.
#[derive(Clone, Debug)]
pub struct LayerPasses {
    /// The first pass of each token.
    pub mask: RunLayers,
    /// So many of the first layers run in full, and what they made is left to verification. 0: nothing is.
    pub prefix: usize,
    /// Where the head is not sure, the row goes on from a layer, under a mask; and so on.
    pub further: Vec<(usize, RunLayers)>,
}

/// What came out; kept from round to round for its memory.
#[derive(Default)]
pub struct Made {
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
