//! Settings of the sampler, with llama.cpp's defaults.

use crate::{Error, Result, scores::Want};

/// How a token is chosen. The defaults are those of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct SamplerConfig {
    /// 0 and below: greedy.
    pub temp: f32,
    /// 0: off.
    pub top_k: usize,
    /// 1: off.
    pub top_p: f32,
    /// 0: off.
    pub min_p: f32,
    /// 1: off.
    pub typical_p: f32,
    /// 1: off.
    pub repeat_penalty: f32,
    /// Taken from a token's logit each time it occurs; 0: off.
    pub frequency_penalty: f32,
    /// Taken from a token's logit once if it occurs; 0: off.
    pub presence_penalty: f32,
    /// How many of the last tokens the three penalties look at; `usize::MAX`: all, 0: none.
    pub repeat_last_n: usize,
    /// Added to the logits; negative infinity forbids a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// As llama.cpp's; none: a random one.
    pub seed: Option<u32>,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            temp: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repeat_last_n: 64,
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

    /// Whether the highest logit wins, once bias and penalties are in. Typical sampling may remove the highest
    /// one, so with it the chain has to run even at temperature 0.
    pub fn is_greedy(&self) -> bool {
        self.temp <= 0.0 && self.typical_p >= 1.0
    }

    /// What of a row's logits the choice depends on.
    pub fn want(&self) -> Want {
        match self.top_k {
            _ if self.adjusts() => Want::Logits,
            _ if self.is_greedy() => Want::Top(1),
            0 => Want::Logits,
            k => Want::Top(k),
        }
    }

    /// Whether logits change before the first cut.
    pub(super) fn adjusts(&self) -> bool {
        !self.logit_bias.is_empty() || self.penalizes()
    }

    /// Whether any penalty changes anything.
    pub(super) fn penalizes(&self) -> bool {
        let strength = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty);
        self.repeat_last_n > 0 && strength != (1.0, 0.0, 0.0)
    }

    /// Errors name the setting, the value and the range.
    pub fn validate(&self) -> Result<()> {
        let share = 0.0..=1.0;
        let check = |ok: bool, setting: &str, value: f32, range: &str| match ok {
            true => Ok(()),
            false => Err(Error::Usage(format!("`{setting}` {value}: {range}"))),
        };
        check(self.temp.is_finite(), "temp", self.temp, "a finite number is needed; 0 is greedy")?;
        check(share.contains(&self.top_p), "top_p", self.top_p, "0 to 1 is the range; 1 turns it off")?;
        check(share.contains(&self.min_p), "min_p", self.min_p, "0 to 1 is the range; 0 turns it off")?;
        check(
            share.contains(&self.typical_p),
            "typical_p",
            self.typical_p,
            "0 to 1 is the range; 1 turns it off",
        )?;
        let positive = self.repeat_penalty.is_finite() && self.repeat_penalty > 0.0;
        let above_zero = "a number above 0 is needed; 1 turns it off";
        check(positive, "repeat_penalty", self.repeat_penalty, above_zero)?;
        let finite = "a finite number is needed; 0 turns it off";
        for (setting, value) in
            [("frequency_penalty", self.frequency_penalty), ("presence_penalty", self.presence_penalty)]
        {
            check(value.is_finite(), setting, value, finite)?;
        }
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
