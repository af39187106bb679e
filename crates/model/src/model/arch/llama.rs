//! Llama 1, 2, 3.x, Mistral, Mixtral and everything else that calls itself `llama`: neighbours rotate.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    decoder.renormalise_experts();
    decoder.build(b)
}
