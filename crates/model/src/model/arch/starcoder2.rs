//! StarCoder 2: layer norms, a plain MLP with GELU, biases on everything.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.norm = NormKind::Layer;
    decoder.mlp.gated = false;
    decoder.activate(Activation::Gelu);
    decoder.build(b)
}
