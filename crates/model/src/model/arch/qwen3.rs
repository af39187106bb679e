//! Qwen3, dense and with experts, and the text of Qwen3-VL: queries and keys are normed per head, halves rotate.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.attention.head_norms = HeadNorms::Each;
    decoder.renormalise_experts();
    decoder.build(b)
}
