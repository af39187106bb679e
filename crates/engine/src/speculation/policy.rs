//! Policies decide, round by round, whether to draft, from which source, and how far.
//!
//! The loop offers what could be drafted and reports the outcome. A policy only does arithmetic and cannot change the text:
//! whatever it chooses, verification gives the same tokens.

use super::Controller;

/// The kind of a draft source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// The model itself with sublayers skipped or coarse.
    Mask,
    /// The model's first layers and its head.
    Exit,
    /// The head that was trained to predict one token more.
    Mtp,
    /// A small head that was fitted to the model.
    Head,
    /// Another model.
    Model,
    /// A continuation looked up in the text so far.
    Ngram,
    /// A proposer of the library's user.
    Other,
}

impl SourceKind {
    /// The kind in a word.
    pub fn name(self) -> &'static str {
        match self {
            SourceKind::Mask => "mask",
            SourceKind::Exit => "exit",
            SourceKind::Mtp => "mtp",
            SourceKind::Head => "head",
            SourceKind::Model => "model",
            SourceKind::Ngram => "ngram",
            SourceKind::Other => "other",
        }
    }
}

/// A source as the policy knows it; its index is its position in [`Policy::start`].
#[derive(Clone, Debug, PartialEq)]
pub struct SourceInfo {
    /// What reports call it.
    pub name: String,
    /// Its kind.
    pub kind: SourceKind,
    /// The cost of a draft step by the bytes that it reads, in plain steps; 0 for a lookup.
    pub cost: f64,
    /// The chance that the first token of a draft is accepted, before anything was seen of it.
    pub chance: f64,
    /// The layers of its steps that verification need not run again; `None` if there are none, or if the device cannot do that.
    pub prefix: Option<Prefix>,
}

impl SourceInfo {
    /// Whether its tokens are known before anything is computed.
    pub fn looks_up(&self) -> bool {
        self.cost == 0.0
    }
}

#[cfg(test)]
impl SourceInfo {
    pub fn lookup() -> Self {
        SourceInfo { name: "ngram".into(), kind: SourceKind::Ngram, cost: 0.0, chance: 0.3, prefix: None }
    }

    pub fn mask(name: &str, cost: f64) -> Self {
        SourceInfo { name: name.into(), kind: SourceKind::Mask, cost, chance: 0.75, prefix: None }
    }
}

/// The first layers, where a draft runs them in full and keeps its rows: verification can go on from there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefix {
    /// How many layers.
    pub layers: usize,
    /// Of the bytes that a plain step reads.
    pub share: f64,
}

/// A source that can draft in this round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// The index of the source.
    pub source: usize,
    /// The most tokens it could draft, by its own means and the context's room; at least 1.
    pub most: usize,
    /// What it knows before anything is computed; only for lookups.
    pub ready: Option<Ready>,
    /// The source that guesses for its steps, if there is one.
    pub guide: Option<Guide>,
}

/// A cheaper source that guesses the tokens of a draft's steps: each step then checks several guesses in one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guide {
    /// The index of the source.
    pub source: usize,
    /// What it knows before anything is computed; only for lookups.
    pub ready: Option<Ready>,
}

/// A continuation that was found: its length, and that of the match which led there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// How many tokens were found.
    pub tokens: usize,
    /// How many tokens before them matched.
    pub match_len: usize,
}

/// The decision for a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundChoice {
    /// One ordinary decode step.
    Plain,
    /// Draft `1..=most` tokens from a source that was offered.
    Draft {
        /// The index of the source.
        source: usize,
        /// The most tokens to draft.
        most: usize,
    },
}

/// One drafted token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drafted {
    /// The probability that the draft gave its own choice, before any sampler setting; 1 if unknown.
    pub confidence: f32,
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round<'a> {
    /// `None`: a plain step.
    pub source: Option<usize>,
    /// What was drafted.
    pub drafted: &'a [Drafted],
    /// Steps that drafting them took: fewer than tokens where steps check guesses.
    pub draft_steps: usize,
    /// How many of them were accepted, from the first on.
    pub accepted: usize,
    /// Other candidates for the first token that were verified.
    pub others: &'a [Drafted],
    /// Which of these was accepted, where the first was not.
    pub other: Option<usize>,
    /// The layer that verification began at: not the first where it went on with the draft's rows.
    pub from_layer: usize,
    /// Seconds of drafting.
    pub draft_seconds: f64,
    /// The full model's pass over all of these and the token before.
    pub verify_seconds: f64,
    /// Sampling, accepting, bookkeeping; not the caller's `on_token`.
    pub other_seconds: f64,
}

impl Round<'_> {
    /// Tokens that joined the text.
    pub fn gained(&self) -> usize {
        self.accepted + usize::from(self.other.is_some()) + 1
    }

    /// Rows of the full model's pass.
    pub fn rows(&self) -> usize {
        self.drafted.len() + self.others.len() + 1
    }
}

/// How many times as fast as plain decoding; `None` where that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speedup {
    /// By the cost model, from learnt acceptance and measured costs.
    pub predicted: Option<f64>,
    /// Against plain steps that were timed in the same run.
    pub measured: Option<f64>,
}

/// Decides what each round does, and sees its outcome.
pub trait Policy {
    /// The sources, once, before the first round.
    fn start(&mut self, sources: &[SourceInfo]);

    /// What this round does, given what could draft.
    fn choose(&mut self, offers: &[Offer]) -> RoundChoice;

    /// Before each drafted token but the first: draft another, given the confidences so far? `is_paid`: the step before has
    /// computed it already.
    fn draft_more(&self, source: usize, so_far: &[Drafted], is_paid: bool) -> bool;

    /// Whether the last of these guesses is worth a row in a source's next step.
    fn checks(&self, _source: usize, _guide: &Guide, _guesses: &[Drafted]) -> bool {
        false
    }

    /// After a draft of so many tokens: how many of these other candidates for its first token to verify, best first.
    fn others(&self, _source: usize, _drafted: usize, _others: &[Drafted]) -> usize {
        0
    }

    /// Whether the next round may draft from this source. If not, it need not be prepared, which takes some time.
    fn may_draft(&self, _source: usize) -> bool {
        true
    }

    /// How many tokens to draft, at most `most`, where that is decided before the first is seen: the device then runs the whole round
    /// by itself. `None`: decide after each token.
    fn length(&self, _source: usize, _most: usize) -> Option<usize> {
        None
    }

    /// Whether verification of so many drafted tokens goes on after the draft's own layers ([`SourceInfo::prefix`]), instead of
    /// beginning with the first layer.
    fn resumes(&self, _source: usize, _drafted: usize) -> bool {
        true
    }

    /// A round is over.
    fn record(&mut self, round: &Round);

    /// A prompt of so many tokens was evaluated in so many seconds.
    fn saw_prompt(&mut self, _tokens: usize, _seconds: f64) {}

    /// Whether it is worth a pass over so many positions of the text to try this source on them now.
    fn wants_trial(&self, _source: usize, _places: usize) -> bool {
        false
    }

    /// The outcome of a trial: at each position how sure the draft was, and whether it chose the full model's token.
    fn tried(&mut self, _source: usize, _places: &[(Drafted, bool)], _seconds: f64) {}

    /// Why speculation is (or was) off, in one plain sentence; `None` if it was on.
    fn off_reason(&self) -> Option<String>;

    /// How much faster the text came than by plain decoding.
    fn speedup(&self) -> Speedup;

    /// The controller, if this is one. For several texts in a round their controllers decide together.
    fn controller(&self) -> Option<&Controller> {
        None
    }

    /// The same, to report such rounds to it.
    fn controller_mut(&mut self) -> Option<&mut Controller> {
        None
    }
}

/// Fixed numbers, for research: drafts whenever a source offers enough, from the first that does.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// Most tokens of a draft; 0 is plain decoding.
    pub max: usize,
    /// A source that cannot draft this many is not used, and a low confidence does not end a draft before.
    pub min: usize,
    /// A draft ends with the first token that the draft itself gave less than this.
    pub p_min: f32,
}

impl Default for Fixed {
    fn default() -> Self {
        Fixed { max: 4, min: 0, p_min: 0.0 }
    }
}

impl Policy for Fixed {
    fn start(&mut self, _: &[SourceInfo]) {}

    fn choose(&mut self, offers: &[Offer]) -> RoundChoice {
        let enough = |offer: &&Offer| offer.most >= self.min.max(1);
        match offers.iter().find(enough) {
            Some(offer) if self.max > 0 => {
                RoundChoice::Draft { source: offer.source, most: offer.most.min(self.max) }
            }
            _ => RoundChoice::Plain,
        }
    }

    fn draft_more(&self, _: usize, so_far: &[Drafted], _: bool) -> bool {
        let sure = so_far.last().is_none_or(|d| d.confidence >= self.p_min);
        so_far.len() < self.max && (sure || so_far.len() < self.min)
    }

    fn length(&self, _: usize, most: usize) -> Option<usize> {
        (self.p_min <= 0.0).then(|| most.min(self.max))
    }

    fn record(&mut self, _: &Round) {}

    fn off_reason(&self) -> Option<String> {
        (self.max == 0).then(|| "drafts of 0 tokens ask for plain decoding".into())
    }

    fn speedup(&self) -> Speedup {
        Speedup::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers() -> [Offer; 2] {
        let lookup =
            Offer { source: 0, most: 2, ready: Some(Ready { tokens: 2, match_len: 3 }), guide: None };
        [lookup, Offer { source: 1, most: 9, ready: None, guide: None }]
    }

    #[test]
    fn fixed_takes_the_first_source_that_offers_enough() {
        let choose = |max, min| Fixed { max, min, p_min: 0.0 }.choose(&offers());
        assert_eq!(choose(4, 0), RoundChoice::Draft { source: 0, most: 2 });
        assert_eq!(choose(4, 3), RoundChoice::Draft { source: 1, most: 4 });
        assert_eq!(choose(4, 10), RoundChoice::Plain);
        assert_eq!(choose(0, 0), RoundChoice::Plain);
    }

    #[test]
    fn doubt_ends_a_draft_that_is_long_enough() {
        let fixed = Fixed { max: 4, min: 2, p_min: 0.5 };
        let draft = |confidences: &[f32]| {
            let drafted: Vec<_> = confidences.iter().map(|&confidence| Drafted { confidence }).collect();
            fixed.draft_more(0, &drafted, false)
        };
        assert_eq!(fixed.length(0, 9), None);
        assert_eq!(Fixed { p_min: 0.0, ..fixed.clone() }.length(0, 9), Some(4));
        assert!(draft(&[0.1]) && draft(&[0.1, 0.6]) && !draft(&[0.9, 0.4]) && !draft(&[1.0; 4]));
    }
}
