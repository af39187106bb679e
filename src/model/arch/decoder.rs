//! The pieces that pre-norm decoders share: attention with a residual, a gated MLP with a residual, the head.

use crate::{
    Result,
    model::{Builder, rope},
    plan::{Buf, LayerOps, Op, Plan, RopePairs},
};

/// What differs between the decoders that we have.
pub struct Style {
    pub pairs: RopePairs,
    /// Queries and keys are normed per head before they are rotated.
    pub head_norms: bool,
    /// Queries, keys and values must have biases; elsewhere a file may carry them.
    pub qkv_biases: bool,
}

pub fn plan(b: &mut Builder, style: &Style) -> Result<Plan> {
    let d = b.dims;
    let table = b.matrix("token_embd.weight", d.n_vocab, d.dim)?;
    let layers = (0..d.n_layer)
        .map(|l| Ok(LayerOps { attn: attention(b, l, style)?, mlp: gated_mlp(b, l)? }))
        .collect::<Result<_>>()?;
    let norm = b.vector("output_norm.weight", d.dim)?;
    // Tied embeddings: the table is the head.
    let head = if b.has("output.weight") { b.matrix("output.weight", d.n_vocab, d.dim)? } else { table };
    Ok(Plan {
        dims: d,
        rope: rope::read(b, style.pairs)?,
        embed: Op::Embed { table },
        layers,
        head: Op::Head { norm, eps: b.eps, weight: head },
    })
}

/// `x += Wo · attend(rope(Wq·h), rope(Wk·h), Wv·h)` with `h = norm(x)`
fn attention(b: &mut Builder, layer: usize, style: &Style) -> Result<Vec<Op>> {
    let d = b.dims;
    let (q, kv) = (d.width(Buf::Q), d.kv_width());
    let name = |part: &str| format!("blk.{layer}.{part}");
    if style.qkv_biases {
        b.require(&["attn_q.bias", "attn_k.bias", "attn_v.bias"].map(name))?;
    }
    let norm = b.vector(&name("attn_norm.weight"), d.dim)?;
    let mut head_norm = |part: &str| match style.head_norms {
        true => b.vector(&name(part), d.head_dim).map(Some),
        false => Ok(None),
    };
    let (q_norm, k_norm) = (head_norm("attn_q_norm.weight")?, head_norm("attn_k_norm.weight")?);
    Ok(vec![
        Op::Norm { weight: norm, eps: b.eps },
        linear(b, &name("attn_q"), (q, d.dim), (Buf::H, Buf::Q))?,
        linear(b, &name("attn_k"), (kv, d.dim), (Buf::H, Buf::K))?,
        linear(b, &name("attn_v"), (kv, d.dim), (Buf::H, Buf::V))?,
        Op::RopeStore { q_norm, k_norm, eps: b.eps },
        Op::Attend { scale: 1.0 / (d.head_dim as f32).sqrt() },
        linear(b, &name("attn_output"), (d.dim, q), (Buf::A, Buf::X))?,
    ])
}

/// `x += Wdown · (silu(Wgate·h) ⊙ (Wup·h))` with `h = norm(x)`
fn gated_mlp(b: &mut Builder, layer: usize) -> Result<Vec<Op>> {
    let d = b.dims;
    let name = |part: &str| format!("blk.{layer}.{part}");
    Ok(vec![
        Op::Norm { weight: b.vector(&name("ffn_norm.weight"), d.dim)?, eps: b.eps },
        Op::GateUp {
            gate: b.matrix(&name("ffn_gate.weight"), d.ffn, d.dim)?,
            up: b.matrix(&name("ffn_up.weight"), d.ffn, d.dim)?,
        },
        linear(b, &name("ffn_down"), (d.dim, d.ffn), (Buf::G, Buf::X))?,
    ])
}

/// A matrix with the bias that some files carry; what goes to `X` is added to it.
fn linear(b: &mut Builder, name: &str, shape: (usize, usize), path: (Buf, Buf)) -> Result<Op> {
    let (rows, cols) = shape;
    let (src, dst) = path;
    Ok(Op::MatMul {
        weight: b.matrix(&format!("{name}.weight"), rows, cols)?,
        bias: b.optional_vector(&format!("{name}.bias"), rows)?,
        src,
        dst,
        add: dst == Buf::X,
    })
}
