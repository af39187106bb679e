//! Mamba 2: no attention and no MLP at all.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mixer = Mixer::Mamba2(MixerSizes::read(b)?);
    let embed = vec![embed(b, 1.0)?];
    let layer = |b: &mut Builder, l: usize| {
        let norm = b.norm(NormKind::Rms, &format!("blk.{l}.attn_norm"), b.dims().dim)?;
        let mut attn = vec![whole_norm(norm, Buf::X, Buf::H, false)];
        attn.extend(mixer.ops(b, l, &Residual::PLAIN)?);
        Ok(LayerOps { attn, ..LayerOps::default() })
    };
    let layers = (0..b.dims().n_layer).map(|l| layer(b, l)).collect::<Result<_>>()?;
    Ok(Body { embed, layers, head: Some(head(b, "output_norm", NormKind::Rms, 1.0, None)?), mtp: None })
}
