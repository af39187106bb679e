//! gpt-oss: experts with biases and a clamped activation, weighed by a softmax over the chosen ones; every head has a sink
//! that takes part of its attention, every other layer sees a window only.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.ffn_norm = Some("post_attention_norm");
    decoder.attention.sinks = true;
    decoder.see_windows(b, 2)?;
    let turn = Source::new(RopePairs::Halves, decoder.attention.heads.head_dim);
    decoder.turn_in_windows(b, &Source { base: "rope.freq_base_swa", ..turn })?;
    decoder.activate(Activation::ClampedSwiglu { alpha: 1.702, limit: 7.0 });
    if let Some(experts) = &mut decoder.experts {
        experts.gating = Gating::SoftmaxOfChosen;
    }
    decoder.build(b)
}
