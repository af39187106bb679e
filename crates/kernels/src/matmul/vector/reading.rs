//! How packed weights are best read from memory, by processor and format: how far ahead, and from how many places. All of it
//! is measured: see docs/log/cpu.md.

use std::sync::LazyLock;

use super::{lanes::Lanes, packed_formats::PackedFormat};
use crate::{matmul::packed::split::Split, quant::GgmlType, simd::Isa};

/// How far ahead of its use a plane is fetched from memory, in bytes. One column of weights that are many bytes leaves the
/// hardware time to see for itself what comes, and what is fetched too far ahead then costs a tenth of the memory's speed.
/// Intel's sees it in time for weights of 8 bits only; with fewer it loses a tenth to a quarter by less than 4 KiB.
/// On AMD's, Q2_K and Q3_K are a tenth to a fifth slower at 1.5 to 2 KiB than at either. With vectors of 32 bytes, formats
/// of four to six bits are a tenth to a quarter slower there at 1 KiB than at 6, and Q2_K and Q3_K as fast at 4 as at 6.
pub fn ahead<L: Lanes, S: Split>(columns: usize) -> usize {
    let bits = S::HIGH + S::LOW;
    if are_short_vectors::<L>() && !*OF_INTEL && bits < 8 {
        return 6144;
    }
    let many_bytes = if *OF_INTEL { bits == 8 } else { S::HIGH >= 4 };
    if columns == 1 && many_bytes { 1024 } else { 4096 }
}

pub static OF_INTEL: LazyLock<bool> = LazyLock::new(Isa::is_of_intel);

/// From how many places of a matrix a thread multiplies in turn. Intel's processors read up to a fifth faster from four pages
/// than from one.
pub const PLACES_ON_INTEL: usize = 4;

/// Columns up to which Intel's gain by that: with 14 to 16 it was slower by up to 5 %.
pub const MOST_IN_TURN: usize = 12;

/// The same on AMD's, for [some formats](gains_by_two_places) by vectors of 32 bytes, which are up to a fifth faster so. From
/// two columns on little is gained, and with vectors of 64 bytes nothing.
pub const PLACES_ON_AMD: usize = 2;

/// Four bits that are looked up in a table gain nothing, five and six lose, eight are as fast.
pub const fn gains_by_two_places<B: PackedFormat, S: Split>() -> bool {
    let of_nibbles = S::HIGH == 4 && S::LOW == 0;
    of_nibbles && matches!(B::TYPE, GgmlType::Q4_0 | GgmlType::Q4_1 | GgmlType::Q4_K | GgmlType::Q8_0)
}

pub const fn are_short_vectors<L: Lanes>() -> bool {
    cfg!(target_arch = "x86_64") && L::ROWS == 8
}
