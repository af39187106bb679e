//! Attention: `Wo · attend(rope(Wq·h), rope(Wk·h), Wv·h)`.

use super::{Residual, whole_norm};
use crate::{
    Result,
    model::Builder,
    plan::{Activation, AttnSpec, Buf, Linear, Norm, NormKind, Op, Parts, RopeId, SlopesId, Temperature},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    pub n_head: usize,
    pub n_kv_head: usize,
    pub head_dim: usize,
}

/// What norms queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    None,
    /// Each head by itself.
    Each,
    EachAfterRope,
    /// Each head by itself, with weights of its own.
    EachByOwn,
    /// All heads together.
    Together,
}

#[derive(Clone, Debug)]
pub struct Attention {
    pub heads: Heads,
    /// What it reads: the normed input, or the stream itself.
    pub input: Buf,
    pub head_norms: HeadNorms,
    pub norm_kind: NormKind,
    pub rope: Option<RopeId>,
    pub scale: f32,
    pub temperature: Option<Temperature>,
    pub cap: Option<f32>,
    pub window: Option<u32>,
    pub sinks: bool,
    pub slopes: Option<SlopesId>,
    /// The layer whose keys and values it reads instead of its own.
    pub keys_of: Option<usize>,
    /// Values are normed per head; they are the keys where there is no matrix for them.
    pub values_normed: bool,
    /// The matrix of queries has each head's gate behind it, whose sigmoid goes over what comes out.
    pub gated_queries: bool,
    /// A sigmoid of this product of the input goes over what comes out.
    pub gate: Option<&'static str>,
    pub residual: Residual,
}

impl Attention {
    pub fn ops(&self, b: &mut Builder, layer: usize) -> Result<Vec<Op>> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let Heads { n_head, n_kv_head, head_dim } = self.heads;
        let (dim, q_width, kv_width) = (b.width(self.input), n_head * head_dim, n_kv_head * head_dim);
        let [q, out] = [("q", q_width), ("a", q_width)].map(|(name, width)| b.buffer(name, width));
        let [k, v] = ["k", "v"].map(|name| b.buffer(name, kv_width));
        let (q, k, v, out) = (q?, k?, v?, out?);
        let mut ops = Vec::new();
        let product =
            |Linear { weight, bias }, dst| Op::MatMul { weight, bias, src: self.input, dst, add: false };
        let has_own_keys = self.keys_of.is_none();
        if b.has(&name("attn_qkv.weight")) {
            let rows = q_width + 2 * kv_width;
            let mut part = |of, dst| b.linear_rows(&name("attn_qkv"), rows, dim, of).map(|m| product(m, dst));
            ops.push(part(0..q_width, q)?);
            if has_own_keys {
                ops.push(part(q_width..q_width + kv_width, k)?);
                ops.push(part(q_width + kv_width..rows, v)?);
            }
        } else {
            if self.gated_queries {
                let both = b.buffer("queries and gates", 2 * q_width)?;
                let gate = b.buffer("attention gate", q_width)?;
                ops.push(product(b.linear(&name("attn_q"), 2 * q_width, dim)?, both));
                for (dst, from) in [(q, 0), (gate, head_dim)] {
                    let from = Parts { every: 2 * head_dim, from };
                    let to = Parts { every: head_dim, from: 0 };
                    ops.push(Op::Take { src: both, from, group: head_dim, dst, to });
                }
            } else {
                ops.push(product(b.linear(&name("attn_q"), q_width, dim)?, q));
            }
            if has_own_keys {
                ops.push(product(b.linear(&name("attn_k"), kv_width, dim)?, k));
                if b.has(&name("attn_v.weight")) || !self.values_normed {
                    ops.push(product(b.linear(&name("attn_v"), kv_width, dim)?, v));
                }
            }
        }
        if self.values_normed && has_own_keys {
            let src = if b.has(&name("attn_v.weight")) || b.has(&name("attn_qkv.weight")) { v } else { k };
            let norm = Norm { kind: NormKind::Rms, weight: None, bias: None, eps: b.rms_eps };
            ops.push(Op::Norm { norm, group: head_dim, src, dst: v, add: false });
        }
        let (mut q_norm, mut k_norm) = (None, None);
        match self.head_norms {
            HeadNorms::None => {}
            HeadNorms::Each | HeadNorms::EachAfterRope => {
                q_norm = Some(b.norm(self.norm_kind, &name("attn_q_norm"), head_dim)?);
                if has_own_keys {
                    k_norm = Some(b.norm(self.norm_kind, &name("attn_k_norm"), head_dim)?);
                }
            }
            HeadNorms::EachByOwn => {
                for (part, width, buf) in [("attn_q_norm", q_width, q), ("attn_k_norm", kv_width, k)] {
                    let norm = b.norm(self.norm_kind, &name(part), width)?;
                    ops.push(Op::Norm { norm, group: head_dim, src: buf, dst: buf, add: false });
                }
            }
            HeadNorms::Together => {
                let norm = b.norm(self.norm_kind, &name("attn_q_norm"), q_width)?;
                ops.push(whole_norm(norm, q, q, false));
                let norm = b.norm(self.norm_kind, &name("attn_k_norm"), kv_width)?;
                ops.push(whole_norm(norm, k, k, false));
            }
        }
        let sinks = match self.sinks {
            true => Some(b.vector(&name("attn_sinks.weight"), n_head)?),
            false => None,
        };
        let id = b.attention(AttnSpec {
            q,
            k,
            v,
            out,
            n_head,
            n_kv_head,
            head_dim,
            rope: self.rope,
            q_norm,
            k_norm,
            norm_after_rope: self.head_norms == HeadNorms::EachAfterRope,
            scale: self.scale,
            temperature: self.temperature,
            cap: self.cap,
            window: self.window,
            sinks,
            slopes: self.slopes,
            keys_of: self.keys_of,
            values_are_keys: false,
        });
        ops.extend([Op::Store(id), Op::Attend(id)]);
        if self.gated_queries {
            let by = b.buffer("attention gate", q_width)?;
            ops.push(Op::Multiply { dst: out, f: None, by, g: Some(Activation::Sigmoid), column: 0 });
        }
        if let Some(gate) = self.gate {
            let by = b.buffer("attention gate", q_width)?;
            ops.push(product(b.linear(&name(gate), q_width, dim)?, by));
            ops.push(Op::Multiply { dst: out, f: None, by, g: Some(Activation::Sigmoid), column: 0 });
        }
        let last = b.linear(&name("attn_output"), b.dims().dim, q_width)?;
        ops.extend(self.residual.close(b, layer, last, out)?);
        Ok(ops)
    }
}
