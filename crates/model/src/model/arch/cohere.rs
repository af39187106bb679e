//! Command R, R+ and R7B: attention and MLP read the same layer norm, logits are scaled. R+ norms each head of queries and
//! keys by weights of its own; in R7B and Command A three layers of four see a window, and the fourth is not told positions.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = first(b)?;
    decoder.logit_scale = b.positive_or_none("logit_scale")?.unwrap_or(1.0);
    decoder.norm_heads_by_own(b);
    decoder.build(b)
}

pub fn build_2(b: &mut Builder) -> Result<Body> {
    let mut decoder = first(b)?;
    decoder.logit_scale = b.factor("logit_scale")?;
    decoder.see_windows(b, 4)?;
    decoder.turn_only_in_windows();
    decoder.build(b)
}

fn first(b: &mut Builder) -> Result<Decoder> {
    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    decoder.norm = NormKind::Layer;
    decoder.share_norm();
    Ok(decoder)
}
