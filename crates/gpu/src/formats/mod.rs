//! How weights lie in device memory: each matrix in streams, one per kind of bits, so that every load of a kernel
//! is whole and aligned. The unit is a block of 32 weights of one row; what a stream holds of a block is said in
//! the shader text of its format.

mod file_types;
mod split;
#[cfg(test)]
pub mod tests;

pub use file_types::{Bits, FileType, PackedBits};
pub use split::{Streams, split_row};

use crate::{planes::HighBits, quant::GgmlType};

/// Weights in a block.
pub const BLOCK: usize = 32;

/// What one stream of a matrix takes: so many bytes for so many blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub bytes: usize,
    pub blocks: usize,
}

impl Rate {
    const NONE: Rate = Rate::of(0, 1);

    const fn of(bytes: usize, blocks: usize) -> Self {
        Rate { bytes, blocks }
    }

    /// Bytes for so many blocks, whole words.
    pub fn bytes_for(self, blocks: usize) -> usize {
        (blocks.div_ceil(self.blocks) * self.bytes).next_multiple_of(4)
    }
}

/// What a high plane alone stands for: see `shaders/common/high/alone.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighAlone {
    /// How many bits of a weight are elsewhere.
    pub low_bits: u32,
    /// What whole numbers are too large by.
    pub zero: u32,
}

/// All that there is to say of a format.
pub struct Description {
    pub name: &'static str,
    /// In the order of their bindings: the high plane (or all of a float), the low plane, the scales.
    pub streams: [Rate; 3],
    /// Where it is a high plane alone.
    pub high_alone: Option<HighAlone>,
    /// Whether either half of a block has a scale of its own.
    pub has_half_scales: bool,
    /// Whether the kernel of wide tiles has registers for what it keeps of a block.
    pub fits_wide_tiles: bool,
    /// Whether four rows at once take more registers than some devices have.
    pub needs_registers: bool,
    /// Texts in `shaders/common` that read weights as floats: `load`, `numbers` and `offset` with the bindings of the
    /// streams, and the scales.
    pub floats: &'static [&'static str],
    /// What stands behind these texts.
    pub constants: &'static str,
    /// Texts in `shaders/common/ints` that read them as whole numbers: `ints`, `dots`, `factors` and `value`. None for
    /// weights that are floats.
    pub ints: &'static [&'static str],
}

/// Four bits of each weight.
const NIBBLES: Rate = Rate::of(16, 1);
const TWO_BITS: Rate = Rate::of(8, 1);
const ONE_BIT: Rate = Rate::of(4, 1);
/// A scale in 16 bits for each block.
const HALF: Rate = Rate::of(4, 2);
/// With a minimum in 16 bits, or one scale in 32.
const TWO_HALVES: Rate = Rate::of(4, 1);
/// Scales and minimums of six bits, and what multiplies them.
const SIX_BITS: Rate = Rate::of(16, 8);
/// A byte for each half of a block, and what multiplies these.
const BYTES: Rate = Rate::of(20, 8);

/// Minimums are added.
const PLUS: &str = "const SIGN: f32 = 1.0;\n";
/// They are subtracted.
const MINUS: &str = "const SIGN: f32 = -1.0;\n";

/// What most formats have in common.
const QUANTIZED: Description = Description {
    name: "",
    streams: [NIBBLES, Rate::NONE, HALF],
    high_alone: None,
    has_half_scales: false,
    fits_wide_tiles: true,
    needs_registers: false,
    floats: &[],
    constants: "",
    ints: &[],
};

/// The same of those with a scale for either half of a block.
const HALVED: Description = Description {
    streams: [NIBBLES, Rate::NONE, BYTES],
    has_half_scales: true,
    fits_wide_tiles: false,
    ..QUANTIZED
};

const FLOAT: Description = Description { fits_wide_tiles: false, ..QUANTIZED };

const fn high_alone(low_bits: u32, zero: u32) -> Option<HighAlone> {
    Some(HighAlone { low_bits, zero })
}

/// The formats, each with its description.
macro_rules! formats {
    ($($(#[$about:meta])* $format:ident: $described:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types)]
        pub enum Format { $($(#[$about])* $format,)* }

        impl Format {
            pub const ALL: [Format; DESCRIPTIONS.len()] = [$(Format::$format),*];
        }

        static DESCRIPTIONS: &[Description] = &[$($described),*];
    };
}

formats! {
    Q4_0: Description {
        name: "q4_0",
        floats: &["nibbles", "exact_half", "half_scale", "q4_0", "scales/one"],
        ints: &["planes", "of_plane", "whole", "one_scale", "q4_0"],
        ..QUANTIZED
    };
    Q4_1: Description {
        name: "q4_1",
        streams: [NIBBLES, Rate::NONE, TWO_HALVES],
        floats: &["nibbles", "exact_half", "scale_min", "q4_affine", "scales/one_and_minimum"],
        constants: PLUS,
        ints: &["planes", "of_plane", "whole", "scale_and_minimum", "q4_affine"],
        ..QUANTIZED
    };
    Q5_0: Description {
        name: "q5_0",
        streams: [NIBBLES, ONE_BIT, HALF],
        floats: &["nibbles", "exact_half", "half_scale", "fifth_bits", "q5_0", "scales/one"],
        ints: &["planes", "five_bits", "whole", "one_scale", "q5_0"],
        ..QUANTIZED
    };
    Q5_1: Description {
        name: "q5_1",
        streams: [NIBBLES, ONE_BIT, TWO_HALVES],
        fits_wide_tiles: false,
        floats: &["nibbles", "exact_half", "scale_min", "fifth_bits", "q5_affine", "scales/one_and_minimum"],
        constants: PLUS,
        ints: &["planes", "five_bits", "whole", "scale_and_minimum", "q5_affine"],
        ..QUANTIZED
    };
    Q8_0: Description {
        name: "q8_0",
        streams: [NIBBLES, NIBBLES, HALF],
        floats: &["nibbles", "exact_half", "half_scale", "q8_0", "scales/one"],
        ints: &["planes", "whole", "one_scale", "q8_0"],
        ..QUANTIZED
    };
    /// The high plane of Q8_0, whose low plane lies elsewhere; and so on.
    Q8High: Description {
        name: "q8_high",
        high_alone: high_alone(4, 128),
        floats: &["nibbles", "exact_half", "half_scale", "high/nibbles", "high/one_scale", "scales/one"],
        ints: &["planes", "of_plane", "whole", "one_scale", "high_alone"],
        ..QUANTIZED
    };
    /// Its upper two bits; and so on.
    Q8Top: Description {
        name: "q8_top",
        streams: [TWO_BITS, Rate::NONE, HALF],
        high_alone: high_alone(6, 128),
        floats: &["nibbles", "exact_half", "half_scale", "high/twos", "high/one_scale", "scales/one"],
        ints: &["planes", "twos", "whole", "one_scale", "high_alone"],
        ..QUANTIZED
    };
    Q4_0High: Description {
        name: "q4_0_high",
        streams: [TWO_BITS, Rate::NONE, HALF],
        high_alone: high_alone(2, 8),
        floats: &["nibbles", "exact_half", "half_scale", "high/twos", "high/one_scale", "scales/one"],
        ints: &["planes", "twos", "whole", "one_scale", "high_alone"],
        ..QUANTIZED
    };
    Q4_1High: Description {
        name: "q4_1_high",
        streams: [TWO_BITS, Rate::NONE, TWO_HALVES],
        high_alone: high_alone(2, 0),
        floats: &[
            "nibbles", "exact_half", "scale_min", "high/twos", "high/scale_and_minimum", "scales/one_and_minimum",
        ],
        constants: PLUS,
        ints: &["planes", "twos", "whole", "scale_and_minimum", "high_alone_affine"],
        ..QUANTIZED
    };
    Q4KHigh: Description {
        name: "q4_k_high",
        streams: [TWO_BITS, Rate::NONE, SIX_BITS],
        high_alone: high_alone(2, 0),
        floats: &[
            "nibbles", "exact_half", "scale_min_k", "high/twos", "high/scale_and_minimum", "scales/one_and_minimum",
        ],
        constants: MINUS,
        ints: &["planes", "twos", "whole", "scale_and_minimum", "high_alone_affine"],
        ..QUANTIZED
    };
    Q5KHigh: Description {
        name: "q5_k_high",
        streams: [NIBBLES, Rate::NONE, SIX_BITS],
        high_alone: high_alone(1, 0),
        needs_registers: true,
        floats: &[
            "nibbles", "exact_half", "scale_min_k", "high/nibbles", "high/scale_and_minimum", "scales/one_and_minimum",
        ],
        constants: MINUS,
        ints: &["planes", "of_plane", "whole", "scale_and_minimum", "high_alone_affine"],
        ..QUANTIZED
    };
    Q5KTop: Description {
        name: "q5_k_top",
        streams: [TWO_BITS, Rate::NONE, SIX_BITS],
        high_alone: high_alone(3, 0),
        needs_registers: true,
        floats: &[
            "nibbles", "exact_half", "scale_min_k", "high/twos", "high/scale_and_minimum", "scales/one_and_minimum",
        ],
        constants: MINUS,
        ints: &["planes", "twos", "whole", "scale_and_minimum", "high_alone_affine"],
        ..QUANTIZED
    };
    Q6KHigh: Description {
        name: "q6_k_high",
        high_alone: high_alone(2, 32),
        needs_registers: true,
        floats: &["nibbles", "signed_scales", "high/nibbles", "high/two_scales", "scales/two"],
        ints: &["planes", "of_plane", "apart", "two_scales", "high_alone_halves"],
        ..HALVED
    };
    Q6KTop: Description {
        name: "q6_k_top",
        streams: [TWO_BITS, Rate::NONE, BYTES],
        high_alone: high_alone(4, 32),
        needs_registers: true,
        floats: &["nibbles", "signed_scales", "high/twos", "high/two_scales", "scales/two"],
        ints: &["planes", "twos", "apart", "two_scales", "high_alone_halves"],
        ..HALVED
    };
    Q2_K: Description {
        name: "q2_k",
        needs_registers: true,
        floats: &["nibbles", "exact_half", "q2_k", "scales/two_and_minima"],
        ints: &["planes", "of_plane", "apart", "q2_k"],
        ..HALVED
    };
    Q4_K: Description {
        name: "q4_k",
        streams: [NIBBLES, Rate::NONE, SIX_BITS],
        floats: &["nibbles", "exact_half", "scale_min_k", "q4_affine", "scales/one_and_minimum"],
        constants: MINUS,
        ints: &["planes", "of_plane", "whole", "scale_and_minimum", "q4_affine"],
        ..QUANTIZED
    };
    Q5_K: Description {
        name: "q5_k",
        streams: [NIBBLES, ONE_BIT, SIX_BITS],
        fits_wide_tiles: false,
        floats: &["nibbles", "exact_half", "scale_min_k", "fifth_bits", "q5_affine", "scales/one_and_minimum"],
        constants: MINUS,
        ints: &["planes", "five_bits", "whole", "scale_and_minimum", "q5_affine"],
        ..QUANTIZED
    };
    Q6_K: Description {
        name: "q6_k",
        streams: [NIBBLES, TWO_BITS, BYTES],
        needs_registers: true,
        floats: &["nibbles", "signed_scales", "q6_k", "scales/two"],
        ints: &["planes", "apart", "two_scales", "q6_k"],
        ..HALVED
    };
    Iq4Nl: Description {
        name: "iq4_nl",
        floats: &["nibbles", "level_iq4", "levels", "exact_half", "half_scale", "iq4_nl", "scales/one"],
        ints: &["planes", "level_bytes", "whole", "one_scale", "levels"],
        ..QUANTIZED
    };
    Iq4Xs: Description {
        name: "iq4_xs",
        streams: [NIBBLES, Rate::NONE, TWO_HALVES],
        floats: &["nibbles", "level_iq4", "levels", "float_scale", "iq4_nl", "scales/one"],
        ints: &["planes", "level_bytes", "whole", "one_scale", "levels"],
        ..QUANTIZED
    };
    Iq2: Description {
        name: "iq2",
        floats: &["nibbles", "levels", "iq2", "scales/two"],
        ints: &["planes", "level_bytes", "apart", "two_scales", "iq2"],
        ..HALVED
    };
    Mxfp4: Description {
        name: "mxfp4",
        streams: [NIBBLES, Rate::NONE, Rate::of(4, 4)],
        floats: &["nibbles", "level_e2m1", "levels", "mxfp4", "scales/one"],
        ints: &["planes", "level_bytes", "whole", "one_scale", "levels"],
        ..QUANTIZED
    };
    Nvfp4: Description {
        name: "nvfp4",
        streams: [NIBBLES, Rate::NONE, Rate::of(8, 1)],
        floats: &["nibbles", "level_e2m1", "levels", "nvfp4", "scales/two"],
        ints: &["planes", "level_bytes", "apart", "two_scales", "iq2"],
        ..HALVED
    };
    F16: Description {
        name: "f16",
        streams: [Rate::of(64, 1), Rate::NONE, Rate::NONE],
        floats: &["f16", "scales/none"],
        ..FLOAT
    };
    Bf16: Description {
        name: "bf16",
        streams: [Rate::of(64, 1), Rate::NONE, Rate::NONE],
        floats: &["bf16", "scales/none"],
        ..FLOAT
    };
    F32: Description {
        name: "f32",
        streams: [Rate::of(128, 1), Rate::NONE, Rate::NONE],
        floats: &["f32", "scales/none"],
        ..FLOAT
    };
}

impl Format {
    pub fn description(self) -> &'static Description {
        &DESCRIPTIONS[self as usize]
    }

    /// The format that holds weights of this type without loss; `None` for types that cannot be read at all.
    pub fn of(ty: GgmlType) -> Option<Self> {
        FileType::of(ty).map(|file| file.format)
    }

    /// The format of a type's high plane alone, where products can be made of it and of the low plane apart.
    pub fn of_high_plane(ty: GgmlType, high: HighBits) -> Option<Self> {
        Some(FileType::of(ty)?.high_plane?.of(high))
    }

    pub fn high_alone(self) -> Option<HighAlone> {
        self.description().high_alone
    }

    pub fn streams(self) -> [Rate; 3] {
        self.description().streams
    }

    /// Device bytes of so many blocks, without what alignment adds.
    pub fn bytes(self, blocks: usize) -> usize {
        self.streams().iter().map(|rate| rate.bytes_for(blocks)).sum()
    }

    /// Whether the low bits of a weight lie apart, here or elsewhere, so that it can be read by its high ones alone.
    pub fn has_planes(self) -> bool {
        self.streams()[1].bytes > 0 || self.high_alone().is_some()
    }

    pub fn is_float(self) -> bool {
        self.description().ints.is_empty()
    }

    pub fn name(self) -> &'static str {
        self.description().name
    }
}
