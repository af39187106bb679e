//! Gemma 4: layers that see a window have smaller heads and another rotation than those that see all; norms before and
//! after each sublayer, values normed too (they are the keys where there is no matrix for them), and a factor for what a
//! layer leaves behind. E2B and E4B add a small embedding per layer, and their last layers read the keys and values of
//! earlier ones; 26B-A4B has experts beside its MLP.

use std::f32::consts::FRAC_1_SQRT_2;

use super::prelude::*;

/// The inputs of all layers side by side, each of so many numbers.
#[derive(Clone, Copy)]
struct LayerInputs {
    buf: Buf,
    width: usize,
}

pub fn build(b: &mut Builder) -> Result<Body> {
    let decoder = decoder(b)?;
    let mut embed = vec![embed(b, decoder.embed_scale)?];
    let inputs = match b.u32("embedding_length_per_layer_input")? {
        None | Some(0) => None,
        Some(_) => Some(layer_inputs(b, &mut embed)?),
    };
    let mut layers = Vec::new();
    for l in 0..b.dims().n_layer {
        layers.push(layer(b, &decoder, inputs, l)?);
    }
    let cap = b.positive_or_none("final_logit_softcapping")?;
    Ok(Body { embed, layers, head: Some(head(b, "output_norm", NormKind::Rms, 1.0, cap)?), mtp: None })
}

/// What is as in other models, with the geometry of each layer.
fn decoder(b: &mut Builder) -> Result<Decoder> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.embed_scale = (b.dims().dim as f32).sqrt();
    decoder.attention.scale = 1.0;
    decoder.attention.head_norms = HeadNorms::Each;
    decoder.attention.values_normed = true;
    decoder.activate(Activation::Gelu);
    decoder.norm_after("post_attention_norm", "post_ffw_norm");
    decoder.renormalise_experts();
    const PATTERN: &str = "attention.sliding_window_pattern";
    let windowed = b.flags(PATTERN)?.ok_or_else(|| {
        b.error(&format!("`{}` must list for each layer whether it sees a window", b.key(PATTERN)))
    })?;
    if windowed.contains(&false) {
        b.require(&["rope_freqs.weight".to_string()])?;
    }
    let small = b.optional_size("attention.key_length_swa")?.unwrap_or(decoder.attention.heads.head_dim);
    if b.optional_size("attention.value_length_swa")?.is_some_and(|n| n != small) {
        return Err(b.error("keys and values of different length are not supported"));
    }
    let window = b.size("attention.sliding_window")? as u32;
    let turn = rope::read(
        b,
        &Source {
            dimensions: "rope.dimension_count_swa",
            base: "rope.freq_base_swa",
            base_else: Some(10_000.0),
            stretched: false,
            ..Source::new(RopePairs::Halves, small)
        },
    )?;
    let turn = b.rope(turn);
    for l in (0..b.dims().n_layer).filter(|&l| windowed[l]) {
        decoder.heads[l].head_dim = small;
        decoder.windows[l] = Some(window);
        decoder.ropes[l] = Some(turn);
    }
    Ok(decoder)
}

/// `(norm(project(X) / √dim) + table[token] · √width) / √2`, the norm of each layer's numbers by themselves.
fn layer_inputs(b: &mut Builder, embed: &mut Vec<Op>) -> Result<LayerInputs> {
    let width = b.size("embedding_length_per_layer_input")?;
    let all = width * b.dims().n_layer;
    let (n_vocab, dim) = (b.dims().n_vocab, b.dims().dim);
    let table = b.matrix("per_layer_token_embd.weight", n_vocab, all)?;
    let Linear { weight, bias } = b.linear("per_layer_model_proj", all, dim)?;
    let norm = b.norm(NormKind::Rms, "per_layer_proj_norm", width)?;
    let buf = b.buffer("layer inputs", all)?;
    embed.extend([
        Op::MatMul { weight, bias, src: Buf::X, dst: buf, add: false },
        Op::Scale { buf, by: 1.0 / (dim as f32).sqrt() },
        Op::Norm { norm, group: width, src: buf, dst: buf, add: false },
        Op::Embed { table, by: EmbedBy::Token, dst: buf, scale: (width as f32).sqrt(), add: true },
        Op::Scale { buf, by: FRAC_1_SQRT_2 },
    ]);
    Ok(LayerInputs { buf, width })
}

fn layer(b: &mut Builder, decoder: &Decoder, inputs: Option<LayerInputs>, l: usize) -> Result<LayerOps> {
    let name = |part: &str| format!("blk.{l}.{part}");
    let mut attention = decoder.attention_of(l);
    attention.keys_of = keys_of(b, decoder, l)?;
    if attention.keys_of.is_some() {
        for part in ["attn_k.weight", "attn_k_norm.weight", "attn_v.weight"] {
            b.leave_out(&name(part));
        }
    }
    let mut attn = vec![decoder.norm_of_stream(b, l, "attn_norm", Buf::H)?];
    attn.extend(attention.ops(b, l)?);

    let mut mlp = vec![decoder.norm_of_stream(b, l, "ffn_norm", Buf::H)?];
    match &decoder.experts {
        Some(experts) if b.has(&name("ffn_gate_inp.weight")) => mlp.extend(both(b, decoder, experts, l)?),
        _ => mlp.extend(decoder.mlp_of(l).ops(b, l)?),
    }
    if let Some(LayerInputs { buf: inputs, width }) = inputs {
        let gate = b.linear(&name("inp_gate"), width, b.dims().dim)?;
        let last = b.linear(&name("proj"), b.dims().dim, width)?;
        let dst = b.buffer("layer input", width)?;
        let residual = Residual {
            norm: Some(ResidualNorm { name: "post_norm", kind: NormKind::Rms, eps: None }),
            scale: 1.0,
        };
        mlp.extend([
            Op::Gate { gate, up: None, activation: Activation::Gelu, src: Buf::X, dst },
            Op::Multiply { dst, f: None, by: inputs, g: None, column: l * width },
        ]);
        mlp.extend(residual.close(b, l, last, dst)?);
    }
    if let Some(scale) = b.optional_f32s(&name("layer_output_scale.weight"), 1)? {
        mlp.push(Op::Scale { buf: Buf::X, by: scale[0] });
    }
    Ok(LayerOps { shared: Vec::new(), attn, mlp })
}

/// The MLP and the experts, each with norms of its own before and after; the router reads a third norm.
fn both(b: &mut Builder, decoder: &Decoder, experts: &Experts, l: usize) -> Result<Vec<Op>> {
    let name = |part: &str| format!("blk.{l}.{part}");
    let dim = b.dims().dim;
    let [out, sum, seen] = ["out", "experts' sum", "router input"].map(|purpose| b.buffer(purpose, dim));
    let (out, sum, seen) = (out?, sum?, seen?);

    let dense = decoder.mlp_of(l);
    let (gate, hidden) = dense.gate(b, l, ["ffn_gate", "ffn_up"])?;
    let Linear { weight, bias } = b.linear(&name("ffn_down"), dim, dense.width)?;
    let after = b.norm(NormKind::Rms, &name("post_ffw_norm_1"), dim)?;
    let mut ops = vec![gate, Op::MatMul { weight, bias, src: hidden, dst: out, add: false }];
    ops.push(whole_norm(after, out, out, false));

    ops.push(decoder.norm_of_stream(b, l, "pre_ffw_norm_2", Buf::H)?);
    let weight = Some(b.vector(&name("ffn_gate_inp.scale"), dim)?);
    let norm = Norm { kind: NormKind::Rms, weight, bias: None, eps: b.rms_eps };
    ops.push(whole_norm(norm, Buf::X, seen, false));
    ops.push(Op::Scale { buf: seen, by: 1.0 / (dim as f32).sqrt() });
    ops.extend(Experts { router_input: Some(seen), ..*experts }.routed(b, l, sum, false)?);
    let after = b.norm(NormKind::Rms, &name("post_ffw_norm_2"), dim)?;
    ops.push(whole_norm(after, sum, out, true));
    ops.extend(dense.residual.ops(b, l, out)?);
    Ok(ops)
}

/// The last layers read the last keys and values before them: with a window those of the last but one, else of the last.
fn keys_of(b: &Builder, decoder: &Decoder, l: usize) -> Result<Option<usize>> {
    const KEY: &str = "attention.shared_kv_layers";
    let n_layer = b.dims().n_layer;
    let shared = b.u32(KEY)?.unwrap_or(0) as usize;
    if shared > n_layer.saturating_sub(2) && shared > 0 {
        return Err(b.wrong(KEY, shared, &format!("at most {}", n_layer.saturating_sub(2))));
    }
    let own = n_layer - shared;
    if l < own {
        return Ok(None);
    }
    let of = own - if decoder.windows[l].is_some() { 2 } else { 1 };
    let kept = |l: usize| {
        let Heads { n_kv_head, head_dim, .. } = decoder.heads[l];
        (n_kv_head, head_dim, decoder.windows[l])
    };
    if kept(l) != kept(of) {
        return Err(b.error(&format!(
            "layer {l} is to read the keys and values of layer {of}, which has others: `{}` is {shared}",
            b.key(KEY)
        )));
    }
    Ok(Some(of))
}
