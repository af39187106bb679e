//! Granite, dense, with experts, and with a Mamba 2 on most layers, and MiniCPM: a llama that scales its embedding, its
//! scores, what each sublayer gives,
//! and divides its logits.

use super::prelude::*;

/// A key whose name says something else tells whether positions are told.
pub fn build(b: &mut Builder) -> Result<Body> {
    b.factor("logit_scale")?;
    let turns = b.bool("rope.scaling.finetuned")?.unwrap_or(true);
    scaled(b, turns.then_some(RopePairs::Neighbours))?.build(b)
}

pub fn build_moe(b: &mut Builder) -> Result<Body> {
    b.factor("logit_scale")?;
    scaled(b, Some(RopePairs::Neighbours))?.build(b)
}

/// Layers without heads are recurrent.
pub fn build_hybrid(b: &mut Builder) -> Result<Body> {
    b.attends = b.lists_above_zero("attention.head_count_kv")?;
    let turns = b.bool("rope.scaling.finetuned")?.unwrap_or(true);
    let mut decoder = scaled(b, turns.then_some(RopePairs::Neighbours))?;
    let mixer = Mixer::Mamba2(MixerSizes::read(b)?);
    decoder.mixers = b.attends.iter().map(|attends| (!attends).then_some(mixer)).collect();
    decoder.build(b)
}

fn scaled(b: &mut Builder, pairs: Option<RopePairs>) -> Result<Decoder> {
    let mut decoder = Decoder::new(b, pairs)?;
    decoder.logit_scale = 1.0 / b.positive_or_none("logit_scale")?.unwrap_or(1.0);
    decoder.embed_scale = b.positive_or_none("embedding_scale")?.unwrap_or(1.0);
    decoder.scale_residuals(b.positive_or_none("residual_scale")?.unwrap_or(1.0));
    decoder.scale_scores(b)?;
    experts(b, &mut decoder);
    Ok(decoder)
}

/// What older files do not say is as it was in MiniCPM 1.
pub fn build_minicpm(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    let (dim, n_layer) = (b.dims().dim as f32, b.dims().n_layer as f32);
    decoder.logit_scale = 1.0 / b.positive("logit_scale")?.unwrap_or(dim / 256.0);
    decoder.embed_scale = b.positive("embedding_scale")?.unwrap_or(12.0);
    decoder.scale_residuals(b.positive("residual_scale")?.unwrap_or(1.4 / n_layer.sqrt()));
    experts(b, &mut decoder);
    decoder.build(b)
}

fn experts(b: &Builder, decoder: &mut Decoder) {
    decoder.renormalise_experts();
    if b.has("blk.0.ffn_up_shexp.weight") {
        decoder.share_expert(Shared::Plain);
    }
}
