//! The packed forms that a shader can read, and its text for each.

use rayon::prelude::*;
use spec_run_shaders::shader;

use super::super::formats::{Bits, FileType, PackedBits};
use crate::{
    backend::cpu::matmul::{GROUP, Packed, PackedForm},
    quant::GgmlType,
};

/// `None` for what no shader reads.
fn meaning(form: PackedForm) -> Option<PackedBits> {
    let PackedBits { bits, scales } = FileType::of(form.ty)?.packed?;
    // A low plane has the scales of its format, and numbers that lie around zero.
    let bits = if form.is_low { Bits::Numbers(1 << (form.bits() - 1)) } else { bits };
    Some(PackedBits { bits, scales })
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
        let of = if self.0.is_low { format!(", low plane of {} bits", self.0.bits()) } else { String::new() };
        format!("packed {}{of}", self.0.ty)
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
        let PackedBits { bits, scales } = meaning(self.0).expect("asked for when it was made");
        let offset = match bits {
            Bits::Numbers(offset) => offset,
            Bits::Levels(_) => 0,
        };
        let constants = format!(
            "const LANES: u32 = {lanes}u;\nconst HEAD: u32 = {head}u;\nconst SUBS: u32 = {subs}u;\n\
             const HIGH: u32 = {high}u;\nconst LOW: u32 = {low}u;\nconst OFFSET: i32 = {offset};\n\
             const SCALES: u32 = {scales};\nconst ALONE: bool = {};\n",
            self.0.is_low
        );
        let bits = match bits {
            Bits::Numbers(_) => shader("common/packed_numbers").to_string(),
            Bits::Levels(table) => shader(table).to_string() + shader("common/packed_levels"),
        };
        constants + shader("common/packed") + &bits + shader("matmul_offload")
    }
}
