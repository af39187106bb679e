//! Which kernels are used where there is a choice: plain ones, which need no optional feature and always work, or
//! such as use what a device has beyond that. A choice holds for as long as a device is open, for any number of
//! rows, so a row's bits do not depend on its batch under any of them.

use std::{fmt, str::FromStr};

use super::{device::Found, formats::Format};
use crate::{Error, Result};

/// How quantized weights are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arith {
    /// Weights and activations as they are, in f32.
    #[default]
    Float,
    /// Weights as the numbers that they are stored as, in f32; what is taken off them and by what they are multiplied
    /// meets their sum of products. So activations stand with the sums of each 16.
    Summed,
    /// Activations in whole numbers of 8 bits with a scale for 32, as the CPU has them; sums of products are exact.
    Int8,
}

impl Arith {
    /// How a format is multiplied: floats as they are, others never so.
    pub fn of(self, format: Format) -> Self {
        if format.is_float() { Arith::Float } else { self.max(Arith::Summed) }
    }

    /// What rows are prepared for: the matrices that do not take them as they are.
    pub fn of_all(self, formats: impl Iterator<Item = Format>) -> Self {
        formats.map(|format| self.of(format)).max().unwrap_or_default()
    }

    /// Whether a kernel that makes a gate and prepares it has registers enough for what it keeps of a block.
    pub fn fits_gate_rows(self, format: Format) -> bool {
        match self {
            Arith::Float => false,
            Arith::Summed => !format.has_half_scales(),
            Arith::Int8 => true,
        }
    }

    /// Words of 16 bytes that a block of 32 activations takes.
    pub const fn block_quads(self) -> usize {
        match self {
            Arith::Float => 8,
            Arith::Summed => 9,
            Arith::Int8 => 3,
        }
    }

    pub const ALL: [Arith; 3] = [Arith::Float, Arith::Summed, Arith::Int8];
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
    pub const PLAIN: Variants = Variants { arith: Arith::Summed, coop: false };

    pub const DOT4: Variants = Variants { arith: Arith::Int8, ..Variants::PLAIN };
    pub const COOP: Variants = Variants { coop: true, ..Variants::DOT4 };

    /// Why a device cannot run these, if it cannot.
    pub fn check(self, found: &Found) -> Result<()> {
        if !self.coop || found.squares().is_some() {
            return Ok(());
        }
        Err(Error::Device(format!(
            "{}: `gpu_variant` {self}: the driver does not offer it; plain runs on every device",
            found.info.name
        )))
    }
}

impl fmt::Display for Variants {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self.arith {
            Arith::Float | Arith::Summed => "plain",
            Arith::Int8 if self.coop => "coop",
            Arith::Int8 => "dot4",
        })
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Wanted::Tried),
            "plain" => Ok(Wanted::Fixed(Variants::PLAIN)),
            "dot4" => Ok(Wanted::Fixed(Variants::DOT4)),
            "coop" => Ok(Wanted::Fixed(Variants::COOP)),
            _ if text.split(',').any(|name| ["f16", "subgroups"].contains(&name)) => {
                Err("f16 and subgroups are no longer there: auto, plain, dot4 or coop".into())
            }
            _ => Err("auto, plain, dot4 or coop".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for text in ["plain", "dot4", "coop"] {
            let Ok(Wanted::Fixed(variants)) = text.parse() else { panic!("{text}") };
            assert_eq!(variants.to_string(), text);
        }
        assert_eq!("auto".parse(), Ok(Wanted::Tried));
        for text in ["", "plain,dot4", "dot8", "dot4,", "auto,dot4"] {
            assert!(text.parse::<Wanted>().is_err(), "{text}");
        }
        for text in ["f16", "subgroups", "dot4,subgroups"] {
            let message = text.parse::<Wanted>().unwrap_err();
            assert!(message.contains("no longer"), "{text}: {message}");
        }
    }
}
