//! The packed forms that a shader can read, and its text for each.

use crate::{
    backend::cpu::matmul::{Packed, PackedForm},
    quant::GgmlType,
};

/// What the scales of a format are, as packed.wgsl numbers them.
#[derive(Clone, Copy)]
enum Heads {
    Scale,
    ScaleAndMinimum,
    Six,
    Signed,
}

/// What whole numbers are too large by, and what the scales are; `None` for what no shader reads.
fn meaning(ty: GgmlType) -> Option<(i32, Heads)> {
    use GgmlType as T;
    Some(match ty {
        T::Q4_0 => (8, Heads::Scale),
        T::Q5_0 => (16, Heads::Scale),
        // Its bytes are made signed.
        T::Q8_0 => (0, Heads::Scale),
        T::Q4_1 | T::Q5_1 => (0, Heads::ScaleAndMinimum),
        T::Q4_K | T::Q5_K => (0, Heads::Six),
        T::Q6_K => (32, Heads::Signed),
        _ => return None,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form(PackedForm);

impl Form {
    /// How a matrix lies, if a shader can read it.
    pub fn of(packed: &Packed) -> Option<Self> {
        let form = packed.form();
        // Four bits in two planes of two have no text.
        (meaning(form.ty).is_some() && form.high >= 4).then_some(Form(form))
    }

    pub fn name(self) -> String {
        format!("packed {}", self.0.ty)
    }

    pub fn text(self) -> String {
        let PackedForm { ty, lanes, head, subs, high, low } = self.0;
        let (offset, heads) = meaning(ty).expect("asked for when it was made");
        let constants = format!(
            "const LANES: u32 = {lanes}u;\nconst HEAD: u32 = {head}u;\nconst SUBS: u32 = {subs}u;\n\
             const HIGH: u32 = {high}u;\nconst LOW: u32 = {low}u;\nconst OFFSET: i32 = {offset};\n\
             const HEADS: u32 = {}u;\n",
            heads as u32
        );
        constants
            + include_str!("../../../../shaders/common/packed.wgsl")
            + include_str!("../../../../shaders/matmul_lent.wgsl")
    }
}
