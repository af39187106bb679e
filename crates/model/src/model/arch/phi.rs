//! Phi-2 and Phi-3 to 4. Phi-2: attention and a plain MLP read the same layer norm, part of each head turns. Phi-3 is a llama
//! whose queries, keys and values lie in one tensor, gate and up in another; the window that
//! early files name is not used. Phi-3.5-MoE is the same with biases everywhere, and experts.

use super::prelude::*;

pub fn build_2(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.norm = NormKind::Layer;
    decoder.parallel = true;
    decoder.ffn_norm = None;
    decoder.mlp.gated = false;
    decoder.activate(Activation::Gelu);
    decoder.build(b)
}

pub fn build_3(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.renormalise_experts();
    decoder.build(b)
}
