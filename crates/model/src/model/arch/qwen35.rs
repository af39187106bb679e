//! Qwen3.5 to 3.8 and Qwen3-Next, dense and with experts: gated delta nets, and on each fourth layer attention whose heads are
//! gated, of which a part turns.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    hybrid(b, false)
}

pub fn build_next(b: &mut Builder) -> Result<Body> {
    hybrid(b, true)
}

fn hybrid(b: &mut Builder, is_next: bool) -> Result<Body> {
    let recurrent = match b.flags("attention.recurrent_layers")? {
        Some(flags) => flags,
        None => {
            let every = b.optional_size("full_attention_interval")?.unwrap_or(4);
            (1..=b.dims().n_layer).map(|n| n % every != 0).collect()
        }
    };
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.ffn_norm = Some("post_attention_norm");
    decoder.attention.head_norms = HeadNorms::Each;
    decoder.attention.gated_queries = true;
    decoder.renormalise_experts();
    if b.has("blk.0.ffn_up_shexp.weight") {
        decoder.share_expert(Shared::Gated);
    }
    let mut sizes = MixerSizes::read(b)?;
    (sizes.repeats, sizes.is_scaled) = (!is_next, !is_next);
    decoder.mixers = recurrent.iter().map(|&is| is.then_some(Mixer::GatedDelta(sizes))).collect();
    decoder.has_mtp = true;
    decoder.build(b)
}
