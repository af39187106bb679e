//! From an opened GGUF to a [`Plan`]: the architecture's file names the tensors, the builder checks each one
//! against the shape that it must have.

mod arch;
mod blocks;
mod builder;
mod drafting;
mod rope;
mod tail;

use std::{collections::BTreeMap, path::Path, sync::Arc};

pub use builder::Builder;
use builder::Built;
pub use drafting::{Block, DraftsFor, Markov};
pub use rope::{RopeChange, RopeScaling};
pub use tail::Pooling;
pub use tail::{Classifier, Dense, HeadActivation, Tail};

use crate::{
    Error, Gguf, Result,
    gguf::{NewTensor, TensorInfo},
    mask::skips::ModelId,
    plan::{Buf, EmbedBy, ExpertMatrices, Mtp, Op, Plan, WeightId},
    quant::GgmlType,
    quoted::Quoted,
};

/// The tensor whose rows tokens become.
pub const TOKEN_TABLE: &str = "token_embd.weight";

/// A matrix `[rows, cols]`, or a vector as one row: a tensor, or some rows of one.
#[derive(Clone, Debug)]
pub struct WeightInfo {
    pub tensor: TensorInfo,
    /// Where it begins in the tensor's bytes.
    pub begin: u64,
    pub bytes: u64,
    pub rows: usize,
    pub cols: usize,
    /// By what the numbers of the tensor's blocks are multiplied.
    pub factor: f32,
}

impl WeightInfo {
    pub fn ty(&self) -> GgmlType {
        self.tensor.ty
    }

    pub fn row_bytes(&self) -> usize {
        self.bytes as usize / self.rows
    }

    /// Where its rows lie in the tensor's bytes.
    pub fn range_of(&self, rows: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let (begin, row) = (self.begin as usize, self.row_bytes());
        begin + rows.start * row..begin + rows.end * row
    }
}

/// A model that can be run: its plan and where its weights lie in the file.
#[derive(Clone)]
pub struct Model {
    /// The file.
    pub gguf: Arc<Gguf>,
    /// Its name, from the file.
    pub name: String,
    /// Its architecture, as `llama`.
    pub arch: String,
    /// The context length that the model was trained for.
    pub n_ctx_train: u32,
    /// Tensors of heads that were trained to predict further tokens; they are left out.
    pub n_further: usize,
    /// What holds of its rotations in place of what its file says.
    pub rope_change: RopeChange,
    pub weights: Vec<WeightInfo>,
    #[doc(hidden)]
    pub plan: Plan,
    /// What contexts may have beside the plan.
    mtp: Option<Mtp>,
    pub tail: Tail,
    drafts_for: Option<DraftsFor>,
}

impl Model {
    /// The model of a file, or of the first of several.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::load(Arc::new(Gguf::open(path)?))?))
    }

    /// The model that is part of this build, if it has one.
    pub fn embedded() -> Result<Arc<Self>> {
        Ok(Arc::new(Self::load(Arc::new(crate::embedded::open()?))?))
    }

    /// Finds the model's tensors and checks them.
    pub fn load(gguf: Arc<Gguf>) -> Result<Self> {
        Self::load_turning(gguf, &RopeChange::default())
    }

    /// The same with other rotations than the file's.
    pub fn load_turning(gguf: Arc<Gguf>, change: &RopeChange) -> Result<Self> {
        let meta = gguf.metadata();
        let arch = meta.str("general.architecture")?.ok_or_else(|| meta.missing("general.architecture"))?;
        if arch::find_head(arch).is_some() {
            let what = "a head that drafts for another model, and no model by itself: name it as that one's draft model";
            return Err(Error::model(gguf.name(), what));
        }
        let Some(build) = arch::find(arch) else {
            return Err(Error::model(
                gguf.name(),
                format!(
                    "architecture {} is not supported: its operations are not known here; the nearest name that is: `{}`",
                    Quoted(arch),
                    arch::nearest(arch)
                ),
            ));
        };
        let arch = arch.to_string();
        Self::built(gguf, &arch, build, change)
    }

    fn built(gguf: Arc<Gguf>, arch: &str, build: arch::Build, change: &RopeChange) -> Result<Self> {
        change.check()?;
        let name = gguf.model_name()?;
        let mut builder = Builder::new(&gguf, arch)?;
        builder.rope_change = *change;
        let body = build(&mut builder)?;
        let n_ctx_train = rope::trained_context(&builder)?;
        let Built { weights, plan, mtp, tail, n_further, drafts_for } = builder.finish(body)?;
        let (arch, rope_change) = (arch.to_string(), *change);
        Ok(Model {
            name,
            arch,
            n_ctx_train,
            n_further,
            rope_change,
            weights,
            plan,
            mtp,
            tail,
            drafts_for,
            gguf,
        })
    }

    /// The model as contexts of that length run it: some have rotary frequencies of their own for long ones.
    pub fn for_context(self: &Arc<Self>, n_ctx: usize) -> Arc<Self> {
        if !self.plan.ropes.iter().any(|rope| rope.is_beyond(n_ctx)) {
            return self.clone();
        }
        let mut model = Model::clone(self);
        for rope in model.plan.ropes.iter_mut().filter(|rope| rope.is_beyond(n_ctx)) {
            rope.freqs = rope.beyond.take().expect("it is beyond").1;
        }
        Arc::new(model)
    }

    /// The model with directions that are added to the stream behind some of its layers.
    pub fn steered(&self, directions: BTreeMap<usize, Vec<f32>>) -> Result<Self> {
        let first = self.weights.len();
        let layers: Vec<usize> = directions.keys().copied().collect();
        let tensor = |(layer, numbers): (usize, Vec<f32>)| NewTensor {
            name: format!("blk.{layer}.direction"),
            cols: numbers.len(),
            rows: 1,
            numbers,
        };
        let mut model = self.with_matrices(directions.into_iter().map(tensor).collect())?;
        for (n, layer) in layers.into_iter().enumerate() {
            let table = WeightId((first + n) as u32);
            let op = Op::Embed { table, by: EmbedBy::First, dst: Buf::X, scale: 1.0, add: true };
            let ops = &mut model.plan.layers[layer];
            if ops.mlp.is_empty() { ops.attn.push(op) } else { ops.mlp.push(op) }
        }
        Ok(model)
    }

    /// The model with more weights behind its own, for operations that its file has nothing of.
    pub fn with_matrices(&self, new: Vec<NewTensor>) -> Result<Self> {
        let first = self.gguf.tensors().len();
        let mut model = Model { gguf: Arc::new(self.gguf.with_tensors(new)?), ..self.clone() };
        for tensor in &model.gguf.tensors()[first..] {
            let (bytes, cols, rows) = (tensor.bytes, tensor.shape[0] as usize, tensor.shape[1] as usize);
            model.weights.push(WeightInfo {
                tensor: tensor.clone(),
                begin: 0,
                bytes,
                rows,
                cols,
                factor: 1.0,
            });
        }
        Ok(model)
    }

    /// Whether it has a head that was trained to predict one token more, which can be used here.
    pub fn has_mtp(&self) -> bool {
        self.mtp.is_some()
    }

    /// The model with that head, if it has one.
    pub fn with_mtp(&self) -> Self {
        let mut model = self.clone();
        model.plan.mtp.clone_from(&self.mtp);
        model
    }

    /// Whether it writes text: an encoder makes embeddings alone.
    pub fn writes_text(&self) -> bool {
        self.plan.head.is_some()
    }

    /// Whether a token sees what comes behind it, so that a text is evaluated in one pass.
    pub fn sees_both_ways(&self) -> bool {
        self.plan.bidirectional
    }

    /// How the file says that a text's rows become its embedding, if it does.
    pub fn pooling(&self) -> Option<Pooling> {
        self.tail.pooling
    }

    /// The number of layers.
    pub fn n_layer(&self) -> usize {
        self.plan.dims.n_layer
    }

    /// The number of tokens that have logits.
    pub fn n_vocab(&self) -> usize {
        self.plan.dims.n_vocab
    }

    pub fn weight(&self, id: WeightId) -> &WeightInfo {
        &self.weights[id.0 as usize]
    }

    pub fn weight_bytes(&self, id: WeightId) -> &[u8] {
        let weight = self.weight(id);
        &self.gguf.bytes(&weight.tensor)[weight.range_of(0..weight.rows)]
    }

    /// The numbers of a row of a matrix.
    pub fn weight_row(&self, id: WeightId, row: usize, out: &mut [f32]) {
        let weight = self.weight(id);
        let bytes = weight.row_bytes();
        crate::quant::dequantize(weight.ty(), &self.weight_bytes(id)[row * bytes..][..bytes], out);
        if weight.factor != 1.0 {
            out.iter_mut().for_each(|x| *x *= weight.factor);
        }
    }

    /// Whether its rows are what tokens become.
    pub fn is_token_table(&self, id: WeightId) -> bool {
        self.weight(id).tensor.name == TOKEN_TABLE
    }

    /// A norm's weight or a bias, as numbers.
    pub fn vector(&self, id: WeightId) -> Vec<f32> {
        self.numbers(self.weight(id))
    }

    /// All numbers of a weight.
    pub fn numbers(&self, weight: &WeightInfo) -> Vec<f32> {
        let mut out = vec![0.0; weight.rows * weight.cols];
        let bytes = &self.gguf.bytes(&weight.tensor)[weight.range_of(0..weight.rows)];
        crate::quant::dequantize(weight.ty(), bytes, &mut out);
        out.iter_mut().filter(|_| weight.factor != 1.0).for_each(|x| *x *= weight.factor);
        out
    }

    /// What a skips file says of the model that it is for.
    pub fn id(&self) -> ModelId {
        ModelId {
            name: self.name.clone(),
            arch: self.arch.clone(),
            n_layer: self.plan.dims.n_layer,
            fingerprint: self.fingerprint(),
        }
    }

    /// How many experts a token goes through in each layer that has some.
    pub fn experts_used(&self) -> Option<usize> {
        self.plan.experts.iter().map(|moe| moe.n_used).max()
    }

    /// See [`Gguf::fingerprint`].
    pub fn fingerprint(&self) -> String {
        self.gguf.fingerprint()
    }

    /// Bytes that one token's pass reads for an operation, where it reads `matrix` of each matrix; of a table it
    /// reads one row, and of experts as many as it uses, or at most `experts`.
    pub fn bytes_read(&self, op: &Op, experts: Option<usize>, matrix: impl Fn(WeightId) -> u64) -> u64 {
        let operands = self.plan.operands(op);
        let row: Option<u64> = operands.table.map(|table| self.weight(table).row_bytes() as u64);
        let matrices: u64 = operands.matrices().map(|(id, _)| matrix(id)).sum();
        let used = |m: ExpertMatrices| m.choice.at_most(experts).used as u64;
        let of_heads: u64 = operands.heads().map(|(id, _)| matrix(id)).sum();
        let of_experts: u64 = operands.experts().map(|m| used(m) * matrix(m.first)).sum();
        let vectors: u64 = operands.vectors().map(|id| self.weight(id).bytes).sum();
        // Biases of experts lie one after the other, too.
        let vectors = match operands.experts().next() {
            Some(m) => vectors * used(m) / m.choice.of as u64,
            None => vectors,
        };
        row.unwrap_or(0) + matrices + of_heads + of_experts + vectors
    }

    /// Bytes of all weights of an operation.
    pub fn bytes_of(&self, op: &Op) -> u64 {
        self.plan.operands(op).weights().map(|id| self.weight(id).bytes).sum()
    }
}
