//! Falcon: attention and a plain MLP read the same layer norm of the stream, in 40B one each.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.norm = NormKind::Layer;
    decoder.parallel = true;
    let has_two = b.has("blk.0.attn_norm_2.weight");
    (decoder.attn_norm, decoder.ffn_norm) =
        if has_two { (Some("attn_norm_2"), Some("attn_norm")) } else { (Some("attn_norm"), None) };
    decoder.mlp.gated = false;
    decoder.activate(Activation::Gelu);
    decoder.build(b)
}
