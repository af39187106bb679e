//! EXAONE 3 and 4. The third is a llama. In the fourth sublayers read the stream as it is, and what they give is normed;
//! queries and keys are normed per head. In 32B three layers of four see a window, and the fourth is not told positions.

use super::prelude::*;

pub fn build_3(b: &mut Builder) -> Result<Body> {
    Decoder::new(b, RopePairs::Halves)?.build(b)
}

pub fn build_4(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.norm_only_after("post_attention_norm", "post_ffw_norm");
    decoder.attention.head_norms = HeadNorms::Each;
    if b.dims().n_layer == 64 {
        decoder.see_windows_or(b, 4, 4096)?;
        decoder.turn_only_in_windows();
    }
    decoder.build(b)
}
