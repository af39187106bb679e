//! Qwen2 and Qwen2.5, dense and with experts: biases on queries, keys and values (the file carries them), halves rotate. A
//! shared expert beside the others is weighed by a gate of its own.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    for layer in 0..b.dims().n_layer {
        b.require(&["attn_q.bias", "attn_k.bias", "attn_v.bias"].map(|part| format!("blk.{layer}.{part}")))?;
    }
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.share_expert(Shared::Gated);
    decoder.build(b)
}
