//! GPT-2: positions are a second embedding and nothing turns; layer norms, a plain MLP with GELU, biases on everything.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, None)?;
    decoder.norm = NormKind::Layer;
    decoder.mlp.gated = false;
    decoder.activate(Activation::Gelu);
    let positions = b.n_ctx_train() as usize;
    let table = b.matrix("position_embd.weight", positions, b.dims().dim)?;
    b.plan.most_positions = Some(positions);
    let mut body = decoder.build(b)?;
    body.embed.push(Op::Embed { table, by: EmbedBy::Position, dst: Buf::X, scale: 1.0, add: true });
    Ok(body)
}
