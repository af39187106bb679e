//! Proposers make drafts. They cannot change a text, because their tokens are verified.

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

/// Bytes that a usual machine reads from RAM in a second.
const RAM_SPEED: f64 = 40e9;

/// The tokens that a proposer has for this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// Nothing to draft.
    Nothing,
    /// Any number of tokens, each of which has to be computed.
    Any,
    /// Tokens that are known already.
    Found(Ready),
}

/// Makes drafts. It says how to make them, and evaluates nothing in the text's context itself.
pub trait Proposer: Send {
    /// Its description for the policy.
    fn info(&self, context: &Context) -> SourceInfo;

    /// The tokens that it could draft after `text`. From call to call the text of a run only grows.
    fn supply(&mut self, text: &[u32]) -> Supply;

    /// The passes that make its drafts; `None` if it knows its tokens already.
    fn passes(&self) -> Option<Passes<'_>> {
        None
    }

    /// The token to draft after `text`, if its passes chose `chosen`; `text` ends with the tokens drafted before. Measurements replace
    /// it, so that drafts are accepted as often as they want.
    fn overrule(&mut self, _text: &[u32], chosen: u32) -> u32 {
        chosen
    }

    /// Its head, if its passes are [`Passes::Head`].
    fn head(&mut self) -> Option<&mut HeadProposer> {
        None
    }

    /// Its source of drafts, if its passes are [`Passes::Apart`].
    fn apart(&mut self) -> Option<&mut dyn Apart> {
        None
    }

    /// Its reader of rows that full passes leave, if it drafts from them.
    fn reader(&mut self) -> Option<&mut dyn ReadsRows> {
        None
    }

    /// The tokens that it knows after `text`, which [`Proposer::supply`] has just seen.
    fn tokens(&mut self, _text: &[u32]) -> Vec<u32> {
        Vec::new()
    }

    /// The mask of its draft steps, if they are nothing but passes under a mask: so that these can be timed.
    fn mask(&self) -> Option<&RunLayers> {
        match self.passes()? {
            Passes::Layers(passes) => passes.further.is_empty().then_some(&passes.mask),
            Passes::Mtp | Passes::Head | Passes::Apart => None,
        }
    }
}

/// What runs for a drafted token.
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

/// Drafts in a context of its own.
pub trait Apart {
    /// The size of its vocabulary.
    fn n_vocab(&self) -> usize;

    /// Evaluates what it can of a text, but not its last token.
    fn read(&mut self, text: &[u32]);

    /// Begins a draft of at most so many tokens after a text. The text's last token is the first step's.
    fn begin(&mut self, text: &[u32], most: usize);

    /// Shows the scores after a token; false where they cannot be computed.
    fn step(&mut self, token: u32, want: Want, look: &mut dyn FnMut(Scores)) -> bool;
}

/// Drafts from rows that full passes leave before some layers.
pub trait ReadsRows {
    /// The layers before which it reads rows, ascending, of a model with `n_layer` layers. `n_layer` itself means after the last.
    fn layers(&self, n_layer: usize) -> Vec<usize>;

    /// Whether it wants the rows of prompts too.
    fn reads_prompts(&self) -> bool;

    /// Sees rows of a text. Passes may have left none for the tokens before them.
    fn see(&mut self, left: Left);

    /// Whether a draft can begin after the token before this position.
    fn leads_to(&self, pos: u32) -> bool;
}

/// Rows that a full pass left of consecutive tokens.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// The text before them.
    pub before: &'a [u32],
    /// The tokens.
    pub tokens: &'a [u32],
    /// The position of the first.
    pub pos: u32,
    /// For each token its rows before the layers, one after the other.
    pub rows: &'a [&'a [f32]],
}

/// Passes of a token through some layers.
#[derive(Clone, Debug)]
pub struct LayerPasses {
    /// The first pass of each token.
    pub mask: RunLayers,
    /// How many of the first layers run in full, and leave their rows for the verification; 0: none.
    pub prefix: usize,
    /// Where the head is not sure, the row goes on from a layer, under a mask. There may be several such passes.
    pub further: Vec<(usize, RunLayers)>,
}

/// A draft; kept from round to round to reuse its memory.
#[derive(Default)]
pub struct Made {
    pub proposals: Vec<u32>,
    pub drafted: Vec<Drafted>,
    /// Per token the draft's best candidates, best first; empty if it has none.
    pub candidates: Vec<Vec<u32>>,
    /// Other candidates for the first token that are verified, and the draft's probabilities of them.
    pub others: Vec<u32>,
    pub others_drafted: Vec<Drafted>,
    /// Which of them was accepted, where the first was not.
    pub other: Option<usize>,
    /// Whether it ended at the most tokens that were allowed and would have gone on.
    pub cut: bool,
    /// Rows from which verification may go on.
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

    /// Adds other candidates for the first token.
    pub fn consider(&mut self, first: u32, tokens: &[u32], confidences: &[f32]) {
        for (&token, &confidence) in tokens.iter().zip(confidences).filter(|(token, _)| **token != first) {
            self.others.push(token);
            self.others_drafted.push(Drafted { confidence });
        }
    }

    /// The accepted token at an index.
    pub fn accepted(&self, place: usize) -> u32 {
        self.other.map_or(self.proposals[place], |other| self.others[other])
    }

    /// The row of the verification that comes after so many accepted tokens.
    pub fn row_behind(&self, accepted: usize) -> usize {
        match self.other {
            Some(other) if accepted > 0 => self.proposals.len() + other + 1,
            _ => accepted,
        }
    }

    /// Removes tokens that a proposer may not add: more than `most`, or any after an end of text.
    pub fn trim(&mut self, most: usize, ends: &dyn Fn(u32) -> bool) {
        let end = self.proposals.iter().position(|&token| ends(token)).map_or(most, |end| most.min(end + 1));
        self.proposals.truncate(end);
        self.drafted.truncate(end);
        self.candidates.truncate(end);
    }
}
