//! Falcon-H1: attention and a Mamba 2 read the same norm, and both are added to the stream.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.scale_scores(b)?;
    let mixer = Mixer::Mamba2(MixerSizes::read(b)?);
    let mut body = decoder.build(b)?;
    for (l, layer) in body.layers.iter_mut().enumerate() {
        layer.attn.extend(mixer.ops(b, l, &Residual::PLAIN)?);
    }
    Ok(body)
}
