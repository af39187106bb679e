//! Which kernels are used where there is a choice: plain ones, which need no optional feature and always work, or
//! such as use what a device has beyond that. A choice holds for as long as a device is open, for any number of
//! rows, so a row's bits do not depend on its batch under any of them.

use std::fmt;

use super::{device::Found, formats::Format};
use crate::{Error, Result, backend::gpu::GpuVariant};

/// How quantized weights are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arith {
    /// Weights and activations as they are, in f32.
    #[default]
    Float,
    /// Weights as the whole numbers that are stored, in f32. Their offset and scale are applied to the sum of a block's
    /// products. So activations come with the sum of every 16.
    Summed,
    /// Activations in whole numbers of 8 bits with a scale for 32, as the CPU has them; sums of products are exact.
    Int8,
}

impl Arith {
    /// How a format is multiplied: float formats as floats, all others in another way.
    pub fn of(self, format: Format) -> Self {
        if format.is_float() { Arith::Float } else { self.max(Arith::Summed) }
    }

    /// The form in which rows are prepared, for matrices that do not take floats.
    pub fn of_all(self, formats: impl Iterator<Item = Format>) -> Self {
        formats.map(|format| self.of(format)).max().unwrap_or_default()
    }

    /// Whether a kernel that makes a gate and prepares it has registers enough for what it keeps of a block.
    pub fn fits_gate_rows(self, format: Format) -> bool {
        match self {
            Arith::Float => false,
            Arith::Summed => !format.description().has_half_scales,
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

impl Variants {
    pub const PLAIN: Variants = Variants { arith: Arith::Summed, coop: false };

    pub const DOT4: Variants = Variants { arith: Arith::Int8, ..Variants::PLAIN };
    pub const COOP: Variants = Variants { coop: true, ..Variants::DOT4 };

    /// The variants that a name stands for.
    ///
    /// # Panics
    /// If they are still to be tried.
    pub fn of(variant: GpuVariant) -> Self {
        match variant {
            GpuVariant::Plain => Variants::PLAIN,
            GpuVariant::Dot4 => Variants::DOT4,
            GpuVariant::Coop => Variants::COOP,
            GpuVariant::Tried => panic!("a trial has not chosen yet"),
        }
    }

    pub fn name(self) -> GpuVariant {
        match self.arith {
            Arith::Float | Arith::Summed => GpuVariant::Plain,
            Arith::Int8 if self.coop => GpuVariant::Coop,
            Arith::Int8 => GpuVariant::Dot4,
        }
    }

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
        self.name().fmt(f)
    }
}
