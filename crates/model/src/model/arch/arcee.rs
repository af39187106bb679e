//! Arcee AFM: a llama whose MLP is plain, with a squared ReLU.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    decoder.mlp.gated = false;
    decoder.activate(Activation::ReluSquared);
    decoder.build(b)
}
