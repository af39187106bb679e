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
        }
    }

    /// So many blocks of activations as kernels count them: in floats by words of 16 bytes, else by blocks, of which eight
    /// lie interleaved.
    pub const fn x_units(self, blocks: usize) -> u32 {
        match self {
            Arith::Float => 8 * blocks as u32,
            Arith::Int8 => blocks as u32,
        }
    }

    pub const ALL: [Arith; 2] = [Arith::Float, Arith::Int8];
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
    pub const PLAIN: Variants = Variants { arith: Arith::Float, coop: false };

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
            Arith::Float => "plain",
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
