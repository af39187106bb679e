//! What an architecture's file builds its plan with: keys under the architecture's prefix, tensors of a demanded
//! shape, and the plan's tables.

mod keys;
mod tensors;

use std::collections::{HashMap, HashSet};

use super::{DraftsFor, RopeChange, WeightInfo, tail::Tail};
use crate::{
    Error, Gguf, Result,
    gguf::{TensorInfo, Value},
    plan::{
        AttnId, AttnSpec, Buf, Dims, LayerOps, MixerId, MixerSpec, MoeId, MoeSpec, Mtp, Op, Plan, Rope,
        RopeId, SlopesId, WeightId,
    },
    quoted::Quoted,
};

/// More than any model has; bounds what a hostile file can make us build.
const MAX_LAYERS: u32 = 4096;
const MAX_EXPERTS: usize = 1024;

pub struct Builder<'a> {
    gguf: &'a Gguf,
    arch: &'a str,
    /// What is built. Its lists of operations come last, see `Builder::finish`.
    pub plan: Plan,
    weights: Vec<WeightInfo>,
    /// Whole matrices by name.
    matrices: HashMap<String, WeightId>,
    /// Tensors that are folded into the plan, or that nothing here needs.
    folded: HashSet<String>,
    n_further: usize,
    n_ctx_train: u32,
    /// Layers with attention, and with an MLP: for the others lists of sizes may have a 0.
    pub attends: Vec<bool>,
    pub has_mlp: Vec<bool>,
    /// Of RMS norms, and of layer norms.
    pub rms_eps: f32,
    pub layer_eps: f32,
    /// What each buffer of the plan is for.
    purposes: Vec<&'static str>,
    /// Of a file that has no model of its own, but a head for another one.
    pub drafts_for: Option<DraftsFor>,
    /// What is to hold of rotations in place of what the file says.
    pub(super) rope_change: RopeChange,
}

/// The operations of an architecture.
pub struct Body {
    pub embed: Vec<Op>,
    pub layers: Vec<LayerOps>,
    pub head: Option<Op>,
    pub mtp: Option<Mtp>,
}

pub(super) struct Built {
    pub weights: Vec<WeightInfo>,
    pub plan: Plan,
    pub mtp: Option<Mtp>,
    pub tail: Tail,
    pub n_further: usize,
    pub drafts_for: Option<DraftsFor>,
}

/// The buffers that have a name, in their order.
const NAMED: [&str; Buf::NAMED] = ["x", "h", "q", "k", "v", "a", "g"];

impl<'a> Builder<'a> {
    /// Reads the sizes that every model has.
    pub fn new(gguf: &'a Gguf, arch: &'a str) -> Result<Self> {
        let mut b = Builder {
            gguf,
            arch,
            plan: Plan { widths: vec![0; Buf::NAMED], ..Plan::default() },
            weights: Vec::new(),
            matrices: HashMap::new(),
            folded: HashSet::new(),
            n_further: 0,
            n_ctx_train: 0,
            attends: Vec::new(),
            has_mlp: Vec::new(),
            rms_eps: 0.0,
            layer_eps: 0.0,
            purposes: NAMED.to_vec(),
            drafts_for: None,
            rope_change: RopeChange::default(),
        };
        let blocks = b.size("block_count")?;
        if blocks > MAX_LAYERS as usize {
            return Err(b.wrong("block_count", blocks, &format!("at most {MAX_LAYERS} layers")));
        }
        // Heads that were trained to predict further tokens stand behind the layers.
        let extra = b.u32("nextn_predict_layers")?.unwrap_or(0) as usize;
        if extra >= blocks {
            return Err(b.wrong("nextn_predict_layers", extra, &format!("less than block_count {blocks}")));
        }
        let n_layer = blocks - extra;
        let dim = b.size("embedding_length")?;
        b.n_ctx_train = b.size("context_length")? as u32;
        b.rms_eps = b.positive("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5);
        b.layer_eps = b.positive("attention.layer_norm_epsilon")?.unwrap_or(1e-5);
        let table = b.find("token_embd.weight")?;
        let n_vocab = *table.shape.get(1).unwrap_or(&0) as usize;
        if n_vocab == 0 || n_vocab > i32::MAX as usize {
            return Err(b.error(&format!("tensor `token_embd.weight` has {n_vocab} rows: not a vocabulary")));
        }
        b.plan.dims = Dims { n_layer, n_vocab, dim };
        b.plan.n_tokens = n_vocab;
        (b.attends, b.has_mlp) = (vec![true; n_layer], vec![true; n_layer]);
        b.plan.widths[Buf::X.index()] = dim;
        b.plan.widths[Buf::H.index()] = dim;
        let behind = |name: &str| {
            let number = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
            number.is_some_and(|layer: usize| (n_layer..blocks).contains(&layer))
        };
        b.folded.extend(gguf.tensors().iter().map(|t| t.name.clone()).filter(|name| behind(name)));
        b.n_further = b.folded.len();
        b.check_further(extra)?;
        Ok(b)
    }

    /// Blocks behind the layers are heads, and no layer is one: else the model would be another one.
    fn check_further(&self, extra: usize) -> Result<()> {
        let n_layer = self.dims().n_layer;
        let block = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<usize>().ok();
        let heads = self.gguf.tensors().iter().filter(|tensor| tensor.name.contains(".nextn."));
        let early = heads.filter_map(|tensor| block(&tensor.name)).filter(|&block| block < n_layer).min();
        let is_head = |l: usize| self.has(&format!("blk.{l}.nextn.eh_proj.weight"));
        let is_there = |l: usize| self.folded.iter().any(|name| block(name) == Some(l));
        let no_head = (n_layer..n_layer + extra).find(|&l| is_there(l) && !is_head(l));
        let wanted = match (early, no_head) {
            (None, None) => return Ok(()),
            (Some(early), _) => format!("at least {}: block {early} is a head", n_layer + extra - early),
            (None, Some(block)) => {
                format!("at most {}: block {block} is no head", n_layer + extra - block - 1)
            }
        };
        Err(self.wrong("nextn_predict_layers", extra, &wanted))
    }

    pub fn dims(&self) -> Dims {
        self.plan.dims
    }

    /// The context length that the model was trained for.
    pub fn n_ctx_train(&self) -> u32 {
        self.n_ctx_train
    }

    /// Fails if the file has a tensor that the architecture did not ask for: its results would not be the model's.
    pub(super) fn finish(mut self, body: Body) -> Result<Built> {
        let arch = self.arch;
        let tail = Tail::read(&mut self, arch)?;
        let used: HashSet<&str> = self
            .weights
            .iter()
            .map(|w| w.tensor.name.as_str())
            .chain(self.folded.iter().map(String::as_str))
            .collect();
        // Rotary frequencies of old files, which follow from the metadata.
        let needless = |name: &str| name.contains("rot_embd") || name == "rope_freqs.weight";
        if let Some(tensor) =
            self.gguf.tensors().iter().find(|t| !used.contains(t.name.as_str()) && !needless(&t.name))
        {
            return Err(self.error(&format!(
                "tensor {} is not part of architecture `{}` as it is known here: without it the results would be wrong",
                Quoted(&tensor.name),
                self.arch
            )));
        }
        let bidirectional = self.plan.bidirectional || self.bool("attention.causal")? == Some(false);
        let Body { embed, layers, head, mtp } = body;
        let Self { plan, weights, n_further, drafts_for, .. } = self;
        let plan = Plan { embed, layers, head, bidirectional, ..plan };
        Ok(Built { weights, plan, mtp, tail, n_further, drafts_for })
    }

    // ---- the plan's tables

    /// The buffer of that purpose and width. The first of a name that [`Buf`] has is that buffer.
    pub fn buffer(&mut self, purpose: &'static str, width: usize) -> Result<Buf> {
        let mut known = std::iter::zip(&self.purposes, &self.plan.widths);
        if let Some(i) = known.position(|(&p, &w)| p == purpose && (w == width || w == 0)) {
            self.plan.widths[i] = width;
            return Ok(Buf::new(i));
        }
        if self.purposes.len() == Buf::MOST {
            return Err(self.error(&format!(
                "its layers have too many different widths: more than {} buffers are not supported",
                Buf::MOST
            )));
        }
        self.purposes.push(purpose);
        self.plan.widths.push(width);
        Ok(Buf::new(self.purposes.len() - 1))
    }

    pub fn rope(&mut self, rope: Rope) -> RopeId {
        let i = self.plan.ropes.iter().position(|known| *known == rope).unwrap_or_else(|| {
            self.plan.ropes.push(rope);
            self.plan.ropes.len() - 1
        });
        RopeId(i as u32)
    }

    /// What scores lose with the distance: of the first heads, as many as a power of two, by powers of one number, and of the
    /// others by odd powers of its root.
    pub fn slopes(&mut self, n_head: usize, most: f32) -> SlopesId {
        let power = 1 << n_head.ilog2();
        let slope = |head: usize| {
            let (steps, of) =
                if head < power { (head + 1, power) } else { (2 * (head - power) + 1, 2 * power) };
            (-most * steps as f32 / of as f32).exp2()
        };
        self.plan.slopes.push((0..n_head).map(slope).collect());
        SlopesId(self.plan.slopes.len() as u32 - 1)
    }

    pub fn attention(&mut self, spec: AttnSpec) -> AttnId {
        self.plan.attentions.push(spec);
        AttnId(self.plan.attentions.len() as u32 - 1)
    }

    pub fn mixer(&mut self, spec: MixerSpec) -> MixerId {
        self.plan.mixers.push(spec);
        MixerId(self.plan.mixers.len() as u32 - 1)
    }

    pub fn moe(&mut self, spec: MoeSpec) -> MoeId {
        self.plan.experts.push(spec);
        MoeId(self.plan.experts.len() as u32 - 1)
    }

    /// The same attention once more, for operations that do with other rows what those of the first do.
    pub fn attention_again(&mut self, id: AttnId) -> AttnId {
        self.attention(*self.plan.attention(id))
    }

    /// The token that stands for one which is not known yet.
    pub fn mask_token(&self) -> Result<u32> {
        const KEY: &str = "tokenizer.ggml.mask_token_id";
        let mask = self.gguf.metadata().u32(KEY)?.ok_or_else(|| self.gguf.metadata().missing(KEY))?;
        match (mask as usize) < self.plan.n_tokens {
            true => Ok(mask),
            false => Err(self.error(&format!("`{KEY}` is {mask}; it must be below {}", self.plan.n_tokens))),
        }
    }

    // ---- tensors

    /// A tensor that stands behind the plan: backends do not see it.
    pub(super) fn behind_the_plan(
        &mut self,
        tensor: TensorInfo,
        rows: usize,
        cols: usize,
    ) -> Result<WeightInfo> {
        if tensor.shape.iter().product::<u64>() != (rows * cols) as u64 {
            return Err(self.misshapen(&tensor, &format!("[{cols}, {rows}]")));
        }
        self.check_readable(&tensor)?;
        let factor = self.factors(&tensor)?[0];
        self.folded.insert(tensor.name.clone());
        let bytes = tensor.bytes;
        Ok(WeightInfo { tensor, begin: 0, bytes, rows, cols, factor })
    }

    /// The width of a buffer.
    pub fn width(&self, buf: Buf) -> usize {
        self.plan.width(buf)
    }

    pub fn error(&self, what: &str) -> Error {
        Error::model(self.gguf.name(), what)
    }

    /// So many experts as a key says, bounded.
    pub fn n_experts(&self) -> Result<usize> {
        let n = self.size("expert_count")?;
        if n > MAX_EXPERTS {
            Err(self.wrong("expert_count", n, &format!("at most {MAX_EXPERTS}")))
        } else {
            Ok(n)
        }
    }

    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    /// The numbers of a key as it is, without the architecture before it; one number is a list of one.
    pub fn plain_f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        if let Some(Value::F32(x)) = self.gguf.metadata().get(key) {
            return Ok(Some(vec![*x]));
        }
        Ok(self.gguf.metadata().f32s(key)?.map(<[f32]>::to_vec))
    }

    pub fn wrong(&self, name: &str, found: usize, wanted: &str) -> Error {
        self.error(&format!("`{}` is {found}; it must be {wanted}", self.key(name)))
    }
}
