//! DFlash: a few layers that draft a block of tokens at once for another model. Their keys and values of the text are made of what some of
//! that model's layers left of it; the block is the text's last token and masks, which see each other both ways. A DSpark head adds to
//! each token's logits what the token before makes of it.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    refuse_others(b)?;
    let dim = b.dims().dim;
    let taps = super::eagle3::taps(b)?;
    let tokens = b.optional_tokens("d2t")?;
    b.plan.dims.n_vocab = tokens.as_ref().map_or(b.plan.n_tokens, Vec::len);
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.scale_scores(b)?;
    decoder.attention.head_norms = HeadNorms::Each;
    decoder.embed_scale = b.positive_or_none("embedding_scale")?.unwrap_or(1.0);
    match b.str("hidden_activation")? {
        None | Some("silu") => {}
        Some("gelu" | "gelu_pytorch_tanh") => decoder.activate(Activation::Gelu),
        Some(other) => {
            return Err(
                b.error(&format!("`{}` is `{other}`; it must be silu or gelu", b.key("hidden_activation")))
            );
        }
    }
    if !b.bool("attention.causal")?.unwrap_or(false) {
        b.plan.bidirectional = true;
    }
    let body = decoder.build(b)?;

    let found = b.buffer("rows of some layers", taps.len() * dim)?;
    let joined = b.linear("fc", dim, taps.len() * dim)?;
    let norm = b.norm(NormKind::Rms, "enc.output_norm", dim)?;
    let before = vec![
        Op::MatMul { weight: joined.weight, bias: joined.bias, src: found, dst: Buf::X, add: false },
        whole_norm(norm, Buf::X, Buf::H, false),
    ];
    let layers = body.layers.iter().map(|layer| stored(b, layer)).collect();
    b.plan.inject = Some(Inject { reads: found, before, layers });
    let size = b.optional_size("block_size")?.unwrap_or(16);
    let mask = b.mask_token()?;
    let markov = markov(b)?;
    let from_last = markov.is_some() && b.bool("sample_from_anchor")?.unwrap_or(true);
    let block = Block { size, mask, from_last, markov };
    b.drafts_for = Some(DraftsFor { taps, dim, tokens, block: Some(block) });
    Ok(body)
}

/// What a layer does behind its norm until its keys and values are stored. Queries come along, because all three may be one product.
fn stored(b: &mut Builder, layer: &LayerOps) -> Vec<Op> {
    let products = layer.attn.iter().filter(|op| matches!(op, Op::MatMul { src: Buf::H, .. })).copied();
    let store = layer.attn.iter().find_map(|op| match *op {
        // With an id of its own, because other operations come before it.
        Op::Store(id) => Some(Op::Store(b.attention_again(id))),
        _ => None,
    });
    products.chain(store).collect()
}

/// What makes a DFlash head a DSpark head. How likely it says that a token is accepted is not read: that is learnt of its drafts.
fn markov(b: &mut Builder) -> Result<Option<Markov>> {
    const OF_TOKEN: &str = "markov_w1.weight";
    if !b.has(OF_TOKEN) {
        return Ok(None);
    }
    b.leave_out("conf_proj.weight");
    b.leave_out("conf_proj.bias");
    let rank = b.columns_of(OF_TOKEN)?;
    Ok(Some(Markov {
        of_token: b.matrix(OF_TOKEN, b.plan.n_tokens, rank)?,
        to_logits: b.matrix("markov_w2.weight", b.dims().n_vocab, rank)?,
    }))
}

/// Files of the same architecture that have more to them.
fn refuse_others(b: &Builder) -> Result<()> {
    let has = |key: &str| Ok::<_, crate::Error>(b.u32(key)?.is_some_and(|n| n > 0));
    let what = if b.has("selector_hidden.weight") {
        "a second DFlash, whose selector"
    } else if has("hyper_connection_count")? {
        "a head of DeepSeek-V4's kind, whose hyper-connections"
    } else if has("attention.sliding_window")? {
        "a head with windows, which"
    } else if b.has("blk.0.layer_output_scale.weight")
        || b.f32("attention.value_scale")?.is_some_and(|scale| scale != 0.0)
    {
        "a head with scaled outputs, which"
    } else if b.u32s("rope.dimension_sections")?.is_some_and(|parts| parts.iter().any(|&n| n > 0)) {
        "a head with positions of several parts, which"
    } else {
        return Ok(());
    };
    Err(b.error(&format!("{what} cannot be computed here yet: take an EAGLE-3 head or a draft model")))
}
