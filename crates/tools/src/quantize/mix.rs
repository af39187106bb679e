//! Which type each tensor gets: the rules of llama.cpp's quantizer, tensor by tensor.

use super::{Settings, file_type::FileType};
use crate::{
    Gguf, Result,
    gguf::TensorInfo,
    quant::GgmlType::{self, F16, MXFP4, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0},
};

/// What the rules ask of a tensor's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    Embedding,
    Head,
    Query,
    Key,
    /// Values, and what has values in it.
    Value,
    AttnOutput,
    Up,
    Gate,
    Down,
    Other,
}

impl Category {
    pub fn of(name: &str) -> Self {
        let has = |part: &str| name.contains(part);
        match name {
            "output.weight" => Category::Head,
            "token_embd.weight" | PER_LAYER => Category::Embedding,
            _ if has("attn_qkv.weight") || has("attn_kv_b.weight") || has("attn_v.weight") => Category::Value,
            _ if has("attn_k.weight") => Category::Key,
            _ if has("attn_q.weight") => Category::Query,
            _ if has("attn_output.weight") => Category::AttnOutput,
            _ if has("ffn_up") => Category::Up,
            _ if has("ffn_gate") => Category::Gate,
            _ if has("ffn_down") => Category::Down,
            _ => Category::Other,
        }
    }
}

/// The table of embeddings of each layer, in some models.
const PER_LAYER: &str = "per_layer_token_embd.weight";

/// Parts of the names of tensors that are too small, or too sensitive, to be quantized.
const LEFT: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd",
    "token_types.weight",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// Whether a tensor is one that may be quantized: a matrix that is neither a norm nor small.
fn is_quantized(tensor: &TensorInfo) -> bool {
    let dims = tensor.shape.iter().rposition(|&n| n > 1).map_or(1, |last| last + 1);
    dims >= 2 && tensor.name.ends_with("weight") && !LEFT.iter().any(|part| tensor.name.contains(part))
}

/// What the rules ask of a model.
struct Facts {
    falcon: bool,
    /// Of so many layers that values are shared by eight heads and cheap.
    large: bool,
    layers: u32,
    experts: u32,
    /// Heads of queries for one of keys, in the first layer.
    shared_by: u32,
    tied: bool,
    /// Matrices of values.
    values: u32,
}

impl Facts {
    fn of(gguf: &Gguf, settings: &Settings) -> Result<Self> {
        let metadata = gguf.metadata();
        let arch = metadata.str("general.architecture")?.unwrap_or_default();
        let first = |key: &str| -> Result<Option<u32>> {
            let all = metadata.u32s(&format!("{arch}.{key}"))?;
            Ok(all.and_then(|all| all.first().copied()))
        };
        let heads = first("attention.head_count")?.unwrap_or(0);
        let kv_heads = first("attention.head_count_kv")?.unwrap_or(heads);
        let layers = settings.layers.or(first("block_count")?).unwrap_or(0);
        let large = match arch {
            "llama" => layers == 80 && heads != kv_heads,
            "deci" | "olmo" | "qwen2" => layers == 80,
            "jais2" => layers == 68,
            _ => false,
        };
        let of = |wanted: fn(Category) -> bool| {
            gguf.tensors().iter().filter(|t| wanted(Category::of(&t.name))).count()
        };
        Ok(Facts {
            falcon: arch == "falcon",
            large,
            layers,
            experts: first("expert_count")?.unwrap_or(0),
            shared_by: heads.checked_div(kv_heads).unwrap_or(0),
            tied: of(|category| category == Category::Head) == 0,
            values: of(|category| category == Category::Value) as u32,
        })
    }

    /// In these of `n` layers medium mixes spend more bits: the first and last eighth, and every third between.
    fn favours(i: u32, n: u32) -> bool {
        i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
    }
}

/// Goes through the tensors in llama.cpp's order, because some rules count.
pub struct Chooser<'a> {
    facts: Facts,
    settings: &'a Settings,
    /// Matrices of each kind that were there before.
    values_seen: u32,
    downs_seen: u32,
}

/// A tensor's type, and the one that was wanted where rows are not whole blocks of it.
pub struct Chosen {
    pub ty: GgmlType,
    pub instead_of: Option<GgmlType>,
}

impl<'a> Chooser<'a> {
    pub fn new(gguf: &Gguf, settings: &'a Settings) -> Result<Self> {
        Ok(Chooser { facts: Facts::of(gguf, settings)?, settings, values_seen: 0, downs_seen: 0 })
    }

    /// The tensors as they lie in files of llama.cpp's quantizer: in the order of their layers and names or, if each of
    /// several files becomes one, as they lie in these.
    pub fn order<'g>(gguf: &'g Gguf, settings: &Settings) -> Vec<&'g TensorInfo> {
        let mut tensors: Vec<&TensorInfo> = gguf.tensors().iter().collect();
        match settings.keep_split {
            true => tensors.sort_by_key(|t| (t.shard, t.offset)),
            false => tensors.sort_by(|a, b| (layer_of(&a.name), &a.name).cmp(&(layer_of(&b.name), &b.name))),
        }
        tensors
    }

    pub fn choose(&mut self, tensor: &TensorInfo) -> Chosen {
        let settings = self.settings;
        let category = Category::of(&tensor.name);
        let exactly = |ty| Chosen { ty, instead_of: None };
        let kept = settings.leave_output && category == Category::Head;
        if settings.copy || kept || !is_quantized(tensor) {
            return exactly(tensor.ty);
        }
        let named =
            settings.overrides.iter().find(|(pattern, _)| pattern.is_match(&tensor.name)).map(|&(_, ty)| ty);
        match (category, settings.embedding, settings.output) {
            (Category::Embedding, Some(ty), _) if named.is_none() || tensor.name != PER_LAYER => {
                return exactly(ty);
            }
            (Category::Head, _, Some(ty)) => return exactly(ty),
            _ => {}
        }
        let base = settings.file_type.base();
        let wanted = match named {
            Some(ty) => ty,
            None if settings.pure || base.block_len() == 1 => base,
            None => self.of_the_mix(tensor, category),
        };
        let ty = fitting(wanted, tensor.shape[0]);
        Chosen { ty, instead_of: (ty != wanted).then_some(wanted) }
    }

    fn of_the_mix(&mut self, tensor: &TensorInfo, category: Category) -> GgmlType {
        let file_type = self.settings.file_type;
        let facts = &self.facts;
        let base = file_type.base();
        let is_head = category == Category::Head || facts.tied && category == Category::Embedding;
        if is_head {
            let fits = tensor.shape[0].is_multiple_of(base.block_len() as u64);
            return match (self.settings.output, file_type) {
                (Some(ty), _) => ty,
                (_, FileType::MXFP4_MOE | FileType::Q8_0) => Q8_0,
                _ if facts.falcon || !fits => Q8_0,
                _ => Q6_K,
            };
        }
        if file_type == FileType::MXFP4_MOE {
            return if tensor.shape.get(2).is_some_and(|&n| n > 1) { MXFP4 } else { Q8_0 };
        }
        match category {
            Category::Value => {
                self.values_seen += 1;
                facts.value(file_type, self.values_seen - 1)
            }
            Category::Key if facts.experts == 8 => Q8_0,
            Category::Down => {
                self.downs_seen += 1;
                // Experts' matrices may be several of a layer.
                let layer = match layer_of(&tensor.name) {
                    Some(layer) if facts.experts > 1 => layer,
                    _ => self.downs_seen - 1,
                };
                facts.down(file_type, layer, self.settings.importance.is_some())
            }
            Category::AttnOutput => facts.attn_output(file_type),
            _ => base,
        }
    }
}

impl Facts {
    fn value(&self, file_type: FileType, i: u32) -> GgmlType {
        use FileType as T;
        let shared = self.shared_by >= 4;
        let ty = match file_type {
            T::Q2_K => {
                if shared {
                    Q4_K
                } else {
                    Q3_K
                }
            }
            T::Q2_K_S if shared => Q4_K,
            T::Q3_K_M => {
                if i < 2 {
                    Q5_K
                } else {
                    Q4_K
                }
            }
            T::Q3_K_L => Q5_K,
            T::IQ4_NL | T::IQ4_XS if shared => Q5_K,
            T::Q4_K_M | T::Q5_K_M if Self::favours(i, self.values) => Q6_K,
            T::Q4_K_S if i < 4 => Q5_K,
            _ => file_type.base(),
        };
        match ty {
            _ if self.experts == 8 => Q8_0,
            Q3_K | Q4_K if self.large => Q5_K,
            _ => ty,
        }
    }

    fn down(&self, file_type: FileType, i: u32, has_importance: bool) -> GgmlType {
        use FileType as T;
        let n = self.layers;
        let early = i < n / 8;
        match file_type {
            T::Q2_K => Q3_K,
            T::Q2_K_S if early => Q4_K,
            T::Q3_K_M if i < n / 16 => Q5_K,
            T::Q3_K_M if !self.falcon || Self::favours(i, n) => Q4_K,
            T::Q3_K_L => {
                if self.falcon {
                    Q4_K
                } else {
                    Q5_K
                }
            }
            T::Q4_K_M if self.falcon && i < n / 16 => Q6_K,
            T::Q4_K_M if Self::favours(i, n) => {
                if self.falcon {
                    Q5_K
                } else {
                    Q6_K
                }
            }
            T::IQ4_NL | T::IQ4_XS if early && !has_importance => Q5_K,
            T::Q5_K_M if Self::favours(i, n) => Q6_K,
            T::Q4_K_S if early && !self.falcon => Q5_K,
            // The first layers may go astray in formats without a minimum.
            T::Q4_0 if early && has_importance => Q4_1,
            T::Q5_0 if early && has_importance => Q5_1,
            _ => file_type.base(),
        }
    }

    fn attn_output(&self, file_type: FileType) -> GgmlType {
        use FileType as T;
        match file_type {
            T::Q3_K_L if self.falcon => Q4_K,
            _ if self.falcon => file_type.base(),
            T::Q2_K | T::Q3_K_S | T::Q3_K_M | T::IQ4_NL | T::Q4_K_S | T::Q4_K_M | T::IQ4_XS
                if self.experts == 8 =>
            {
                Q5_K
            }
            _ if self.experts == 8 => file_type.base(),
            T::Q2_K => Q3_K,
            T::Q3_K_M => Q4_K,
            T::Q3_K_L => Q5_K,
            _ => file_type.base(),
        }
    }
}

/// The layer that a tensor's name speaks of.
pub fn layer_of(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// What is taken where rows are not whole blocks of `ty`.
fn fitting(ty: GgmlType, columns: u64) -> GgmlType {
    let fits = |ty: &GgmlType| columns.is_multiple_of(ty.block_len() as u64);
    let smaller = match ty {
        GgmlType::IQ4_XS => GgmlType::IQ4_NL,
        GgmlType::Q2_K | Q3_K => Q4_0,
        Q4_K => Q5_0,
        Q5_K => Q5_1,
        Q6_K => Q8_0,
        _ => F16,
    };
    [ty, smaller].into_iter().find(fits).unwrap_or(F16)
}
