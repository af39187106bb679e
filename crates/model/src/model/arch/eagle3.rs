//! EAGLE-3: one layer that drafts for another model. It reads what three of that model's layers left of a token, together
//! with the token that came next; and goes on from what it has left itself.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    if b.dims().n_layer != 1 {
        return Err(b.wrong("block_count", b.dims().n_layer, "1"));
    }
    let dim = b.dims().dim;
    let taps = taps(b)?;
    if taps.len() != 3 {
        return Err(b.error(&format!("`{}` is {taps:?}; it must be three layers", b.key("target_layers"))));
    }
    let of_dim = b.size("target_hidden_size")?;
    let tokens = b.optional_tokens("d2t")?;
    b.plan.dims.n_vocab = tokens.as_ref().map_or(b.plan.n_tokens, Vec::len);

    let found = b.buffer("rows of three layers", taps.len() * of_dim)?;
    let row = b.buffer("one of a pair", dim)?;
    let pair = b.buffer("a token and the row before", 2 * dim)?;
    let half = |n: usize| Parts { every: 2 * dim, from: n * dim };
    let whole = Parts { every: dim, from: 0 };
    let take = |src, n| Op::Take { src, from: whole, group: dim, dst: pair, to: half(n) };

    let table = b.matrix("token_embd.weight", b.plan.n_tokens, dim)?;
    let token_norm = b.norm(NormKind::Rms, "blk.0.attn_norm", dim)?;
    let row_norm = b.norm(NormKind::Rms, "blk.0.attn_norm_2", dim)?;
    // What the layer adds to is that row, as it was or normed.
    let normed = if b.bool("norm_before_residual")?.unwrap_or(false) { Buf::X } else { row };
    let after_itself = vec![
        Op::Embed { table, by: EmbedBy::Token, dst: row, scale: 1.0, add: false },
        whole_norm(token_norm, row, row, false),
        take(row, 0),
        whole_norm(row_norm, Buf::X, normed, false),
        take(normed, 1),
    ];
    let mut after_model = Vec::new();
    if b.bool("norm_before_fc")?.unwrap_or(false) {
        let norm = b.norm(NormKind::Rms, "enc.output_norm", taps.len() * of_dim)?;
        after_model.push(whole_norm(norm, found, found, false));
    }
    let joined = b.linear("fc", dim, taps.len() * of_dim)?;
    after_model.push(Op::MatMul {
        weight: joined.weight,
        bias: joined.bias,
        src: found,
        dst: Buf::X,
        add: false,
    });
    after_model.extend(after_itself.iter().cloned());

    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    decoder.attn_norm = None;
    decoder.attention.input = pair;
    let layer = decoder.layer(b, 0)?;
    let head = head(b, "output_norm", NormKind::Rms, 1.0, None)?;
    // It is none of the model's layers.
    b.plan.dims.n_layer = 0;
    b.drafts_for = Some(DraftsFor { taps, dim: of_dim, tokens, block: None });
    let mtp = Mtp { reads: found, after_model, after_itself, layer, head };
    Ok(Body { embed: Vec::new(), layers: Vec::new(), head: Some(head), mtp: Some(mtp) })
}

/// The layers of the other model that a head reads.
pub fn taps(b: &Builder) -> Result<Vec<usize>> {
    const KEY: &str = "target_layers";
    let taps: Vec<usize> =
        b.u32s(KEY)?.ok_or_else(|| b.missing(KEY))?.iter().map(|&layer| layer as usize).collect();
    if taps.is_empty() || !taps.is_sorted_by(|a, b| a < b) || taps[0] == 0 {
        return Err(b.error(&format!("`{}` is {taps:?}; it must be layers from 1 on, ascending", b.key(KEY))));
    }
    Ok(taps)
}
