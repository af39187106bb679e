//! What becomes of the types of weights that files have.

use super::{Format, Streams, split};
use crate::{
    planes::PerHighBits,
    quant::{GgmlType, blocks::*},
};

/// How weights of a type come to a device.
pub struct FileType {
    /// What holds them without loss.
    pub format: Format,
    /// What holds their high plane alone, where products can be made of it and of the low plane apart.
    pub high_plane: Option<PerHighBits<Format>>,
    /// How they change on their way, where they are more than taken apart.
    pub conversion: Option<&'static str>,
    /// Appends a row of blocks, multiplied by a factor that only NVFP4 has.
    pub(super) split: fn(&[u8], f32, &mut Streams),
    /// How `shaders/common/packed.wgsl` reads what a processor has packed.
    pub packed: Option<PackedBits>,
    /// Where the halves of a block are, for blocks of random bits.
    pub halves: &'static [usize],
}

/// What packed bits mean.
#[derive(Clone, Copy)]
pub struct PackedBits {
    pub bits: Bits,
    /// What packed.wgsl calls their scales.
    pub scales: &'static str,
}

#[derive(Clone, Copy)]
pub enum Bits {
    /// Whole numbers that are so much too large.
    Numbers(i32),
    /// Numbers of levels, by the shader that has their table.
    Levels(&'static str),
}

const LEVELS_IQ4: Bits = Bits::Levels("common/level_iq4");
const LEVELS_E2M1: Bits = Bits::Levels("common/level_e2m1");

const fn packed(bits: Bits, scales: &'static str) -> Option<PackedBits> {
    Some(PackedBits { bits, scales })
}

const fn numbers(offset: i32, scales: &'static str) -> Option<PackedBits> {
    packed(Bits::Numbers(offset), scales)
}

impl FileType {
    const fn new(format: Format, split: fn(&[u8], f32, &mut Streams)) -> Self {
        FileType { format, high_plane: None, conversion: None, split, packed: None, halves: &[] }
    }

    /// Small whole numbers, as Q4_0 has them.
    const fn as_q4_0(split: fn(&[u8], f32, &mut Streams)) -> Self {
        FileType { conversion: Some("as Q4_0"), ..Self::new(Format::Q4_0, split) }
    }

    /// Signed scales of sixteen weights, as Q6_K has them; what is smaller than 32 fits into six bits.
    const fn as_q6_k(split: fn(&[u8], f32, &mut Streams)) -> Self {
        FileType { conversion: Some("as Q6_K"), ..Self::new(Format::Q6_K, split) }
    }

    const fn as_iq2(split: fn(&[u8], f32, &mut Streams)) -> Self {
        FileType { conversion: Some("in four bits"), halves: &[0], ..Self::new(Format::Iq2, split) }
    }

    /// `None` for types that cannot be read at all.
    pub fn of(ty: GgmlType) -> Option<Self> {
        use GgmlType as T;
        Some(match ty {
            T::Q4_0 => FileType {
                high_plane: Some(PerHighBits::same(Format::Q4_0High)),
                packed: numbers(8, "SCALE"),
                halves: &[0],
                ..Self::new(Format::Q4_0, split::same_scales::<BlockQ4_0>)
            },
            T::Q4_1 => FileType {
                high_plane: Some(PerHighBits::same(Format::Q4_1High)),
                packed: numbers(0, "SCALE_AND_MINIMUM"),
                halves: &[0, 2],
                ..Self::new(Format::Q4_1, split::same_scales::<BlockQ4_1>)
            },
            T::Q5_0 => FileType {
                packed: numbers(16, "SCALE"),
                halves: &[0],
                ..Self::new(Format::Q5_0, split::same_scales::<BlockQ5_0>)
            },
            T::Q5_1 => FileType {
                packed: numbers(0, "SCALE_AND_MINIMUM"),
                halves: &[0, 2],
                ..Self::new(Format::Q5_1, split::same_scales::<BlockQ5_1>)
            },
            T::Q8_0 => FileType {
                high_plane: Some(PerHighBits { most: Format::Q8High, two: Format::Q8Top }),
                // Its bytes are made signed.
                packed: numbers(0, "SCALE"),
                halves: &[0],
                ..Self::new(Format::Q8_0, split::same_scales::<BlockQ8_0>)
            },
            T::Q2_K => FileType {
                conversion: Some("in four bits"),
                packed: numbers(0, "FOUR_BITS_OF_HALVES"),
                halves: &[80, 82],
                ..Self::new(Format::Q2_K, split::same_scales::<BlockQ2K>)
            },
            T::Q3_K => FileType {
                packed: numbers(4, "SIX_BITS_OF_HALVES"),
                halves: &[108],
                ..Self::as_q6_k(split::q3_k)
            },
            T::Q4_K => FileType {
                high_plane: Some(PerHighBits::same(Format::Q4KHigh)),
                packed: numbers(0, "SIX_BITS_AND_MINIMUM"),
                halves: &[0, 2],
                ..Self::new(Format::Q4_K, split::same_scales::<BlockQ4K>)
            },
            T::Q5_K => FileType {
                high_plane: Some(PerHighBits { most: Format::Q5KHigh, two: Format::Q5KTop }),
                packed: numbers(0, "SIX_BITS_AND_MINIMUM"),
                halves: &[0, 2],
                ..Self::new(Format::Q5_K, split::same_scales::<BlockQ5K>)
            },
            T::Q6_K => FileType {
                high_plane: Some(PerHighBits { most: Format::Q6KHigh, two: Format::Q6KTop }),
                packed: numbers(32, "EIGHT_BITS_OF_HALVES"),
                halves: &[208],
                ..Self::new(Format::Q6_K, split::q6_k)
            },
            T::IQ4_NL => FileType {
                packed: packed(LEVELS_IQ4, "SCALE"),
                halves: &[0],
                ..Self::new(Format::Iq4Nl, split::same_scales::<BlockIq4Nl>)
            },
            T::IQ4_XS => FileType {
                conversion: Some("with its scales multiplied out"),
                packed: packed(LEVELS_IQ4, "SIX_BITS"),
                halves: &[0],
                ..Self::new(Format::Iq4Xs, split::iq4_xs)
            },
            T::MXFP4 => FileType {
                packed: packed(LEVELS_E2M1, "POWER_OF_TWO"),
                ..Self::new(Format::Mxfp4, split::same_scales::<BlockMxfp4>)
            },
            T::NVFP4 => FileType {
                conversion: Some("with its scales multiplied out"),
                packed: packed(LEVELS_E2M1, "SCALES_OF_HALVES"),
                ..Self::new(Format::Nvfp4, split::nvfp4)
            },
            T::IQ1_S => FileType { halves: &[0], ..Self::as_q6_k(split::six_bit_rows::<BlockIq1S>) },
            T::IQ1_M => Self::as_q6_k(split::six_bit_rows::<BlockIq1M>),
            T::IQ3_XXS => FileType { halves: &[0], ..Self::as_q6_k(split::six_bit_rows::<BlockIq3Xxs>) },
            T::IQ3_S => FileType { halves: &[0], ..Self::as_q6_k(split::six_bit_rows::<BlockIq3S>) },
            T::IQ2_XXS => Self::as_iq2(split::six_level_rows::<BlockIq2Xxs>),
            T::IQ2_XS => Self::as_iq2(split::six_level_rows::<BlockIq2Xs>),
            T::IQ2_S => Self::as_iq2(split::six_level_rows::<BlockIq2S>),
            T::TQ1_0 => FileType { halves: &[52], ..Self::as_q4_0(split::four_bit_rows::<BlockTq1>) },
            T::TQ2_0 => FileType {
                packed: numbers(1, "SCALE"),
                halves: &[64],
                ..Self::as_q4_0(split::four_bit_rows::<BlockTq2>)
            },
            T::Q1_0 => FileType {
                packed: numbers(1, "SCALE"),
                halves: &[0],
                ..Self::as_q4_0(split::four_bit_rows::<BlockQ1_0>)
            },
            T::Q2_0 => FileType {
                packed: numbers(1, "SCALE"),
                halves: &[0],
                ..Self::as_q4_0(split::four_bit_rows::<BlockQ2_0>)
            },
            T::F16 => Self::new(Format::F16, split::floats::<2>),
            T::BF16 => Self::new(Format::Bf16, split::floats::<2>),
            T::F32 => Self::new(Format::F32, split::floats::<4>),
            _ => return None,
        })
    }
}
