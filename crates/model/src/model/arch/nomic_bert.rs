//! BERT with rotated positions: Nomic's, whose MLP is gated, or has experts in every second layer; and Jina's third.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let decoder = Decoder::new(b, RopePairs::Halves)?;
    Encoder::new(decoder).build(b)
}

pub fn build_plain(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.mlp.gated = false;
    decoder.activate(Activation::Gelu);
    Encoder::new(decoder).build(b)
}
