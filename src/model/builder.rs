//! What an architecture's file builds its plan with: keys under the architecture's prefix and tensors of a
//! demanded shape.

use std::collections::HashSet;

use super::WeightInfo;
use crate::{
    Error, Gguf, Result,
    gguf::TensorInfo,
    plan::{Dims, WeightId},
    quoted::Quoted,
};

/// More than any model has; bounds what a hostile file can make us build.
const MAX_LAYERS: u32 = 4096;

pub struct Builder<'a> {
    gguf: &'a Gguf,
    arch: &'a str,
    weights: Vec<WeightInfo>,
    /// Tensors that are folded into the plan and have no weight of their own.
    folded: Vec<String>,
    n_ctx_train: u32,
    pub dims: Dims,
    pub eps: f32,
}

impl<'a> Builder<'a> {
    /// Reads the sizes that every transformer has and checks that they go together.
    pub fn new(gguf: &'a Gguf, arch: &'a str) -> Result<Self> {
        let mut b = Builder {
            gguf,
            arch,
            weights: Vec::new(),
            folded: Vec::new(),
            n_ctx_train: 0,
            dims: Dims { n_layer: 0, n_vocab: 0, dim: 0, n_head: 0, n_kv_head: 0, head_dim: 0, ffn: 0 },
            eps: 0.0,
        };
        let n_layer = b.size("block_count")?;
        if n_layer > MAX_LAYERS as usize {
            return Err(b.wrong("block_count", n_layer, &format!("at most {MAX_LAYERS} layers")));
        }
        let dim = b.size("embedding_length")?;
        let n_head = b.size("attention.head_count")?;
        let n_kv_head = b.optional_size("attention.head_count_kv")?.unwrap_or(n_head);
        let head_dim = match b.optional_size("attention.key_length")? {
            Some(n) => n,
            None if dim % n_head == 0 => dim / n_head,
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
        if b.optional_size("attention.value_length")?.is_some_and(|n| n != head_dim) {
            return Err(b.error("keys and values of different length are not supported"));
        }
        if b.u32("expert_count")?.is_some_and(|n| n > 0) {
            return Err(b.error("mixture-of-experts models are not supported: use a dense one"));
        }
        let ffn = b.size("feed_forward_length")?;
        b.n_ctx_train = b.size("context_length")? as u32;
        b.eps = b.positive("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5);
        let table = b.find("token_embd.weight")?;
        let n_vocab = *table.shape.get(1).unwrap_or(&0) as usize;
        if n_vocab == 0 || n_vocab > i32::MAX as usize {
            return Err(b.error(&format!("tensor `token_embd.weight` has {n_vocab} rows: not a vocabulary")));
        }
        b.dims = Dims { n_layer, n_vocab, dim, n_head, n_kv_head, head_dim, ffn };
        Ok(b)
    }

    /// Fails if the file has a tensor that the architecture did not ask for: its results would not be the model's.
    pub(super) fn finish(self) -> Result<(Vec<WeightInfo>, u32)> {
        let used: HashSet<&str> = self
            .weights
            .iter()
            .map(|w| w.tensor.name.as_str())
            .chain(self.folded.iter().map(String::as_str))
            .collect();
        // Rotary frequencies of old files, which follow from the metadata.
        let needless = |name: &str| name.contains("rot_embd") || name == "rope_freqs.weight";
        match self.gguf.tensors().iter().find(|t| !used.contains(t.name.as_str()) && !needless(&t.name)) {
            None => Ok((self.weights, self.n_ctx_train)),
            Some(tensor) => Err(self.error(&format!(
                "tensor {} is not part of architecture `{}` as it is known here: without it the results would be wrong",
                Quoted(&tensor.name),
                self.arch
            ))),
        }
    }

    /// The key `ARCH.name`, a whole number.
    pub fn u32(&self, name: &str) -> Result<Option<u32>> {
        self.gguf.metadata().u32(&self.key(name))
    }

    pub fn f32(&self, name: &str) -> Result<Option<f32>> {
        self.gguf.metadata().f32(&self.key(name))
    }

    /// The same, of a number that makes no sense otherwise.
    pub fn positive(&self, name: &str) -> Result<Option<f32>> {
        match self.f32(name)? {
            Some(x) if !(x.is_finite() && x > 0.0) => {
                Err(self.error(&format!("`{}` is {x}; it must be a positive number", self.key(name))))
            }
            x => Ok(x),
        }
    }

    pub fn str(&self, name: &str) -> Result<Option<&'a str>> {
        self.gguf.metadata().str(&self.key(name))
    }

    fn size(&self, name: &str) -> Result<usize> {
        self.optional_size(name)?.ok_or_else(|| self.gguf.metadata().missing(&self.key(name)))
    }

    fn optional_size(&self, name: &str) -> Result<Option<usize>> {
        match self.u32(name)? {
            Some(n) if n == 0 || n > i32::MAX as u32 => {
                Err(self.wrong(name, n as usize, "between 1 and 2^31 - 1"))
            }
            n => Ok(n.map(|n| n as usize)),
        }
    }

    /// A matrix that turns `cols` numbers into `rows`.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<WeightId> {
        let tensor = self.find(name)?;
        let (first, rest) = tensor.shape.split_at(tensor.shape.len().min(2));
        if first != [cols as u64, rows as u64] || rest.iter().any(|&d| d != 1) {
            return Err(self.misshapen(&tensor, &format!("[{cols}, {rows}]")));
        }
        self.add(tensor, rows, cols)
    }

    pub fn vector(&mut self, name: &str, len: usize) -> Result<WeightId> {
        let tensor = self.find(name)?;
        let (first, rest) = tensor.shape.split_first().unwrap_or((&0, &[]));
        if *first != len as u64 || rest.iter().any(|&d| d != 1) {
            return Err(self.misshapen(&tensor, &format!("[{len}]")));
        }
        self.add(tensor, 1, len)
    }

    pub fn optional_vector(&mut self, name: &str, len: usize) -> Result<Option<WeightId>> {
        if self.has(name) { self.vector(name, len).map(Some) } else { Ok(None) }
    }

    /// Fails with the name of the first that is missing.
    pub fn require(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| self.find(name).map(drop))
    }

    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// The numbers of a small f32 tensor, for what is folded into the plan itself.
    pub fn optional_f32s(&mut self, name: &str, len: usize) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = self.gguf.tensor(name) else { return Ok(None) };
        if tensor.shape.iter().product::<u64>() != len as u64 {
            return Err(self.misshapen(tensor, &format!("[{len}]")));
        }
        self.check_readable(tensor)?;
        self.folded.push(name.to_string());
        let mut out = vec![0.0; len];
        crate::quant::dequantize(tensor.ty, self.gguf.bytes(tensor), &mut out);
        Ok(Some(out))
    }

    pub fn error(&self, what: &str) -> Error {
        Error::model(self.gguf.name(), what)
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    fn find(&self, name: &str) -> Result<TensorInfo> {
        self.gguf.tensor(name).cloned().ok_or_else(|| {
            let hint =
                if self.gguf.tensors().is_empty() { " (the file holds a vocabulary only)" } else { "" };
            self.error(&format!("tensor `{name}` is missing{hint}: architecture `{}` needs it", self.arch))
        })
    }

    fn add(&mut self, tensor: TensorInfo, rows: usize, cols: usize) -> Result<WeightId> {
        self.check_readable(&tensor)?;
        self.weights.push(WeightInfo { tensor, rows, cols });
        Ok(WeightId(self.weights.len() as u32 - 1))
    }

    fn check_readable(&self, tensor: &TensorInfo) -> Result<()> {
        if tensor.ty.readable() {
            return Ok(());
        }
        Err(self.error(&format!(
            "tensor `{}` is of type {}, which cannot be read yet: convert the file to Q4_K_M, Q8_0 or F16",
            tensor.name, tensor.ty
        )))
    }

    fn misshapen(&self, tensor: &TensorInfo, wanted: &str) -> Error {
        self.error(&format!("tensor `{}` has shape {:?}, it must be {wanted}", tensor.name, tensor.shape))
    }

    fn wrong(&self, name: &str, found: usize, wanted: &str) -> Error {
        self.error(&format!("`{}` is {found}; it must be {wanted}", self.key(name)))
    }
}
