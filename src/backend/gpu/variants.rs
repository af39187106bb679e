//! Which kernels are used where there is a choice: plain ones, which need no optional feature and always work, or
//! such as use what a device has beyond that. A choice holds for as long as a device is open, for any number of
//! rows, so a row's bits do not depend on its batch under any of them.

use std::{fmt, str::FromStr};

use super::{device::Found, formats::Format};
use crate::{Error, Result};

/// How quantized weights are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arith {
    /// Weights as f32, activations as they are.
    #[default]
    Float,
    /// Activations in whole numbers of 8 bits with a scale for 32, as the CPU has them; sums of products are exact.
    Int8,
    /// Activations in halves with a scale for 32.
    Half,
}

impl Arith {
    /// What a format is multiplied by: weights that are floats stay so.
    pub fn of(self, format: Format) -> Self {
        if format.is_float() { Arith::Float } else { self }
    }

    /// Words of 16 bytes that a block of 32 activations takes.
    pub const fn block_quads(self) -> usize {
        match self {
            Arith::Float => 8,
            Arith::Int8 => 3,
            Arith::Half => 5,
        }
    }

    pub const ALL: [Arith; 3] = [Arith::Float, Arith::Int8, Arith::Half];
}

/// The matrices that a subgroup multiplies together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Square {
    #[default]
    Sixteen,
    Eight,
}

impl Square {
    /// The likeliest to be fast comes first.
    pub const ALL: [Square; 2] = [Square::Sixteen, Square::Eight];

    pub fn side(self) -> u32 {
        match self {
            Square::Sixteen => 16,
            Square::Eight => 8,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variants {
    pub arith: Arith,
    /// Sums over workgroups are made by subgroups.
    pub subgroups: bool,
    /// Tiles of whole numbers are multiplied by cooperative matrices, which gives the same bits. wgpu calls them an
    /// experiment, so they are used by name only.
    pub coop: bool,
}

/// What may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What is right and fastest on the device, by a short trial.
    Tried,
    /// This one.
    Fixed(Variants),
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted::Fixed(Variants::PLAIN)
    }
}

impl Variants {
    pub const PLAIN: Variants = Variants { arith: Arith::Float, subgroups: false, coop: false };

    /// Why a device cannot run these, if it cannot.
    pub fn check(self, found: &Found) -> Result<()> {
        let has = |feature| found.features.contains(feature);
        let lacking =
            if self.subgroups && !(has(wgpu::Features::SUBGROUP) && found.info.subgroup_min_size >= 4) {
                "subgroups"
            } else if self.arith == Arith::Half && !has(wgpu::Features::SHADER_F16) {
                "f16"
            } else if self.coop && found.squares().is_none() {
                "coop"
            } else {
                return Ok(());
            };
        Err(Error::Device(format!(
            "{}: `gpu_variant` {lacking}: the driver does not offer it; plain runs on every device",
            found.info.name
        )))
    }
}

impl fmt::Display for Variants {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let arith = match self.arith {
            Arith::Float => None,
            Arith::Int8 if self.coop => Some("coop"),
            Arith::Int8 => Some("dot4"),
            Arith::Half => Some("f16"),
        };
        let names: Vec<&str> = arith.into_iter().chain(self.subgroups.then_some("subgroups")).collect();
        f.write_str(if names.is_empty() { "plain" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

impl FromStr for Wanted {
    type Err = String;

    /// `auto`, or names with commas between them.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "auto" {
            return Ok(Wanted::Tried);
        }
        let mut variants = Variants::PLAIN;
        for name in text.split(',') {
            let arith = match name {
                "plain" if text == name => continue,
                "subgroups" => {
                    variants.subgroups = true;
                    continue;
                }
                "dot4" => Arith::Int8,
                "coop" => {
                    variants.coop = true;
                    Arith::Int8
                }
                "f16" => Arith::Half,
                _ => {
                    return Err(
                        "auto, plain, or of dot4, f16, coop and subgroups, with commas between them".into()
                    );
                }
            };
            if !matches!(variants.arith, Arith::Float) && variants.arith != arith {
                return Err("dot4 and f16 are two ways to do one thing: one of them".into());
            }
            variants.arith = arith;
        }
        Ok(Wanted::Fixed(variants))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for text in ["plain", "dot4", "f16", "coop", "subgroups", "dot4,subgroups", "f16,subgroups"] {
            let Ok(Wanted::Fixed(variants)) = text.parse() else { panic!("{text}") };
            assert_eq!(variants.to_string(), text);
        }
        assert_eq!("auto".parse(), Ok(Wanted::Tried));
        assert_eq!("subgroups,dot4".parse::<Wanted>(), "dot4,subgroups".parse());
        for text in ["", "dot4,f16", "f16,coop", "plain,dot4", "dot8", "dot4,", "auto,dot4"] {
            assert!(text.parse::<Wanted>().is_err(), "{text}");
        }
    }
}
