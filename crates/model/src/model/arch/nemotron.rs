//! Nemotron 3 and Minitron: layer norms, a plain MLP with a squared ReLU, part of each head turns.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.norm = NormKind::Layer;
    decoder.mlp.gated = false;
    decoder.activate(Activation::ReluSquared);
    decoder.build(b)
}
