//! StableLM: layer norms, part of each head turns. In 2-12B attention and MLP read the same norm, and each head of queries
//! and keys is normed by weights of its own.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.norm = NormKind::Layer;
    if !b.has("blk.0.ffn_norm.weight") {
        decoder.share_norm();
    }
    decoder.norm_heads_by_own(b);
    decoder.build(b)
}
