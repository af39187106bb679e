//! Plans whose layers are all alike and of llama's kind: those that can be widened.

use crate::plan::{Activation, AttnSpec, Buf, Dims, EmbedBy, Linear, Norm, NormKind, Op, Plan, RopeId};

/// The sizes of such a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform {
    pub n_layer: usize,
    pub n_vocab: usize,
    pub dim: usize,
    pub n_head: usize,
    pub n_kv_head: usize,
    pub head_dim: usize,
    pub ffn: usize,
}

impl Uniform {
    /// What keeps a plan from being uniform, in words.
    pub fn of(plan: &Plan) -> Result<Self, &'static str> {
        let Some(first) = plan.attentions.first() else { return Err("layers without attention") };
        for spec in &plan.attentions {
            is_plain(spec, first)?;
        }
        if plan.layers.iter().any(|layer| !layer.shared.is_empty()) {
            return Err("attention and MLP side by side");
        }
        if plan.widths.len() > Buf::NAMED || plan.ropes.len() != 1 {
            return Err("layers of different shapes");
        }
        plan.ops().try_for_each(is_known)?;
        let Dims { n_layer, n_vocab, dim } = plan.dims;
        let AttnSpec { n_head, n_kv_head, head_dim, .. } = *first;
        Ok(Uniform { n_layer, n_vocab, dim, n_head, n_kv_head, head_dim, ffn: plan.width(Buf::G) })
    }
}

fn is_rms(norm: &Norm) -> bool {
    norm.kind == NormKind::Rms && norm.weight.is_some() && norm.bias.is_none()
}

fn is_plain(spec: &AttnSpec, first: &AttnSpec) -> Result<(), &'static str> {
    let alike = AttnSpec { q_norm: first.q_norm, k_norm: first.k_norm, ..*spec } == *first;
    let named = [spec.q, spec.k, spec.v, spec.out] == [Buf::Q, Buf::K, Buf::V, Buf::A];
    let norms = [spec.q_norm, spec.k_norm];
    let plain_norms = norms.iter().flatten().all(is_rms) && !spec.norm_after_rope;
    match spec {
        _ if !alike || !named => Err("layers of different shapes"),
        _ if !plain_norms => Err("another norm of heads"),
        AttnSpec { window: Some(_), .. } => Err("sliding windows"),
        AttnSpec { sinks: Some(_), .. } => Err("attention sinks"),
        AttnSpec { cap: Some(_), .. } => Err("a soft cap of attention"),
        AttnSpec { temperature: Some(_), .. } => Err("queries that grow with the position"),
        AttnSpec { keys_of: Some(_), .. } => Err("keys and values shared by layers"),
        AttnSpec { rope: Some(RopeId(0)), .. } => Ok(()),
        _ => Err("attention without positions"),
    }
}

fn is_known(op: &Op) -> Result<(), &'static str> {
    let known = match *op {
        Op::Embed { table: _, by, dst, scale, add } => {
            by == EmbedBy::Token && dst == Buf::X && scale == 1.0 && !add
        }
        Op::Norm { norm, group, src, dst, add } => {
            is_rms(&norm) && group == 0 && (src, dst) == (Buf::X, Buf::H) && !add
        }
        Op::Head { norm, weight: _, bias, scale, cap } => {
            is_rms(&norm) && bias.is_none() && scale == 1.0 && cap.is_none()
        }
        Op::Gate { gate, up, activation, src, dst } => {
            let no_bias = |linear: Linear| linear.bias.is_none();
            (src, dst, activation) == (Buf::H, Buf::G, Activation::Silu)
                && up.is_some_and(no_bias)
                && no_bias(gate)
        }
        // What goes to the stream is added to it, and nothing else is.
        Op::MatMul { src, dst, add, .. } => {
            matches!((src, add), (Buf::H, false) | (Buf::A | Buf::G, true)) && add == (dst == Buf::X)
        }
        Op::Store(_) | Op::Attend(_) => true,
        Op::Choose(_) | Op::ExpertsGate(_) | Op::ExpertsDown(_) | Op::ExpertsSum(_) => return Err("experts"),
        Op::Convolve(_) | Op::Scan(_) | Op::Take { .. } => return Err("recurrent layers"),
        Op::PerHead { .. } => return Err("attention through latents"),
        Op::Multiply { .. } | Op::Add { .. } | Op::Scale { .. } | Op::Weigh { .. } => false,
    };
    if known { Ok(()) } else { Err("other norms, scales or activations than llama's") }
}
