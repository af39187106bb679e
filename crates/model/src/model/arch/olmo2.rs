//! OLMo 2 and 3: sublayers read the stream as it is, and what they give is normed; queries and keys are normed over all heads
//! together. In OLMo 3 most layers see a window, and turn unstretched.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.norm_only_after("post_attention_norm", "post_ffw_norm");
    decoder.attention.head_norms = HeadNorms::Together;
    if b.u32("attention.sliding_window")?.is_some_and(|window| window > 0) {
        decoder.see_windows(b, 4)?;
        let turn = Source::new(RopePairs::Halves, decoder.attention.heads.head_dim);
        decoder.turn_in_windows(b, &Source { stretched: false, ..turn })?;
    }
    decoder.build(b)
}
