//! Settings of the sampler, with llama.cpp's defaults.

use super::{Dry, NUMBERS, Stage};
use crate::{Error, Result, scores::Want};

/// Mirostat's two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirostat {
    /// Computes how many tokens to keep from how fast their probabilities fall.
    One,
    /// Keeps the tokens whose surprise is low enough.
    Two,
}

/// How a token is chosen. The defaults are those of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct SamplerConfig {
    /// 0 and below: greedy.
    pub temp: f32,
    /// By how much the entropy raises and lowers the temperature; 0: off.
    pub dynatemp_range: f32,
    /// The exponent of that.
    pub dynatemp_exponent: f32,
    /// 0: off.
    pub top_k: usize,
    /// 1: off.
    pub top_p: f32,
    /// 0: off.
    pub min_p: f32,
    /// 1: off.
    pub typical_p: f32,
    /// How many standard deviations below the best a logit may lie; 0 and below: off.
    pub top_n_sigma: f32,
    /// How often all likely tokens but the least likely of them are removed; 0: off.
    pub xtc_probability: f32,
    /// The least probability of a likely token; above 0.5: off.
    pub xtc_threshold: f32,
    /// 1: off.
    pub repeat_penalty: f32,
    /// Taken from a token's logit each time it occurs; 0: off.
    pub frequency_penalty: f32,
    /// Taken from a token's logit once if it occurs; 0: off.
    pub presence_penalty: f32,
    /// How many of the last tokens the three penalties look at; `usize::MAX`: all, 0: none.
    pub repeat_last_n: usize,
    /// Against repetitions of several tokens.
    pub dry: Dry,
    /// Keeps the surprise at a level. It replaces all stages but bias and temperature.
    pub mirostat: Option<Mirostat>,
    /// The surprise that mirostat aims at, in bits.
    pub mirostat_tau: f32,
    /// How fast it learns.
    pub mirostat_eta: f32,
    /// The stages in their order; a stage that is not in the list is off.
    pub samplers: Vec<Stage>,
    /// Added to the logits; negative infinity forbids a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// As llama.cpp's; none: a random one.
    pub seed: Option<u32>,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            temp: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repeat_last_n: 64,
            dry: Dry::default(),
            mirostat: None,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            samplers: Stage::ALL.to_vec(),
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplerConfig {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self { temp: 0.0, ..Self::default() }
    }

    /// Whether the token with the highest logit after bias and penalties is chosen. Typical sampling and XTC may remove that token, and
    /// stages that change logits after a cut do not see all tokens: then the chain has to run even at temperature 0.
    pub fn is_greedy(&self) -> bool {
        if self.temp > 0.0 {
            return false;
        }
        if self.mirostat.is_some() {
            return true;
        }
        let mut changes = self.active().skip_while(|stage| stage.changes_logits());
        self.samplers.contains(&Stage::Temperature)
            && self.dynatemp_range <= 0.0
            && !changes.any(|stage| stage.changes_logits() || matches!(stage, Stage::TypicalP | Stage::Xtc))
    }

    /// The scores of a row that the choice depends on.
    pub fn want(&self) -> Want {
        match self.active().next() {
            _ if !self.logit_bias.is_empty() => Want::Logits,
            Some(Stage::Penalties | Stage::Dry) => Want::Logits,
            _ if self.is_greedy() => Want::Top(1),
            Some(Stage::TopK) => Want::Top(self.top_k),
            _ => Want::Logits,
        }
    }

    /// The stages that do something, in their order.
    pub(super) fn active(&self) -> impl Iterator<Item = Stage> {
        let stages = self.samplers.iter().copied().filter(|_| self.mirostat.is_none());
        stages.filter(|&stage| match stage {
            Stage::Penalties => self.penalizes(),
            Stage::Dry => self.dry.is_on(),
            Stage::TopNSigma => self.top_n_sigma > 0.0,
            Stage::TopK => self.top_k > 0,
            Stage::TypicalP => self.typical_p < 1.0,
            Stage::TopP => self.top_p < 1.0,
            Stage::MinP => self.min_p > 0.0,
            Stage::Xtc => self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5,
            Stage::Temperature => self.temp != 1.0 || self.dynatemp_range > 0.0,
        })
    }

    /// Whether a choice changes more than the text: then something is remembered for each position.
    pub(super) fn remembers(&self) -> bool {
        self.mirostat.is_some() || self.active().any(|stage| stage == Stage::Xtc)
    }

    fn penalizes(&self) -> bool {
        let strength = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty);
        self.repeat_last_n > 0 && strength != (1.0, 0.0, 0.0)
    }

    /// Errors name the setting, the value and the range.
    pub fn validate(&self) -> Result<()> {
        NUMBERS.iter().try_for_each(|number| number.check(self))?;
        match self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            Some((id, _)) => Err(Error::Usage(format!("`logit_bias` {id}: the bias is not a number"))),
            None => Ok(()),
        }
    }

    /// A bias for a token that the vocabulary does not have is most likely a mistake.
    pub fn check_vocabulary(&self, n_vocab: usize) -> Result<()> {
        match self.logit_bias.iter().find(|(id, _)| *id as usize >= n_vocab) {
            Some((id, _)) => Err(Error::Usage(format!(
                "`logit_bias` {id}: no such token; the vocabulary has {n_vocab}, 0 to {}",
                n_vocab.saturating_sub(1)
            ))),
            None => Ok(()),
        }
    }
}
