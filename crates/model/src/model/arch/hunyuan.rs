//! Hunyuan: a llama that norms queries and keys per head after they are turned; the larger ones with experts and a shared one
//! beside them.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.attention.head_norms = HeadNorms::EachAfterRope;
    decoder.renormalise_experts();
    decoder.share_expert(Shared::Plain);
    decoder.build(b)
}
