//! Attention through latents (MLA): a row keeps one short vector for all heads, of which a part turns with its position. Each
//! head's matrices stand before and behind attention, so that all heads look at the same keys, which are the values too.

use super::{Residual, whole_norm};
use crate::{
    Result,
    model::Builder,
    plan::{AttnSpec, Buf, Linear, NormKind, Op, Parts, RopeId, Temperature},
};

#[derive(Clone, Copy, Debug)]
pub struct Latent {
    pub n_head: usize,
    /// Of the queries' latent; `None`: they have none.
    pub query_rank: Option<usize>,
    pub rank: usize,
    /// Numbers of a head's query that do not turn, and that do.
    pub still: usize,
    pub turned: usize,
    /// Numbers that come out of a head.
    pub value: usize,
    pub rope: RopeId,
    pub scale: f32,
    pub temperature: Option<Temperature>,
    pub residual: Residual,
}

impl Latent {
    /// Fails with the key that says something else than the tensors of a layer.
    fn check(&self, b: &Builder, layer: usize) -> Result<()> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let Latent { n_head, rank, still, turned, value, .. } = *self;
        let by = |key: &str, found: usize, tensor: &str, side: usize, size: usize| {
            b.must_match(key, found, (&name(tensor), side, size))
        };
        if let Some(rank) = self.query_rank {
            by("attention.q_lora_rank", rank, "attn_q_a", 1, rank)?;
        }
        by("attention.kv_lora_rank", rank, "attn_kv_a_norm", 0, rank)?;
        by("rope.dimension_count", turned, "attn_kv_a_mqa", 1, rank + turned)?;
        by("attention.key_length_mla", still + turned, "attn_k_b", 0, still)?;
        by("attention.head_count", n_head, "attn_k_b", 2, n_head)?;
        by("attention.value_length_mla", value, "attn_v_b", 1, value)
    }

    /// Reads the normed input.
    pub fn ops(&self, b: &mut Builder, layer: usize) -> Result<Vec<Op>> {
        self.check(b, layer)?;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let Latent { n_head, rank, still, turned, value, .. } = *self;
        let (dim, head, width) = (b.dims().dim, still + turned, turned + rank);
        let (q, k, out) =
            (b.buffer("q", n_head * width)?, b.buffer("k", width)?, b.buffer("a", n_head * width)?);
        let queries = b.buffer("queries", n_head * head)?;
        let latent = b.buffer("latent", rank)?;
        let turning = b.buffer("turning key", turned)?;
        let values = b.buffer("heads' values", n_head * value)?;
        let product = |Linear { weight, bias }, src, dst| Op::MatMul { weight, bias, src, dst, add: false };
        let mut ops = Vec::new();
        match self.query_rank {
            Some(rank) => {
                let latent = b.buffer("queries' latent", rank)?;
                ops.push(product(b.linear(&name("attn_q_a"), rank, dim)?, Buf::H, latent));
                ops.push(whole_norm(
                    b.norm(NormKind::Rms, &name("attn_q_a_norm"), rank)?,
                    latent,
                    latent,
                    false,
                ));
                ops.push(product(b.linear(&name("attn_q_b"), n_head * head, rank)?, latent, queries));
            }
            None => ops.push(product(b.linear(&name("attn_q"), n_head * head, dim)?, Buf::H, queries)),
        }
        let mut rows = |of, dst| {
            Ok::<_, crate::Error>(product(
                b.linear_rows(&name("attn_kv_a_mqa"), width, dim, of)?,
                Buf::H,
                dst,
            ))
        };
        ops.extend([rows(0..rank, latent)?, rows(rank..width, turning)?]);
        ops.push(whole_norm(b.norm(NormKind::Rms, &name("attn_kv_a_norm"), rank)?, latent, latent, false));
        // What turns comes first in each head.
        let before = b.expert_rows(&name("attn_k_b.weight"), n_head, rank, still, 0..rank)?;
        let behind = b.expert_rows(&name("attn_v_b.weight"), n_head, value, rank, 0..value)?;
        let part = |every, from| Parts { every, from };
        ops.extend([
            Op::Take { src: queries, from: part(head, still), group: turned, dst: q, to: part(width, 0) },
            Op::PerHead {
                first: before,
                heads: n_head,
                src: queries,
                from: part(head, 0),
                dst: q,
                to: part(width, turned),
            },
            Op::Take { src: turning, from: part(turned, 0), group: turned, dst: k, to: part(width, 0) },
            Op::Take { src: latent, from: part(rank, 0), group: rank, dst: k, to: part(width, turned) },
        ]);
        let id = b.attention(AttnSpec {
            q,
            k,
            v: k,
            out,
            n_head,
            n_kv_head: 1,
            head_dim: width,
            rope: Some(self.rope),
            q_norm: None,
            k_norm: None,
            norm_after_rope: false,
            scale: self.scale,
            temperature: self.temperature,
            cap: None,
            window: None,
            sinks: None,
            slopes: None,
            keys_of: None,
            values_are_keys: true,
        });
        ops.extend([
            Op::Store(id),
            Op::Attend(id),
            Op::PerHead {
                first: behind,
                heads: n_head,
                src: out,
                from: part(width, turned),
                dst: values,
                to: part(value, 0),
            },
        ]);
        let last = b.linear(&name("attn_output"), dim, n_head * value)?;
        ops.extend(self.residual.close(b, layer, last, values)?);
        Ok(ops)
    }
}
