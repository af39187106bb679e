//! Experts: a router chooses some for each row, and their results are added by its weights; maybe a shared one beside them.

use std::ops::Range;

use super::{Mlp, Residual};
use crate::{
    Error, Result,
    model::Builder,
    plan::{Activation, Buf, Gating, Groups, Linear, MoeSpec, Op},
};

/// An expert that every row goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    None,
    Plain,
    /// By the sigmoid of a product of the input.
    Gated,
}

/// How wide they are, each layer's matrices say.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    pub input: Buf,
    /// What the router reads, if not the same.
    pub router_input: Option<Buf>,
    pub count: usize,
    pub used: usize,
    pub gating: Gating,
    pub renormalise: bool,
    pub scale: f32,
    pub groups: Option<Groups>,
    pub activation: Activation,
    pub shared: Shared,
    pub residual: Residual,
    /// What experts read and give is so wide, if not as wide as the stream.
    pub width: Option<usize>,
}

impl Experts {
    /// As the file's keys say.
    pub fn read(b: &Builder) -> Result<Self> {
        let count = b.n_experts()?;
        let used = b.size("expert_used_count")?;
        if used > count {
            return Err(b.wrong("expert_used_count", used, &format!("at most expert_count {count}")));
        }
        let groups = match b.u32("expert_group_count")?.map(|n| n as usize) {
            None | Some(0 | 1) => None,
            Some(n) => {
                let chosen = b.size("expert_group_used_count")?;
                if count % n != 0 || count / n < 2 {
                    return Err(b.wrong(
                        "expert_group_count",
                        n,
                        &format!("a divisor of expert_count {count} with two experts a group"),
                    ));
                }
                if chosen > n || chosen * (count / n) < used {
                    return Err(b.wrong(
                        "expert_group_used_count",
                        chosen,
                        &format!("at most {n}, with room for {used} experts"),
                    ));
                }
                Some(Groups { count: n, used: chosen })
            }
        };
        let gating = match b.u32("expert_gating_func")? {
            None | Some(0 | 1) => Gating::Softmax,
            Some(2) => Gating::Sigmoid,
            Some(3) => Gating::SoftmaxOfChosen,
            Some(n) => {
                return Err(b.wrong("expert_gating_func", n as usize, "1 (softmax), 2 (sigmoid) or 3"));
            }
        };
        Ok(Experts {
            input: Buf::H,
            router_input: None,
            count,
            used,
            gating,
            renormalise: b.bool("expert_weights_norm")?.unwrap_or(false),
            scale: b.positive_or_none("expert_weights_scale")?.unwrap_or(1.0),
            groups,
            activation: Activation::Silu,
            shared: Shared::None,
            residual: Residual::PLAIN,
            width: None,
        })
    }

    pub fn ops(&self, b: &mut Builder, layer: usize) -> Result<Vec<Op>> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let plain = self.residual.is_plain();
        let dim = b.dims().dim;
        let dst = if plain { Buf::X } else { b.buffer("out", dim)? };
        let mut ops = Vec::new();
        if b.has(&name("ffn_latent_down.weight")) {
            ops.extend(self.through_latent(b, layer, dst, plain)?);
        } else {
            ops.extend(self.routed(b, layer, dst, plain)?);
        }
        if self.shared != Shared::None {
            let width = b.rows_of(&name("ffn_up_shexp.weight"))?;
            let mlp = Mlp {
                input: self.input,
                width,
                activation: self.activation,
                gated: b.has(&name("ffn_gate_shexp.weight")),
                residual: Residual::PLAIN,
            };
            let (gate, hidden) = mlp.gate(b, layer, ["ffn_gate_shexp", "ffn_up_shexp"])?;
            ops.push(gate);
            let Linear { weight, bias } = b.linear(&name("ffn_down_shexp"), dim, width)?;
            if self.shared == Shared::Gated {
                let by = b.buffer("shared gate", 1)?;
                let result = b.buffer("shared", dim)?;
                // Some files have it as a vector, which is a matrix of one row.
                let gate = b.vector(&name("ffn_gate_inp_shexp.weight"), dim)?;
                ops.extend([
                    Op::MatMul { weight: gate, bias: None, src: self.input, dst: by, add: false },
                    Op::MatMul { weight, bias, src: hidden, dst: result, add: false },
                    Op::Add { src: result, dst, scale: 1.0, gate: Some(by) },
                ]);
            } else {
                ops.push(Op::MatMul { weight, bias, src: hidden, dst, add: true });
            }
        }
        if !plain {
            ops.extend(self.residual.ops(b, layer, dst)?);
        }
        Ok(ops)
    }

    /// The experts alone, on a narrower copy of the input.
    fn through_latent(&self, b: &mut Builder, layer: usize, dst: Buf, add: bool) -> Result<Vec<Op>> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (dim, width) = (b.dims().dim, b.rows_of(&name("ffn_latent_down.weight"))?);
        let [narrow, sum] = ["experts' input", "experts' sum"].map(|purpose| b.buffer(purpose, width));
        let (narrow, sum) = (narrow?, sum?);
        let down = b.linear(&name("ffn_latent_down"), width, dim)?;
        let up = b.linear(&name("ffn_latent_up"), dim, width)?;
        let experts = Experts { input: narrow, router_input: Some(self.input), width: Some(width), ..*self };
        let mut ops = vec![Op::MatMul {
            weight: down.weight,
            bias: down.bias,
            src: self.input,
            dst: narrow,
            add: false,
        }];
        ops.extend(experts.routed(b, layer, sum, false)?);
        ops.push(Op::MatMul { weight: up.weight, bias: up.bias, src: sum, dst, add });
        Ok(ops)
    }

    /// The experts alone; their sum goes to `dst`.
    pub fn routed(&self, b: &mut Builder, layer: usize, dst: Buf, add: bool) -> Result<Vec<Op>> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (dim, n) = (self.width.unwrap_or(b.dims().dim), self.count);
        let joined = name("ffn_gate_up_exps.weight");
        let width = match b.has(&joined) {
            true => b.rows_of(&joined)? / 2,
            false => b.rows_of(&name("ffn_up_exps.weight"))?,
        };
        let scores = b.buffer("router", n)?;
        let chosen = b.buffer("chosen", 2 * self.used)?;
        let hidden = b.buffer("experts", self.used * width)?;
        let results = b.buffer("experts' results", self.used * dim)?;
        let router = b.linear(&name("ffn_gate_inp"), n, b.dims().dim)?;
        let choice_bias = match [name("exp_probs_b.bias"), name("exp_probs_b")].into_iter().find(|n| b.has(n))
        {
            Some(found) => Some(b.vector(&found, n)?),
            None => None,
        };
        let (is_joined, has_gate) = (b.has(&joined), b.has(&name("ffn_gate_exps.weight")));
        let expert_scale = match b.has_factors(&name("ffn_down_exps.weight")) {
            true => None,
            false => b.optional_vector(&name("ffn_down_exps.scale"), n)?,
        };
        let mut linear = |part: &str, tensor: &str, all: usize, of: Range<usize>, cols| {
            let bias = b.optional_vector(&name(&format!("{part}.bias")), n * of.len())?;
            Ok::<_, Error>(Linear { weight: b.expert_rows(tensor, n, all, cols, of)?, bias })
        };
        let mut whole =
            |part: &str, rows, cols| linear(part, &name(&format!("{part}.weight")), rows, 0..rows, cols);
        let down = whole("ffn_down_exps", dim, width)?;
        let (gate, up) = if is_joined {
            let gate = linear("ffn_gate_exps", &joined, 2 * width, 0..width, dim)?;
            (Some(gate), linear("ffn_up_exps", &joined, 2 * width, width..2 * width, dim)?)
        } else {
            let gate = has_gate.then(|| whole("ffn_gate_exps", width, dim)).transpose()?;
            (gate, whole("ffn_up_exps", width, dim)?)
        };
        let id = MoeSpec {
            n_expert: n,
            n_used: self.used,
            ffn: width,
            scores,
            chosen,
            src: self.input,
            hidden,
            results,
            dst,
            add,
            gating: self.gating,
            choice_bias,
            groups: self.groups,
            renormalise: self.renormalise,
            scale: self.scale,
            expert_scale,
            gate,
            up,
            down,
            activation: self.activation,
        };
        let id = b.moe(id);
        let src = self.router_input.unwrap_or(self.input);
        Ok(vec![
            Op::MatMul { weight: router.weight, bias: router.bias, src, dst: scores, add: false },
            Op::Choose(id),
            Op::ExpertsGate(id),
            Op::ExpertsDown(id),
            Op::ExpertsSum(id),
        ])
    }
}
