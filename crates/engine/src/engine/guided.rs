//! A draft's own draft. Where a draft step costs much of a plain one, a cheaper source guesses what the next steps will say: what
//! stood in the text before, or the model's head. One pass of the draft's layers then checks the guesses as a verification does,
//! and gives as many tokens as it finds right, and one more. What is drafted is what the layers say, whoever guessed.

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
    /// What a lookup knows to come behind the text.
    known: Vec<u32>,
    /// What the next step checks.
    pub guesses: Vec<u32>,
}

impl Lane<'_> {
    /// What guesses for the steps of each offer: the first source that needs no layers.
    pub(super) fn find_guides(&self, context: &Context, offers: &mut [Offer]) {
        let is_guide = |offer: &&Offer| {
            offer.ready.is_some() || matches!(self.proposers[offer.source].passes(), Some(Passes::Head))
        };
        let guide = offers.iter().find(is_guide).map(|&Offer { source, ready, .. }| Guide { source, ready });
        // Wrong guesses are cut off, which recurrent layers would pay for.
        let Some(guide) = guide.filter(|_| context.model().plan.mixers.is_empty()) else { return };
        for offer in offers {
            let passes = self.proposers[offer.source].passes();
            let one_pass = matches!(passes, Some(Passes::Layers(passes)) if passes.further.is_empty());
            offer.guide = one_pass.then_some(guide);
        }
    }

    /// A draft begins that this guides.
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
        // The step's own token is the last that may come.
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
