//! The settings that are numbers, in one table. It is used to check them, to read them from requests, to show them, and to set
//! them from Python.

use super::SamplerConfig;
use crate::{Error, Result};

/// Which numbers a setting may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Any that is finite.
    Finite,
    /// From 0 to 1.
    Share,
    /// Above 0.
    Positive,
    /// 1 and above.
    AtLeastOne,
}

impl Allowed {
    fn has(self, value: f32) -> bool {
        match self {
            Allowed::Finite => value.is_finite(),
            Allowed::Share => (0.0..=1.0).contains(&value),
            Allowed::Positive => value.is_finite() && value > 0.0,
            Allowed::AtLeastOne => value.is_finite() && value >= 1.0,
        }
    }
}

/// A setting that is a number.
pub struct Number {
    /// What messages and Python call it.
    pub name: &'static str,
    /// What requests call it.
    pub in_requests: &'static str,
    /// Which numbers it may have.
    pub allowed: Allowed,
    /// The same in words, and what turns it off.
    pub range: &'static str,
    /// Its value.
    pub get: fn(&SamplerConfig) -> f32,
    /// The field with its value.
    pub field: fn(&mut SamplerConfig) -> &mut f32,
}

impl Number {
    /// Errors name the setting, the value and the range.
    pub fn check(&self, config: &SamplerConfig) -> Result<()> {
        let value = (self.get)(config);
        match self.allowed.has(value) {
            true => Ok(()),
            false => Err(Error::Usage(format!("`{}` {value}: {}", self.name, self.range))),
        }
    }

    /// The setting of this name.
    pub fn of_name(name: &str) -> Option<&'static Number> {
        NUMBERS.iter().find(|number| number.name == name)
    }
}

macro_rules! number {
    ($name:literal, $in_requests:literal, $allowed:ident, $range:expr, $($field:ident).+) => {
        Number {
            name: $name,
            in_requests: $in_requests,
            allowed: Allowed::$allowed,
            range: $range,
            get: |config| config.$($field).+,
            field: |config| &mut config.$($field).+,
        }
    };
}

const FINITE: &str = "a finite number is needed";
const FINITE_0: &str = "a finite number is needed; 0 turns it off";
const SHARE_0: &str = "0 to 1 is the range; 0 turns it off";
const SHARE_1: &str = "0 to 1 is the range; 1 turns it off";

/// All of them, in the order in which they are checked.
#[rustfmt::skip]
pub static NUMBERS: &[Number] = &[
    number!("temp", "temperature", Finite, "a finite number is needed; 0 is greedy", temp),
    number!("top_p", "top_p", Share, SHARE_1, top_p),
    number!("min_p", "min_p", Share, SHARE_0, min_p),
    number!("typical_p", "typical_p", Share, SHARE_1, typical_p),
    number!("repeat_penalty", "repeat_penalty", Positive, "a number above 0 is needed; 1 turns it off", repeat_penalty),
    number!("frequency_penalty", "frequency_penalty", Finite, FINITE_0, frequency_penalty),
    number!("presence_penalty", "presence_penalty", Finite, FINITE_0, presence_penalty),
    number!("dry_multiplier", "dry_multiplier", Finite, FINITE_0, dry.multiplier),
    number!("top_n_sigma", "top_n_sigma", Finite, FINITE_0, top_n_sigma),
    number!("dynatemp_range", "dynatemp_range", Finite, FINITE_0, dynatemp_range),
    number!("dry_base", "dry_base", AtLeastOne, "1 and above is the range", dry.base),
    number!("dynatemp_exponent", "dynatemp_exponent", Finite, FINITE, dynatemp_exponent),
    number!("xtc_probability", "xtc_probability", Share, SHARE_0, xtc_probability),
    number!("xtc_threshold", "xtc_threshold", Share, "0 to 1 is the range; above 0.5 is off", xtc_threshold),
    number!("mirostat_tau", "mirostat_tau", Finite, FINITE, mirostat_tau),
    number!("mirostat_eta", "mirostat_eta", Finite, FINITE, mirostat_eta),
];
