//! ModernBERT: norms stand before the sublayers, positions rotate, the MLP's gate goes through GELU; two of three layers see a
//! window, to both sides, and rotate faster.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let dim = b.dims().dim;
    b.plan.bidirectional = true;
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.norm = NormKind::Layer;
    decoder.activate(match b.str("hidden_activation")? {
        Some("silu" | "swiglu") => Activation::Silu,
        _ => Activation::Gelu,
    });
    if b.u32("attention.sliding_window")?.is_some_and(|window| window > 0) {
        decoder.see_windows_behind_first(b, 3)?;
        let turn = Source::new(RopePairs::Halves, decoder.attention.heads.head_dim);
        let base_else = Some(10_000.0);
        decoder.turn_in_windows(
            b,
            &Source { base: "rope.freq_base_swa", base_else, stretched: false, ..turn },
        )?;
    }
    let first_norm = b.norm(NormKind::Layer, "token_embd_norm", dim)?;
    let embed = vec![embed(b, 1.0)?, whole_norm(first_norm, Buf::X, Buf::X, false)];
    let mut layers = Vec::new();
    for l in 0..b.dims().n_layer {
        // The first layer reads what the norm before it has made.
        let normed = b.has(&format!("blk.{l}.attn_norm.weight"));
        let mut of_layer = decoder.clone();
        if !normed {
            of_layer.attn_norm = None;
            of_layer.attention.input = Buf::X;
        }
        layers.push(of_layer.layer(b, l)?);
    }
    let last_norm = b.norm(NormKind::Layer, "output_norm", dim)?;
    if let Some(last) = layers.last_mut() {
        last.mlp.push(whole_norm(last_norm, Buf::X, Buf::X, false));
    }
    Ok(Body { embed, layers, head: None, mtp: None })
}
