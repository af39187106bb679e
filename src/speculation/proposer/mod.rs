//! What can draft. A proposer may be right or wrong, never harmful: its tokens are verified.

mod exits;
pub(super) mod glance;
mod kept;
mod mask;
mod ngram;

pub use exits::ExitsProposer;
pub(super) use kept::Kept;
pub use mask::MaskProposer;
pub use ngram::NgramProposer;

use super::{
    accept::Proposal,
    draws::Draws,
    policy::{Drafted, Ready, SourceInfo},
};
use crate::{Context, Result, RunLayers, Sampler, scores::Want};

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

/// Something that drafts.
pub trait Proposer {
    /// What the policy is to know of it.
    fn info(&self, context: &Context) -> SourceInfo;

    /// The mask that its draft steps run under, if that is all there is to them: so that others can time it.
    fn mask(&self) -> Option<&RunLayers> {
        None
    }

    /// What it could draft after `text`. From call to call the text of a run only grows.
    fn supply(&mut self, text: &[u32]) -> Supply;

    /// Drafts: adds to `draft` while it wants more.
    fn draft(&mut self, draft: &mut Draft) -> Result<()>;
}

/// A draft in the making.
pub struct Draft<'a> {
    /// Sequence [`super::TARGET`] holds the text but for its last token, evaluated in full. Everything else in
    /// the cache is the proposer's; what it adds under [`super::DRAFT`] is removed after the draft.
    pub context: &'a mut Context,
    pub(super) sampler: &'a mut Sampler,
    pub(super) draws: &'a mut Draws,
    pub(super) ends: &'a dyn Fn(u32) -> bool,
    pub(super) draft_more: &'a dyn Fn(&[Drafted]) -> bool,
    pub(super) most: usize,
    /// Whether rows of the first layers are welcome.
    pub(super) keeps: bool,
    pub(super) made: &'a mut Made,
}

/// What came out; kept from round to round for its memory.
#[derive(Default)]
pub(super) struct Made {
    pub proposals: Vec<Proposal>,
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
        let end = self.proposals.iter().position(|p| ends(p.token)).map_or(most, |end| most.min(end + 1));
        self.proposals.truncate(end);
        self.drafted.truncate(end);
        self.candidates.truncate(end);
    }
}

impl Draft<'_> {
    /// The text so far and the tokens drafted after it.
    pub fn text(&self) -> &[u32] {
        self.sampler.history()
    }

    /// The number of drafted tokens.
    pub fn len(&self) -> usize {
        self.made.proposals.len()
    }

    /// Whether nothing is drafted yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether another token is welcome.
    pub fn wants_more(&mut self) -> bool {
        let Some(last) = self.made.proposals.last() else { return self.most > 0 };
        if (self.ends)(last.token) || !(self.draft_more)(&self.made.drafted) {
            return false;
        }
        self.made.cut = self.len() >= self.most;
        !self.made.cut
    }

    /// The layer to keep rows at, if that is the end of what runs in full and the rows are welcome.
    pub(super) fn keep(&mut self, prefix: usize) -> Option<usize> {
        let layer = if self.keeps { prefix } else { 0 };
        self.made.kept.begin(layer);
        (layer > 0).then_some(layer)
    }

    /// Adds a token that was not drawn from a distribution.
    pub fn push(&mut self, token: u32) {
        self.add(Proposal { token, q: None }, 1.0, Vec::new());
    }

    /// What [`Draft::choose`] needs to know of a row.
    pub fn want(&self) -> Want {
        self.sampler.config().want().or_top(glance::CANDIDATES)
    }

    /// Adds the draft's choice from the context's scores, by the sampler's rules, and returns it.
    pub fn choose(&mut self) -> u32 {
        let scores = self.context.scores(0);
        let place = self.made.proposals.len();
        let proposal = self.draws.draft(self.sampler, scores, place);
        let (token, confidence) = (proposal.token, glance::probability(scores, proposal.token));
        let candidates = glance::best(scores);
        self.add(proposal, confidence, candidates);
        token
    }

    fn add(&mut self, proposal: Proposal, confidence: f32, candidates: Vec<u32>) {
        self.sampler.accept(proposal.token);
        self.made.proposals.push(proposal);
        self.made.drafted.push(Drafted { confidence });
        self.made.candidates.push(candidates);
    }
}
