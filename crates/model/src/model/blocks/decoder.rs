//! The decoder that most architectures are, with what they differ in.

use super::{
    Attention, Experts, HeadNorms, Heads, Latent, Mixer, Mlp, Residual, ResidualNorm, Shared, mtp, whole_norm,
};
use crate::{
    Result,
    model::{
        Builder,
        builder::Body,
        rope::{self, Source},
    },
    plan::{Activation, Buf, EmbedBy, LayerOps, NormKind, Op, RopeId, RopePairs},
};

#[derive(Clone, Debug)]
pub struct Decoder {
    pub norm: NormKind,
    /// The norms before attention and MLP, by the last part of their names; one that is missing is not done.
    pub attn_norm: Option<&'static str>,
    pub ffn_norm: Option<&'static str>,
    /// Attention and MLP read the same stream, and are added together; without a `ffn_norm` they read the same norm of it.
    pub parallel: bool,
    pub embed_scale: f32,
    /// Of all layers; what differs by layer stands in the lists below.
    pub attention: Attention,
    pub heads: Vec<Heads>,
    pub ropes: Vec<Option<RopeId>>,
    pub windows: Vec<Option<u32>>,
    pub mlp: Mlp,
    pub ffn: Vec<usize>,
    /// For layers that have a router.
    pub experts: Option<Experts>,
    pub logit_scale: f32,
    pub logit_cap: Option<f32>,
    /// The norm before the head.
    pub last_norm: &'static str,
    /// What layers have in the place of attention.
    pub mixers: Vec<Option<Mixer>>,
    pub latent: Option<Latent>,
    /// A head for one token more is used where the file has one.
    pub has_mtp: bool,
}

impl Decoder {
    /// A llama of the file's sizes; without pairs nothing turns.
    pub fn new(b: &mut Builder, pairs: impl Into<Option<RopePairs>>) -> Result<Self> {
        let heads = heads(b)?;
        let rope = match pairs.into() {
            None => None,
            Some(pairs) => {
                let rope = rope::read(b, &Source::new(pairs, heads[0].head_dim))?;
                Some(b.rope(rope))
            }
        };
        Self::with(b, heads, rope)
    }

    /// The same for who has other attention.
    pub fn without_heads(b: &mut Builder) -> Result<Self> {
        let heads = vec![Heads { n_head: 1, n_kv_head: 1, head_dim: 1 }; b.dims().n_layer];
        Self::with(b, heads, None)
    }

    fn with(b: &mut Builder, heads: Vec<Heads>, rope: Option<RopeId>) -> Result<Self> {
        let n_layer = b.dims().n_layer;
        let experts = match b.u32("expert_count")? {
            // A single expert is an MLP.
            None | Some(0 | 1) => None,
            Some(_) => Some(Experts::read(b)?),
        };
        let ffn = match (b.sizes_of("feed_forward_length", &b.has_mlp)?, &experts) {
            (Some(ffn), _) => ffn,
            // Layers with experts have no other MLP.
            (None, Some(_)) => vec![1; n_layer],
            (None, None) => return Err(b.missing("feed_forward_length")),
        };
        Ok(Decoder {
            norm: NormKind::Rms,
            attn_norm: Some("attn_norm"),
            ffn_norm: Some("ffn_norm"),
            parallel: false,
            embed_scale: 1.0,
            attention: Attention {
                heads: heads[0],
                input: Buf::H,
                head_norms: HeadNorms::None,
                norm_kind: NormKind::Rms,
                rope,
                scale: 1.0 / (heads[0].head_dim as f32).sqrt(),
                temperature: None,
                cap: None,
                window: None,
                sinks: false,
                slopes: None,
                keys_of: None,
                values_normed: false,
                gated_queries: false,
                gate: None,
                residual: Residual::PLAIN,
            },
            heads,
            ropes: vec![rope; n_layer],
            windows: vec![None; n_layer],
            mlp: Mlp {
                input: Buf::H,
                width: ffn[0],
                activation: Activation::Silu,
                gated: true,
                residual: Residual::PLAIN,
            },
            ffn,
            experts,
            logit_scale: 1.0,
            logit_cap: None,
            last_norm: "output_norm",
            mixers: vec![None; n_layer],
            latent: None,
            has_mtp: false,
        })
    }

    /// The file may say what attention's scores are multiplied with.
    pub fn scale_scores(&mut self, b: &Builder) -> Result<()> {
        if let Some(scale) = b.positive_or_none("attention.scale")? {
            self.attention.scale = scale;
        }
        Ok(())
    }

    /// Both sublayers' results are multiplied with this.
    pub fn scale_residuals(&mut self, scale: f32) {
        self.attention.residual.scale = scale;
        self.mlp.residual.scale = scale;
        if let Some(experts) = &mut self.experts {
            experts.residual.scale = scale;
        }
    }

    /// Attention and MLP read the same norm of the stream.
    pub fn share_norm(&mut self) {
        self.parallel = true;
        self.ffn_norm = None;
    }

    /// Where the file has them, each head of queries and keys has a layer norm with weights of its own.
    pub fn norm_heads_by_own(&mut self, b: &Builder) {
        if b.has("blk.0.attn_q_norm.weight") {
            self.attention.head_norms = HeadNorms::EachByOwn;
            self.attention.norm_kind = NormKind::Layer;
        }
    }

    /// The weights of a row's experts are divided by their sum.
    pub fn renormalise_experts(&mut self) {
        if let Some(experts) = &mut self.experts {
            experts.renormalise = true;
        }
    }

    /// Every row goes through one more expert.
    pub fn share_expert(&mut self, shared: Shared) {
        if let Some(experts) = &mut self.experts {
            experts.shared = shared;
        }
    }

    /// Norms between a sublayer and the sum, by the last parts of their names.
    pub fn norm_after(&mut self, attn: &'static str, ffn: &'static str) {
        self.attention.residual.norm = Some(self.residual_norm(attn));
        self.mlp.residual.norm = Some(self.residual_norm(ffn));
        if let Some(experts) = &mut self.experts {
            experts.residual.norm = self.mlp.residual.norm;
        }
    }

    fn residual_norm(&self, name: &'static str) -> ResidualNorm {
        ResidualNorm { name, kind: self.norm, eps: None }
    }

    /// The same, where sublayers read the stream as it is.
    pub fn norm_only_after(&mut self, attn: &'static str, ffn: &'static str) {
        self.norm_after(attn, ffn);
        (self.attn_norm, self.ffn_norm) = (None, None);
        (self.attention.input, self.mlp.input) = (Buf::X, Buf::X);
        if let Some(experts) = &mut self.experts {
            experts.input = Buf::X;
        }
    }

    /// One activation for the MLP and for experts.
    pub fn activate(&mut self, activation: Activation) {
        self.mlp.activation = activation;
        if let Some(experts) = &mut self.experts {
            experts.activation = activation;
        }
    }

    /// Says which layers see a window only: those of the file's list, or else all but the last one of each `period`.
    pub fn see_windows(&mut self, b: &Builder, period: usize) -> Result<Vec<bool>> {
        self.see_windows_in(b, windowed(b, period, period.saturating_sub(1))?)
    }

    /// The same, where it is the first one of each `period` that sees everything.
    pub fn see_windows_behind_first(&mut self, b: &Builder, period: usize) -> Result<Vec<bool>> {
        self.see_windows_in(b, windowed(b, period, 0)?)
    }

    fn see_windows_in(&mut self, b: &Builder, windowed: Vec<bool>) -> Result<Vec<bool>> {
        if windowed.contains(&true) {
            let window = b.size("attention.sliding_window")? as u32;
            self.windows = windowed.iter().map(|&is| is.then_some(window)).collect();
        }
        Ok(windowed)
    }

    /// The same, where models without a key for it have windows of this size.
    pub fn see_windows_or(&mut self, b: &Builder, period: usize, window: u32) -> Result<Vec<bool>> {
        if b.u32("attention.sliding_window")?.is_some() {
            return self.see_windows(b, period);
        }
        let windowed = windowed(b, period, period.saturating_sub(1))?;
        self.windows = windowed.iter().map(|&is| is.then_some(window)).collect();
        Ok(windowed)
    }

    /// Layers that see a window turn in another way than the others.
    pub fn turn_in_windows(&mut self, b: &mut Builder, source: &Source) -> Result<()> {
        let rope = rope::read(b, source)?;
        let rope = b.rope(rope);
        for (turned, window) in self.ropes.iter_mut().zip(&self.windows) {
            if window.is_some() {
                *turned = Some(rope);
            }
        }
        Ok(())
    }

    /// Layers that see everything are not told positions.
    pub fn turn_only_in_windows(&mut self) {
        for (turned, window) in self.ropes.iter_mut().zip(&self.windows) {
            if window.is_none() {
                *turned = None;
            }
        }
    }

    pub fn build(&self, b: &mut Builder) -> Result<Body> {
        let embed = vec![embed(b, self.embed_scale)?];
        let layers = (0..b.dims().n_layer).map(|l| self.layer(b, l)).collect::<Result<_>>()?;
        let head = Some(head(b, self.last_norm, self.norm, self.logit_scale, self.logit_cap)?);
        let mtp = match self.behind(b).filter(|_| self.has_mtp) {
            Some(behind) => Some(mtp(b, &behind, self.norm)?),
            None => None,
        };
        Ok(Body { embed, layers, head, mtp })
    }

    /// The same decoder with one layer more, as the last one with attention is: that of a head which was trained to predict
    /// one token more. `None` where the file has none.
    pub fn behind(&self, b: &Builder) -> Option<Decoder> {
        if !b.has(&format!("blk.{}.nextn.eh_proj.weight", b.dims().n_layer)) {
            return None;
        }
        let attends = |l: &usize| self.mixers[*l].is_none() && b.attends[*l];
        let alike = (0..b.dims().n_layer).rev().find(attends).unwrap_or(0);
        let mut behind = self.clone();
        behind.heads.push(self.heads[alike]);
        behind.ropes.push(self.ropes[alike]);
        behind.windows.push(self.windows[alike]);
        behind.ffn.push(self.ffn[alike]);
        behind.mixers.push(None);
        Some(behind)
    }

    pub fn layer(&self, b: &mut Builder, l: usize) -> Result<LayerOps> {
        let mut ops = LayerOps::default();
        if let Some(part) = self.attn_norm {
            let norm = self.norm_of_stream(b, l, part, Buf::H)?;
            if self.parallel { ops.shared.push(norm) } else { ops.attn.push(norm) }
        }
        ops.attn.extend(match (self.mixers[l], self.latent) {
            (Some(mixer), _) => mixer.ops(b, l, &self.attention.residual)?,
            (None, Some(latent)) => latent.ops(b, l)?,
            (None, None) => self.attention_of(l).ops(b, l)?,
        });
        let mut mlp = self.mlp_of(l);
        let mut experts = self.experts;
        match self.ffn_norm {
            Some(part) if self.parallel => {
                let input = b.buffer("mlp input", b.dims().dim)?;
                ops.shared.push(self.norm_of_stream(b, l, part, input)?);
                mlp.input = input;
                experts.iter_mut().for_each(|experts| experts.input = input);
            }
            Some(part) => ops.mlp.push(self.norm_of_stream(b, l, part, Buf::H)?),
            None => {}
        }
        ops.mlp.extend(match experts {
            Some(experts) if b.has(&format!("blk.{l}.ffn_gate_inp.weight")) => experts.ops(b, l)?,
            _ => mlp.ops(b, l)?,
        });
        Ok(ops)
    }

    /// `dst = norm(X)`, by the weights of this part of a layer.
    pub fn norm_of_stream(&self, b: &mut Builder, l: usize, part: &str, dst: Buf) -> Result<Op> {
        Ok(whole_norm(b.norm(self.norm, &format!("blk.{l}.{part}"), b.dims().dim)?, Buf::X, dst, false))
    }

    /// A layer's MLP.
    pub fn mlp_of(&self, l: usize) -> Mlp {
        Mlp { width: self.ffn[l], ..self.mlp }
    }

    /// A layer's attention.
    pub fn attention_of(&self, l: usize) -> Attention {
        Attention {
            heads: self.heads[l],
            rope: self.ropes[l],
            window: self.windows[l],
            ..self.attention.clone()
        }
    }
}

/// `X = table[token] · scale`
pub fn embed(b: &mut Builder, scale: f32) -> Result<Op> {
    let table = b.matrix("token_embd.weight", b.plan.n_tokens, b.dims().dim)?;
    Ok(Op::Embed { table, by: EmbedBy::Token, dst: Buf::X, scale, add: false })
}

/// The last norm and the head; where there is no matrix for it, the table of the embedding is one.
pub fn head(b: &mut Builder, norm: &str, kind: NormKind, scale: f32, cap: Option<f32>) -> Result<Op> {
    let (n_vocab, dim) = (b.dims().n_vocab, b.dims().dim);
    let norm = b.norm(kind, norm, dim)?;
    let own = b.has("output.weight");
    let weight = b.matrix(if own { "output.weight" } else { "token_embd.weight" }, n_vocab, dim)?;
    let bias = b.optional_vector("output.bias", n_vocab)?;
    Ok(Op::Head { norm, weight, bias, scale, cap })
}

/// Which layers see a window only: all but one of each period, the last of it, or its first where `full` is 0; 0 is a period
/// without an end.
fn windowed(b: &Builder, period: usize, full: usize) -> Result<Vec<bool>> {
    const KEY: &str = "attention.sliding_window_pattern";
    if let Some(flags) = b.flags(KEY)? {
        return Ok(flags);
    }
    let period = b.u32(KEY)?.map_or(period, |n| n as usize);
    let full = if full == 0 { 0 } else { period.saturating_sub(1) };
    Ok((0..b.dims().n_layer).map(|l| period == 0 || l % period != full).collect())
}

/// The heads of each layer.
pub fn heads(b: &Builder) -> Result<Vec<Heads>> {
    let n_head =
        b.sizes_of("attention.head_count", &b.attends)?.ok_or_else(|| b.missing("attention.head_count"))?;
    let n_kv_head = b.sizes_of("attention.head_count_kv", &b.attends)?.unwrap_or_else(|| n_head.clone());
    let given = b.optional_size("attention.key_length")?;
    let dim = b.dims().dim;
    let mut heads = Vec::new();
    for (n_head, n_kv_head) in n_head.into_iter().zip(n_kv_head) {
        let head_dim = match given {
            Some(n) => n,
            None if dim.is_multiple_of(n_head) => dim / n_head,
            None => {
                return Err(b.wrong(
                    "attention.head_count",
                    n_head,
                    &format!("a divisor of embedding_length {dim}"),
                ));
            }
        };
        if n_head % n_kv_head != 0 {
            return Err(b.wrong(
                "attention.head_count_kv",
                n_kv_head,
                &format!("a divisor of head_count {n_head}"),
            ));
        }
        heads.push(Heads { n_head, n_kv_head, head_dim });
    }
    if b.optional_size("attention.value_length")?.is_some_and(|n| n != heads[0].head_dim) {
        return Err(b.error("keys and values of different length are not supported"));
    }
    Ok(heads)
}
