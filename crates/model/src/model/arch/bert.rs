//! BERT, and XLM-RoBERTa through it: positions are a second embedding, a plain MLP with GELU, biases on everything.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, None)?;
    decoder.mlp.gated = false;
    decoder.activate(Activation::Gelu);
    let mut encoder = Encoder::new(decoder);
    encoder.places = true;
    encoder.build(b)
}
