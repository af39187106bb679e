//! What is known of each draft source, and how it performs in the current text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    acceptance::{Acceptance, Evidence},
    policy::{Drafted, Ready, Round, SourceInfo, SourceKind},
};

/// Tokens from the end of speculation to the first probe, and between probes at the most.
const FIRST_PROBE: usize = 16;
const RAREST_PROBE: usize = 512;
/// The standard deviation of the level of acceptance, in logits, that a probe starts from.
const PROBE_DOUBT: f64 = 1.2;
/// How fast the tokens that a source really gave lose weight, per round; and the weight of its prediction in tokens.
const YIELD_FADE: f64 = 0.97;
const YIELD_PRIOR: f64 = 10.0;

/// What is known of one source; persists between runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experience {
    /// What is known before a token is drafted.
    pub(super) before: Acceptance,
    /// With the draft's own confidence, after a token is drafted.
    pub(super) after: Acceptance,
    /// Of other candidates for the first token, by the draft's confidence and their rank.
    #[serde(default = "others_prior")]
    pub(super) others: Acceptance,
}

/// The draft's probabilities for them are about right.
fn others_prior() -> Acceptance {
    Acceptance::prior([0.0, 1.0, 0.0, 0.0], [0.5, 0.2, 0.2, 0.2])
}

/// What is known of sources, by kind and name.
pub type Memory = BTreeMap<String, Experience>;

/// The name of a source in files. Two files may have different masks of the same name; their costs tell them apart.
pub fn memory_key(info: &SourceInfo) -> String {
    format!("{} {} {:.4}", info.kind.name(), info.name, info.cost)
}

impl Experience {
    /// What is assumed before the first round.
    pub(super) fn prior(info: &SourceInfo) -> Self {
        let chance = info.chance.clamp(0.01, 0.99);
        let level = (chance / (1.0 - chance)).ln();
        let (longer_match, place) = if info.kind == SourceKind::Ngram { (0.8, 0.3) } else { (0.0, 0.0) };
        Experience {
            before: Acceptance::prior([level, longer_match, place, 0.3], [1.4, 0.5, 0.15, 0.5]),
            after: Acceptance::prior([0.3, 0.8, 0.0, 0.1], [1.2, 0.4, 0.15, 0.4]),
            others: others_prior(),
        }
    }

    /// Less certain, as it comes from an earlier run on another text.
    pub(super) fn recalled(mut self) -> Self {
        const DOUBT: f64 = 0.5;
        self.before.doubt(DOUBT);
        self.after.doubt(DOUBT);
        self
    }

    /// Whether learning could have given these numbers: a file may hold anything.
    pub fn is_sound(&self) -> bool {
        self.before.is_sound() && self.after.is_sound() && self.others.is_sound()
    }
}

/// A source in a text.
#[derive(Clone, Debug)]
pub struct Arm {
    pub info: SourceInfo,
    pub known: Experience,
    /// The last draft was accepted whole.
    pub hot: bool,
    /// Whether it was tried on text that was there, see [`Policy::wants_trial`].
    pub tried: bool,
    /// Tokens that were checked.
    pub trials: usize,
    pub accepted: usize,
    /// Tokens that rounds gave, and those that were predicted; both fade.
    given: f64,
    predicted: f64,
    /// Draft steps of rounds after their first step, and those that were predicted; both fade.
    steps: f64,
    steps_predicted: f64,
    pub probe_after: usize,
    probe_interval: usize,
}

impl Arm {
    pub fn new(info: &SourceInfo, known: Experience) -> Self {
        Arm {
            info: info.clone(),
            known,
            hot: false,
            tried: false,
            trials: 0,
            accepted: 0,
            given: 0.0,
            predicted: 0.0,
            steps: 0.0,
            steps_predicted: 0.0,
            probe_after: FIRST_PROBE,
            probe_interval: FIRST_PROBE,
        }
    }

    /// Learns from the tokens that a round accepted.
    pub fn learn(&mut self, round: &Round, ready: Option<Ready>) {
        for (place, &drafted) in round.drafted.iter().enumerate().take(round.accepted + 1) {
            let accepted = place < round.accepted;
            let (before, after) = (self.before(ready, place), self.after(drafted, place));
            self.known.before.learn(before, accepted);
            if ready.is_none() {
                self.known.after.learn(after, accepted);
            }
            self.trials += 1;
            self.accepted += usize::from(accepted);
        }
        for (rank, &other) in round.others.iter().enumerate() {
            self.known.others.learn(self.other(other, rank), round.other == Some(rank));
        }
        self.hot = round.accepted == round.drafted.len();
    }

    pub fn before(&self, ready: Option<Ready>, place: usize) -> Evidence {
        let strength = ready.map_or(0.0, |ready| (ready.match_len.max(1) as f64).ln());
        Evidence { strength, place, hot: self.hot }
    }

    pub fn after(&self, drafted: Drafted, place: usize) -> Evidence {
        Evidence::of_confidence(drafted.confidence, place, self.hot)
    }

    /// The evidence for another candidate for the first token.
    pub fn other(&self, drafted: Drafted, rank: usize) -> Evidence {
        Evidence::of_confidence(drafted.confidence, rank, false)
    }

    /// Makes what is known less certain.
    pub fn doubt(&mut self) {
        self.known.before.doubt(PROBE_DOUBT);
        self.known.after.doubt(PROBE_DOUBT);
    }

    /// Learns that a round gave so many tokens where so many were predicted.
    pub fn gave(&mut self, tokens: f64, predicted: f64) {
        self.given = YIELD_FADE * self.given + tokens;
        self.predicted = YIELD_FADE * self.predicted + predicted;
    }

    /// Learns that a round took so many draft steps where so many were predicted.
    pub fn took(&mut self, steps: f64, predicted: f64) {
        let by_guesses_alone = (predicted - 1.0).max(0.0) / self.steps();
        self.steps = YIELD_FADE * self.steps + (steps - 1.0).max(0.0);
        self.steps_predicted = YIELD_FADE * self.steps_predicted + by_guesses_alone;
    }

    /// The ratio of the draft steps after the first to those predicted from the guesses' chances.
    pub fn steps(&self) -> f64 {
        (YIELD_PRIOR + self.steps) / (YIELD_PRIOR + self.steps_predicted)
    }

    /// When to ask it again if it is off, after a round that ended with so many tokens.
    pub fn plan_probe(&mut self, was_probe: bool, tokens: usize) {
        match (was_probe, self.hot) {
            (true, true) => self.probe_after = tokens,
            (true, false) => {
                self.probe_interval = (2 * self.probe_interval).min(RAREST_PROBE);
                self.probe_after = tokens + self.probe_interval;
            }
            (false, _) => {
                self.probe_interval = FIRST_PROBE;
                self.probe_after = tokens + FIRST_PROBE;
            }
        }
    }

    /// The ratio of the tokens that rounds gave to those predicted. Chances alone do not show that confidence ends bad drafts early.
    pub fn yields(&self) -> f64 {
        (YIELD_PRIOR + self.given) / (YIELD_PRIOR + self.predicted)
    }
}
