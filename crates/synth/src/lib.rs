//! Writes models of any shape with random weights: what a model would do on a machine, before 40 GB of it are
//! downloaded; and models in which some sublayers matter as little as one likes, as a yardstick for drafting.
//!
//! A file depends on its recipe and the vocabulary alone: not on threads, machine or time.

// Printing panics where nobody listens; what there is to say goes to whoever asked.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod arch;
mod mix;
mod output;
mod presets;
mod shape;
mod tensors;
mod uniform;
mod vocabulary;
mod weights;
mod widen;

use std::{io::Write, ops::ControlFlow, sync::Arc};

use rayon::prelude::*;

pub use arch::Arch;
pub use mix::Mix;
pub use shape::{Experts, Latent, Recurrent, Shape};
pub use uniform::Uniform;
pub use widen::Widened;

use self::{tensors::Tensor, weights::PIECE};
use gguf::{Array, Value, Window, Writer};
use spec_run_gguf::{Error, Gguf, Result, gguf, hash, quant, rng};
use spec_run_model::{Model, plan};

/// Pieces made at a time. At most three such windows are in memory: 96 MiB of f32, less of all else.
const WINDOW: u64 = 64;

/// Sublayers whose output projections are scaled by `epsilon`: leaving them out changes the result as little
/// as one likes, and not at all with an `epsilon` of 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Skippable {
    pub attn: Vec<usize>,
    pub mlp: Vec<usize>,
    pub epsilon: f32,
}

#[derive(Clone, Debug)]
pub struct Recipe {
    /// `general.name`
    pub name: String,
    pub shape: Shape,
    pub mix: Mix,
    pub seed: u64,
    pub skippable: Skippable,
}

/// A file that is planned to the last byte and not yet written.
pub struct Synth {
    writer: Writer,
    tensors: Vec<Tensor>,
    seed: u64,
}

/// The number of tokens in a file's vocabulary.
pub fn vocabulary_size(source: &Gguf) -> Result<usize> {
    vocabulary::size_of(source)
}

impl Recipe {
    /// `vocabulary` is the file whose tokens come first.
    pub fn plan(&self, vocabulary: &Gguf) -> Result<Synth> {
        self.check()?;
        let mut writer = Writer::new();
        writer
            .set("general.architecture", self.shape.arch.name())
            .set("general.type", "model")
            .set("general.name", self.name.as_str())
            .set(
                "general.description",
                "Synthetic: random weights written by spec-run synth. It knows nothing.",
            )
            .set("general.quantization_version", 2u32)
            .set("general.file_type", self.mix.file_type());
        self.shape.describe_to(&mut writer);
        writer.set("spec_run.synthetic", true).set("spec_run.seed", self.seed);
        let lists = [("attn", &self.skippable.attn), ("mlp", &self.skippable.mlp)];
        for (part, layers) in lists.into_iter().filter(|(_, layers)| !layers.is_empty()) {
            let layers = layers.iter().map(|&layer| layer as u32).collect();
            writer.set(&format!("spec_run.skippable.{part}"), Value::Array(Array::U32(layers)));
            writer.set("spec_run.skippable.epsilon", self.skippable.epsilon);
        }
        vocabulary::write_to(&mut writer, vocabulary, self.shape.vocab as usize)?;
        let tensors = tensors::list(self);
        for tensor in &tensors {
            writer.tensor(&tensor.name, tensor.ty, &tensor.shape);
        }
        Ok(Synth { writer, tensors, seed: self.seed })
    }

    fn check(&self) -> Result<()> {
        self.shape.check()?;
        let epsilon = self.skippable.epsilon;
        if !(0.0..=1.0).contains(&epsilon) {
            return Err(Error::Usage(format!("`epsilon` {epsilon}: give 0 to 1")));
        }
        let layers = self.shape.layers as usize;
        match self.skippable.attn.iter().chain(&self.skippable.mlp).find(|&&layer| layer >= layers) {
            Some(layer) => {
                Err(Error::Usage(format!("`skippable` {layer}: there are layers 0 to {}", layers - 1)))
            }
            None => Ok(()),
        }
    }
}

impl Synth {
    /// Of all tensors together; metadata and padding come on top.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(Tensor::bytes).sum()
    }

    pub fn parameters(&self) -> u64 {
        self.tensors.iter().map(Tensor::elements).sum()
    }

    /// A model of this shape without its weights, which are all zero: enough to plan with. It is a temporary file of
    /// no more than its head, whatever its length says.
    pub fn outline(&self) -> Result<Model> {
        let (head, bytes) = self.writer.outline()?;
        let file = tempfile::NamedTempFile::new().map_err(|e| Error::io("a temporary file", e))?;
        let written = file.as_file().write_all(&head).and_then(|()| file.as_file().set_len(bytes));
        written.map_err(|e| Error::io(file.path(), e))?;
        Model::load(Arc::new(Gguf::open(file.path())?))
    }

    /// `threads` make weights (0: one per core) while this one writes. `progress` hears how many bytes of
    /// tensors are written; where it breaks, the result is an error of kind `Interrupted`.
    pub fn write(
        &self,
        out: impl Write,
        threads: usize,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        self.writer.write_made(out, threads, |send| _ = self.make(send), progress)
    }

    /// Sends all tensors in order, until nobody listens any more.
    fn make(&self, send: &dyn Fn(Result<Window>) -> ControlFlow<()>) -> ControlFlow<()> {
        for tensor in &self.tensors {
            let key = weights::tensor_key(self.seed, &tensor.name);
            let elements = tensor.elements();
            let pieces = elements.div_ceil(PIECE);
            for first in (0..pieces).step_by(WINDOW as usize) {
                let window = (first..pieces.min(first + WINDOW))
                    .into_par_iter()
                    .map(|index| {
                        let weights = PIECE.min(elements - index * PIECE) as usize;
                        weights::piece(key, index, weights, tensor.ty, tensor.fill)
                    })
                    .collect();
                send(Ok(window))?;
            }
        }
        ControlFlow::Continue(())
    }
}
