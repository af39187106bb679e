//! The head that some models have for the token after the next one (MTP): from what the last layer left of a token, normed
//! as for the head, and the table's row of the next token, each normed again, a matrix makes the input of one more layer.

use super::{Decoder, whole_norm};
use crate::{
    Result,
    model::Builder,
    plan::{Buf, EmbedBy, Mtp, NormKind, Op, Parts},
};

/// `behind`: a decoder that has that layer. `kind` is the head's own norm, where the file has one.
pub fn mtp(b: &mut Builder, behind: &Decoder, kind: NormKind) -> Result<Mtp> {
    let (block, dim, n_vocab) = (b.dims().n_layer, b.dims().dim, b.dims().n_vocab);
    let name = |part: &str| format!("blk.{block}.nextn.{part}");
    // A matrix of the head's own, or else the model's.
    let own = |b: &Builder, part: &str, of_model: &str| {
        let own = name(part);
        if b.has(&own) { own } else { of_model.to_string() }
    };
    let row = b.buffer("one of a pair", dim)?;
    let pair = b.buffer("a token and the row before", 2 * dim)?;

    let model_norm = b.norm(behind.norm, behind.last_norm, dim)?;
    let own_norm = match b.has(&name("shared_head_norm.weight")) {
        true => b.norm(kind, &name("shared_head_norm"), dim)?,
        false => model_norm,
    };
    let table = own(b, "embed_tokens.weight", "token_embd.weight");
    let table = b.matrix(&table, n_vocab, dim)?;
    let (token_norm, row_norm) =
        (b.norm(behind.norm, &name("enorm"), dim)?, b.norm(behind.norm, &name("hnorm"), dim)?);
    let joined = b.linear(&name("eh_proj"), dim, 2 * dim)?;
    let half = |n: usize| Parts { every: 2 * dim, from: n * dim };
    let take =
        |n| Op::Take { src: row, from: Parts { every: dim, from: 0 }, group: dim, dst: pair, to: half(n) };
    let after = |last_norm| {
        vec![
            Op::Embed { table, by: EmbedBy::Token, dst: row, scale: behind.embed_scale, add: false },
            whole_norm(token_norm, row, row, false),
            take(0),
            whole_norm(last_norm, Buf::X, row, false),
            whole_norm(row_norm, row, row, false),
            take(1),
            Op::MatMul { weight: joined.weight, bias: joined.bias, src: pair, dst: Buf::X, add: false },
        ]
    };
    let of_model = if b.has("output.weight") { "output.weight" } else { "token_embd.weight" };
    let weight = own(b, "shared_head_head.weight", of_model);
    let weight = b.matrix(&weight, n_vocab, dim)?;
    Ok(Mtp {
        reads: Buf::X,
        after_model: after(model_norm),
        after_itself: after(own_norm),
        layer: behind.layer(b, block)?,
        head: Op::Head {
            norm: own_norm,
            weight,
            bias: None,
            scale: behind.logit_scale,
            cap: behind.logit_cap,
        },
    })
}
