//! GLM-4 (0414) and GLM-OCR's text: norms before and after each sublayer, part of each head turns.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    // Where positions have sections (of a picture's), the halves of a head turn; text has the same position in all.
    let sections = b.u32s("rope.dimension_sections")?.unwrap_or_default();
    let has_sections = sections.len() > 1 && sections[0] > 0 && sections[1] > 0;
    let pairs = if has_sections { RopePairs::Halves } else { RopePairs::Neighbours };
    let mut decoder = Decoder::new(b, pairs)?;
    decoder.norm_after("post_attention_norm", "post_ffw_norm");
    decoder.build(b)
}
