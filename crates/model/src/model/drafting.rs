//! Heads that others trained to draft for a model. A file has one by itself, and leaves out what the model has already.

use super::Model;
use crate::{Error, Gguf, Result, gguf::TensorInfo, plan::WeightId};

/// What such a head has to do with the model that it drafts for.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftsFor {
    /// It reads the rows as they come to these of the model's layers, ascending; the number of layers is behind the last.
    pub taps: Vec<usize>,
    /// How wide these rows are.
    pub dim: usize,
    /// The token of each logit, where there are logits of fewer tokens than the head reads.
    pub tokens: Option<Vec<u32>>,
    /// It drafts a block of tokens at once.
    pub block: Option<Block>,
}

/// Tokens that are drafted at once: the text's last one, and masks behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// The most of them together.
    pub size: usize,
    /// The token that stands for one which is not known yet.
    pub mask: u32,
    /// The row of the text's last token gives the first token of the draft. Without, the first mask's row does.
    pub from_last: bool,
    /// What it adds to logits for the token in front of them.
    pub markov: Option<Markov>,
}

/// Two matrices of a DSpark head. Their product has, for every pair of tokens, what the first adds to the second's logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Markov {
    /// `[tokens, rank]`
    pub of_token: WeightId,
    /// `[logits, rank]`
    pub to_logits: WeightId,
}

impl Block {
    /// The most tokens of a draft.
    pub fn most_drafted(&self) -> usize {
        self.size - usize::from(!self.from_last)
    }
}

impl Model {
    /// Whether a file has a head for another model and none itself.
    pub fn is_head(gguf: &Gguf) -> Result<bool> {
        Ok(gguf
            .metadata()
            .str("general.architecture")?
            .is_some_and(|arch| super::arch::find_head(arch).is_some()))
    }

    /// The head of a file, for a model. What the file has no tensor for is the model's.
    pub fn load_head(gguf: &Gguf, of: &Model) -> Result<Self> {
        let meta = gguf.metadata();
        let arch = meta.str("general.architecture")?.ok_or_else(|| meta.missing("general.architecture"))?;
        let Some(build) = super::arch::find_head(arch) else {
            return Err(Error::model(gguf.name(), "no head that drafts for another model"));
        };
        let table = of.gguf.tensor("token_embd.weight");
        let output = of.gguf.tensor("output.weight").or(table);
        let taken = [("token_embd.weight", table), ("output.weight", output)].into_iter().filter_map(
            |(name, tensor)| {
                tensor
                    .filter(|_| gguf.tensor(name).is_none())
                    .map(|tensor| TensorInfo { name: name.into(), ..tensor.clone() })
            },
        );
        let head = Self::built(
            gguf.with_tensors_of(&of.gguf, taken.collect())?.into(),
            arch,
            build,
            &of.rope_change,
        )?;
        head.check_fits(of)?;
        Ok(head)
    }

    fn check_fits(&self, of: &Model) -> Result<()> {
        let DraftsFor { taps, dim, .. } = self.drafts_for().expect("it is a head");
        let (n_layer, of_dim) = (of.n_layer(), of.plan.dims.dim);
        let what = if !of.plan.rests_between_layers() {
            "more goes from layer to layer there than one row of each token".to_string()
        } else if *dim != of_dim {
            format!("it reads rows of {dim} numbers, and these have {of_dim}")
        } else if taps.last().is_some_and(|&last| last > n_layer) {
            format!("it reads layers {taps:?}, and there are {n_layer}")
        } else if self.plan.n_tokens < of.plan.n_tokens {
            format!("it knows {} tokens, and there are {}", self.plan.n_tokens, of.plan.n_tokens)
        } else {
            return Ok(());
        };
        Err(Error::model(self.gguf.name(), format!("it cannot draft for {}: {what}", of.name)))
    }

    /// `None` for what is a model itself.
    pub fn drafts_for(&self) -> Option<&DraftsFor> {
        self.drafts_for.as_ref()
    }
}
