//! Seed-OSS: a llama with biases on queries, keys and values, whose second norm has another name.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.ffn_norm = Some("post_attention_norm");
    decoder.build(b)
}
