//! Muse Glimmer: the embedding is normed, there are norms before and after each sublayer, a sigmoid gate goes over what
//! attention gives; three layers of four see a window, and the fourth is not told positions.

use super::prelude::*;

/// Of the norms after a sublayer.
const EPS_AFTER: f32 = 1e-8;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    let after = |name| ResidualNorm { name, kind: NormKind::Rms, eps: Some(EPS_AFTER) };
    decoder.attention.residual.norm = Some(after("post_attention_norm"));
    decoder.mlp.residual.norm = Some(after("post_ffw_norm"));
    decoder.attention.head_norms = HeadNorms::Each;
    decoder.attention.gate = Some("attn_gate");
    decoder.logit_scale = b.factor("logit_scale")?;
    decoder.logit_cap = match b.f32("final_logit_softcapping")? {
        None => Some(30.0),
        Some(_) => b.positive_or_none("final_logit_softcapping")?,
    };
    decoder.see_windows(b, 4)?;
    let turn = Source::new(RopePairs::Neighbours, decoder.attention.heads.head_dim);
    decoder.turn_in_windows(b, &Source { base: "rope.freq_base_swa", stretched: false, ..turn })?;
    decoder.turn_only_in_windows();
    let mut body = decoder.build(b)?;
    let norm = Norm { kind: NormKind::Rms, weight: None, bias: None, eps: b.rms_eps };
    body.embed.push(whole_norm(norm, Buf::X, Buf::X, false));
    Ok(body)
}
