//! The packed forms that a shader can read, and its text for each.

use rayon::prelude::*;
use spec_run_shaders::shader;

use crate::{
    backend::cpu::matmul::{GROUP, Packed, PackedForm},
    quant::GgmlType,
};

/// What the scales of a format are, as packed.wgsl numbers them.
#[derive(Clone, Copy)]
enum Heads {
    Scale,
    ScaleAndMinimum,
    /// Scales and minimums of six bits.
    Six,
    /// Whole scales of eight bits, with a sign, of either half.
    Signed,
    /// A power of two.
    Power,
    /// Scales of either half.
    Halves,
    /// Scales of six bits, with a sign.
    SixSigned,
    /// Whole scales and minimums of four bits, of either half.
    Four,
    /// Whole scales of six bits, with a sign, of either half.
    SixOfHalves,
}

/// What bits of weights are.
#[derive(Clone, Copy)]
enum Bits {
    /// Whole numbers that are so much too large.
    Numbers(i32),
    /// Numbers of levels, by the shader that has their table.
    Levels(&'static str),
}

const LEVELS_IQ4: Bits = Bits::Levels("common/level_iq4");
const LEVELS_E2M1: Bits = Bits::Levels("common/level_e2m1");

/// `None` for what no shader reads.
fn meaning(form: PackedForm) -> Option<(Bits, Heads)> {
    let (bits, heads) = meaning_in_file(form.ty)?;
    // A low plane has the scales of its format, and numbers that lie around zero.
    let bits = if form.is_low { Bits::Numbers(1 << (form.bits() - 1)) } else { bits };
    Some((bits, heads))
}

fn meaning_in_file(ty: GgmlType) -> Option<(Bits, Heads)> {
    use GgmlType as T;
    Some(match ty {
        T::Q4_0 => (Bits::Numbers(8), Heads::Scale),
        T::Q5_0 => (Bits::Numbers(16), Heads::Scale),
        // Its bytes are made signed.
        T::Q8_0 => (Bits::Numbers(0), Heads::Scale),
        T::TQ2_0 | T::Q2_0 | T::Q1_0 => (Bits::Numbers(1), Heads::Scale),
        T::Q4_1 | T::Q5_1 => (Bits::Numbers(0), Heads::ScaleAndMinimum),
        T::Q4_K | T::Q5_K => (Bits::Numbers(0), Heads::Six),
        T::Q2_K => (Bits::Numbers(0), Heads::Four),
        T::Q3_K => (Bits::Numbers(4), Heads::SixOfHalves),
        T::Q6_K => (Bits::Numbers(32), Heads::Signed),
        T::IQ4_NL => (LEVELS_IQ4, Heads::Scale),
        T::IQ4_XS => (LEVELS_IQ4, Heads::SixSigned),
        T::MXFP4 => (LEVELS_E2M1, Heads::Power),
        T::NVFP4 => (LEVELS_E2M1, Heads::Halves),
        _ => return None,
    })
}

/// Powers of two that MXFP4 may have (as it stores them) where rows have [`SCALES`](super::SCALES): a product with any of
/// them, and what is left of several, is a number that no device takes for zero, and never too large.
const LEAST_POWER: u8 = 128 - 63;
const MOST_POWER: u8 = 128 + 39;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form(PackedForm);

impl Form {
    /// How a matrix lies, if a shader can read it.
    pub fn of(packed: &Packed) -> Option<Self> {
        let form = packed.form();
        meaning(form).map(|_| Form(form))
    }

    pub fn name(self) -> String {
        format!("packed {}{}", self.0.ty, if self.0.is_low { ", low plane" } else { "" })
    }

    /// Whether no scale of the matrix, which lies so, leads to numbers that a device may take for zero. Halves never do.
    pub fn keeps_scales(self, packed: &Packed) -> bool {
        let PackedForm { ty, lanes, high, .. } = self.0;
        if ty != GgmlType::MXFP4 {
            return true;
        }
        let block = lanes * (1 + 4 * high);
        let [bytes, _] = packed.planes_of(0..packed.rows().div_ceil(lanes));
        bytes.par_chunks(block * packed.cols() / GROUP).all(|group| {
            group.chunks_exact(block).all(|block| {
                let (powers, words) = block.split_at(lanes);
                // Where all levels are zero, of either sign, nothing is added, unless a scale is infinite.
                let is_zero = |lane: usize| {
                    (0..high)
                        .all(|i| words[4 * (i * lanes + lane)..][..4].iter().all(|byte| byte & 0x77 == 0))
                };
                let keeps = |(lane, &power): (usize, &u8)| {
                    power <= MOST_POWER && (power >= LEAST_POWER || is_zero(lane))
                };
                powers.iter().enumerate().all(keeps)
            })
        })
    }

    pub fn text(self) -> String {
        let PackedForm { lanes, head, subs, high, low, .. } = self.0;
        let (bits, heads) = meaning(self.0).expect("asked for when it was made");
        let offset = match bits {
            Bits::Numbers(offset) => offset,
            Bits::Levels(_) => 0,
        };
        let constants = format!(
            "const LANES: u32 = {lanes}u;\nconst HEAD: u32 = {head}u;\nconst SUBS: u32 = {subs}u;\n\
             const HIGH: u32 = {high}u;\nconst LOW: u32 = {low}u;\nconst OFFSET: i32 = {offset};\n\
             const HEADS: u32 = {}u;\nconst ALONE: bool = {};\n",
            heads as u32, self.0.is_low
        );
        let bits = match bits {
            Bits::Numbers(_) => shader("common/packed_numbers").to_string(),
            Bits::Levels(table) => shader(table).to_string() + shader("common/packed_levels"),
        };
        constants + shader("common/packed") + &bits + shader("matmul_offload")
    }
}
