//! Drafts for drafts. Where a draft step costs much of a plain step, a cheaper source guesses the tokens of the next steps: a
//! lookup in the text, or the model's head. One pass of the draft's layers then checks the guesses, like a verification, and
//! gives as many tokens as were right, and one more. The draft is what these layers choose, whatever was guessed.

use super::{Lane, drafting::By};
use crate::{
    Context,
    speculation::{Guide, Offer, Passes, policy::Drafted},
};

/// The most guesses of one step.
const MOST: usize = 4;

/// Guesses for the steps of a draft.
pub struct Guided {
    guide: Guide,
    /// The continuation of the text that a lookup found.
    known: Vec<u32>,
    /// The guesses that the next step checks.
    pub guesses: Vec<u32>,
}

impl Lane<'_> {
    /// Finds what guesses for the steps of each offer: the first source that needs no layers of the model.
    pub(super) fn find_guides(&self, context: &Context, offers: &mut [Offer]) {
        let is_guide = |offer: &&Offer| {
            offer.ready.is_some() || matches!(self.proposers[offer.source].passes(), Some(Passes::Head))
        };
        let guide = offers.iter().find(is_guide).map(|&Offer { source, ready, .. }| Guide { source, ready });
        // Wrong guesses are cut off, which is slow with recurrent layers.
        let Some(guide) = guide.filter(|_| context.model().plan.mixers.is_empty()) else { return };
        for offer in offers {
            let passes = self.proposers[offer.source].passes();
            let one_pass = matches!(passes, Some(Passes::Layers(passes)) if passes.further.is_empty());
            offer.guide = one_pass.then_some(guide);
        }
    }

    /// Begins the guesses for a draft.
    pub(super) fn guided_by(&mut self, guide: Guide) -> Guided {
        let proposer = &mut self.proposers[guide.source];
        let known = match proposer.head() {
            Some(head) => {
                head.begin();
                Vec::new()
            }
            None => proposer.tokens(self.sampler.history()),
        };
        Guided { guide, known, guesses: Vec::new() }
    }

    /// Guesses for the next step of the draft.
    pub(super) fn guess(&mut self, context: &mut Context) {
        let Some(drafting) = &mut self.text.drafting else { return };
        let (source, most) = (drafting.source, drafting.most);
        let By::Layers { guided: Some(guided), .. } = &mut drafting.by else { return };
        let made = &self.text.made.proposals;
        // The step gives one token besides the guesses.
        let most = most.saturating_sub(made.len() + 1).min(MOST);
        let history = self.sampler.history();
        let mut since = history[history.len() - made.len() - 1..].to_vec();
        let mut guesses: Vec<Drafted> = Vec::new();
        guided.guesses.clear();
        while guesses.len() < most {
            let guess = match self.proposers[guided.guide.source].head() {
                Some(head) => head.guess(&since, &mut |job| context.together(job)),
                None => {
                    let (text, next) = (&since[1..], guided.known.get(since.len() - 1));
                    next.filter(|_| guided.known.starts_with(text)).map(|&token| (token, 1.0))
                }
            };
            let Some((token, confidence)) = guess.filter(|(token, _)| !self.text.spec.is_end(*token)) else {
                break;
            };
            guesses.push(Drafted { confidence });
            if !self.policy.checks(source, &guided.guide, &guesses) {
                break;
            }
            guided.guesses.push(token);
            since.push(token);
        }
    }
}
