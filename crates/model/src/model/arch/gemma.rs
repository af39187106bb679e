//! Gemma 1, 2 and 3: the embedding grows by the root of its width, the MLP's gate goes through GELU. From Gemma 2 on there
//! are norms after the sublayers too and most layers see a window; Gemma 2 caps scores and logits, Gemma 3 norms queries
//! and keys instead and turns more slowly where there is no window.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    first(b)?.build(b)
}

fn first(b: &mut Builder) -> Result<Decoder> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.embed_scale = (b.dims().dim as f32).sqrt();
    decoder.activate(Activation::Gelu);
    Ok(decoder)
}

pub fn build_2(b: &mut Builder) -> Result<Body> {
    let mut decoder = first(b)?;
    decoder.norm_after("post_attention_norm", "post_ffw_norm");
    scale_by_width(b, &mut decoder, 46);
    decoder.attention.cap = Some(b.positive("attn_logit_softcapping")?.unwrap_or(50.0));
    decoder.logit_cap = Some(b.positive("final_logit_softcapping")?.unwrap_or(30.0));
    decoder.see_windows_or(b, 2, 4096)?;
    let turn = Source::new(RopePairs::Halves, decoder.attention.heads.head_dim);
    decoder.turn_in_windows(b, &Source { base: "rope.freq_base_swa", ..turn })?;
    decoder.build(b)
}

pub fn build_3(b: &mut Builder) -> Result<Body> {
    third(b)?.build(b)
}

/// Gemma 3 that sees both ways and gives no logits.
pub fn build_embedding(b: &mut Builder) -> Result<Body> {
    b.plan.bidirectional = true;
    b.leave_out("output.weight");
    let decoder = third(b)?;
    let embed = vec![embed(b, decoder.embed_scale)?];
    let mut layers = (0..b.dims().n_layer).map(|l| decoder.layer(b, l)).collect::<Result<Vec<_>>>()?;
    let last_norm = b.norm(decoder.norm, decoder.last_norm, b.dims().dim)?;
    if let Some(last) = layers.last_mut() {
        last.mlp.push(whole_norm(last_norm, Buf::X, Buf::X, false));
    }
    Ok(Body { embed, layers, head: None, mtp: None })
}

fn third(b: &mut Builder) -> Result<Decoder> {
    let mut decoder = first(b)?;
    decoder.norm_after("post_attention_norm", "post_ffw_norm");
    decoder.attention.head_norms = HeadNorms::Each;
    scale_by_width(b, &mut decoder, 62);
    decoder.logit_cap = b.positive_or_none("final_logit_softcapping")?;
    if b.u32("attention.sliding_window")?.is_some_and(|window| window > 0) {
        decoder.see_windows(b, 6)?;
        let turn = Source::new(RopePairs::Halves, decoder.attention.heads.head_dim);
        let base_else = Some(10_000.0);
        decoder.turn_in_windows(
            b,
            &Source { base: "rope.freq_base_swa", base_else, stretched: false, ..turn },
        )?;
    }
    Ok(decoder)
}

/// The largest of each, of so many layers, scales scores by a head's share of the width, not by its size.
fn scale_by_width(b: &Builder, decoder: &mut Decoder, layers: usize) {
    if b.dims().n_layer == layers {
        let share = b.dims().dim as f32 / decoder.attention.heads.n_head as f32;
        decoder.attention.scale = 1.0 / share.sqrt();
    }
}
