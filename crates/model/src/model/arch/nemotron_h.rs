//! Nemotron-H, dense and with experts: each layer is one sublayer, a Mamba 2, attention that is not told positions, or an MLP
//! whose activation is a square. Experts may work on a narrower copy of the stream.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    b.attends = b.lists_above_zero("attention.head_count_kv")?;
    b.has_mlp = b.lists_above_zero("feed_forward_length")?;
    if b.f32("attention.layer_norm_rms_epsilon")?.is_none() {
        b.rms_eps = b.layer_eps;
    }
    let mut decoder = Decoder::new(b, None)?;
    decoder.activate(Activation::ReluSquared);
    decoder.mlp.gated = false;
    decoder.scale_scores(b)?;
    if let Some(experts) = &mut decoder.experts {
        experts.gating = Gating::Sigmoid;
        experts.shared = Shared::Plain;
    }
    let mixer = Mixer::Mamba2(MixerSizes::read(b)?);
    let embed = vec![embed(b, 1.0)?];
    let layer = |b: &mut Builder, l: usize| {
        let norm = decoder.norm_of_stream(b, l, "attn_norm", Buf::H)?;
        let mut ops = LayerOps::default();
        match (b.has_mlp[l], b.attends[l]) {
            (true, _) => {
                ops.mlp.push(norm);
                ops.mlp.extend(match decoder.experts {
                    Some(experts) if b.has(&format!("blk.{l}.ffn_gate_inp.weight")) => experts.ops(b, l)?,
                    _ => decoder.mlp_of(l).ops(b, l)?,
                });
            }
            (false, true) => {
                ops.attn.push(norm);
                ops.attn.extend(decoder.attention_of(l).ops(b, l)?);
            }
            (false, false) => {
                ops.attn.push(norm);
                ops.attn.extend(mixer.ops(b, l, &Residual::PLAIN)?);
            }
        }
        Ok(ops)
    };
    let layers = (0..b.dims().n_layer).map(|l| layer(b, l)).collect::<Result<_>>()?;
    let head = head(b, "output_norm", NormKind::Rms, 1.0, None)?;
    let mtp = match decoder.behind(b) {
        Some(mut behind) => {
            behind.ffn_norm = Some("post_attention_norm");
            Some(mtp(b, &behind, NormKind::Layer)?)
        }
        None => None,
    };
    Ok(Body { embed, layers, head: Some(head), mtp })
}
