//! A trained model at a larger size: every matrix is padded with zeros to K times the width, and what it computes
//! stays the same. So a draft's acceptance is that of the trained model, and its cost that of a large one.
//!
//! The residual stream gets K-1 times as many zeros behind its numbers, and no padded row writes there. Its mean of
//! squares falls by K, so a norm's epsilon is divided by K and its weight by √K. Heads keep their size; the new ones
//! see zeros, give zeros and are read by zeros. Blocks of quantized weights are copied as they are, beside blocks of
//! zeros, so nothing is rounded anew; with K a power of 4 not even in the norms.

use std::{io::Write, ops::ControlFlow};

use super::uniform::Uniform;
use crate::{
    Error, Gguf, Model, Result,
    gguf::{Sink, TensorInfo, Writer, interrupted},
    plan::{AttnSpec, Norm, Op, WeightId},
    quant::GgmlType,
};

/// Far more than fits any disk.
const MOST: u64 = 64;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// How a tensor grows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Growth {
    /// Not at all.
    None,
    /// Its rows get longer: embeddings, head, biases.
    Rows,
    /// Longer, and divided by √K.
    Norm,
    /// Longer rows, and more of them.
    Both,
}

/// A file that is planned to the last byte and not yet written.
pub struct Widened<'a> {
    writer: Writer,
    gguf: &'a Gguf,
    factor: u64,
    /// In the order of the file, with their new bytes.
    tensors: Vec<(&'a TensorInfo, Growth, u64)>,
}

impl<'a> Widened<'a> {
    pub fn plan(model: &'a Model, factor: u64) -> Result<Self> {
        if !(2..=MOST).contains(&factor) {
            return Err(Error::Usage(format!("`factor` {factor}: give 2 to {MOST}")));
        }
        let gguf = &*model.gguf;
        let growth = growths(model)?;
        let mut writer = Writer::new();
        metadata(model, factor, &mut writer)?;
        let mut tensors = Vec::new();
        for tensor in gguf.tensors() {
            let growth = growth.iter().find(|(name, _)| *name == tensor.name).map_or(Growth::None, |g| g.1);
            let mut shape = tensor.shape.clone();
            let grown = match growth {
                Growth::None => 0,
                Growth::Rows | Growth::Norm => 1,
                Growth::Both => 2,
            };
            shape.iter_mut().take(grown).for_each(|dim| *dim *= factor);
            let ty = if growth == Growth::Norm { GgmlType::F32 } else { tensor.ty };
            writer.tensor(&tensor.name, ty, &shape);
            let elements: u64 = shape.iter().product();
            tensors.push((tensor, growth, elements / ty.block_len() as u64 * ty.block_bytes() as u64));
        }
        Ok(Widened { writer, gguf, factor, tensors })
    }

    /// Of all tensors together; metadata and padding come on top.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.2).sum()
    }

    /// `progress` hears how many bytes of tensors are written; where it breaks, the result is an error of kind
    /// `Interrupted`.
    pub fn write(&self, out: impl Write, mut progress: impl FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        let mut written = 0;
        self.writer.write(out, |i, sink| {
            let (tensor, growth, bytes) = self.tensors[i];
            self.write_tensor(tensor, growth, sink)?;
            written += bytes;
            match progress(written) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(interrupted()),
            }
        })
    }

    fn write_tensor(&self, tensor: &TensorInfo, growth: Growth, sink: &mut Sink) -> Result<()> {
        let bytes = self.gguf.bytes(tensor);
        match growth {
            Growth::None => return sink.write(bytes),
            Growth::Norm => {
                let mut weights = vec![0.0f32; tensor.elements() as usize];
                crate::quant::dequantize(tensor.ty, bytes, &mut weights);
                let scale = (self.factor as f32).sqrt();
                for weight in weights {
                    sink.write(&(weight / scale).to_le_bytes())?;
                }
            }
            Growth::Rows | Growth::Both => {
                let row_bytes = (bytes.len() as u64 / (tensor.elements() / tensor.shape[0])) as usize;
                for row in bytes.chunks_exact(row_bytes) {
                    sink.write(row)?;
                    zeros(sink, (self.factor - 1) * row_bytes as u64)?;
                }
            }
        }
        zeros(sink, sink.left())
    }
}

/// In every format that we read, a block of zero bytes is a block of zeros: its scale is zero.
fn zeros(sink: &mut Sink, mut count: u64) -> Result<()> {
    while count > 0 {
        let piece = count.min(ZEROS.len() as u64);
        sink.write(&ZEROS[..piece as usize])?;
        count -= piece;
    }
    Ok(())
}

fn uniform(model: &Model) -> Result<Uniform> {
    Uniform::of(&model.plan).map_err(|what| {
        Error::model(
            model.gguf.name(),
            format!("a model with {what} cannot be widened: use a llama or qwen2"),
        )
    })
}

fn growths(model: &Model) -> Result<Vec<(&str, Growth)>> {
    uniform(model)?;
    let mut out = Vec::new();
    let mut grow = |id: WeightId, growth| out.push((model.weight(id).tensor.name.as_str(), growth));
    for op in model.plan.ops() {
        match *op {
            Op::Embed { table, .. } => grow(table, Growth::Rows),
            Op::Norm { norm, .. } => norm.weight.into_iter().for_each(|weight| grow(weight, Growth::Norm)),
            Op::MatMul { weight, bias, .. } => {
                grow(weight, Growth::Both);
                if let Some(bias) = bias {
                    grow(bias, Growth::Rows);
                }
            }
            Op::Store(id) if !has_head_norms(model.plan.attention(id)) => {}
            Op::Attend(_) => {}
            Op::Store(_) => {
                return Err(Error::model(
                    model.gguf.name(),
                    format!(
                        "the heads of `{}` have norms of their own, whose epsilon would have to stay: use a llama or qwen2",
                        model.arch
                    ),
                ));
            }
            Op::Gate { gate, up, .. } => {
                for linear in [Some(gate), up].into_iter().flatten() {
                    grow(linear.weight, Growth::Both);
                }
            }
            Op::Head { norm, weight, .. } => {
                norm.weight.into_iter().for_each(|weight| grow(weight, Growth::Norm));
                grow(weight, Growth::Rows);
            }
            Op::Multiply { .. }
            | Op::Add { .. }
            | Op::Take { .. }
            | Op::PerHead { .. }
            | Op::Scale { .. }
            | Op::Weigh { .. }
            | Op::Convolve(_)
            | Op::Scan(_)
            | Op::Choose(_)
            | Op::ExpertsGate(_)
            | Op::ExpertsDown(_)
            | Op::ExpertsSum(_) => unreachable!("not in a uniform plan"),
        }
    }
    Ok(out)
}

fn has_head_norms(spec: &AttnSpec) -> bool {
    spec.q_norm.or(spec.k_norm).is_some()
}

fn metadata(model: &Model, factor: u64, writer: &mut Writer) -> Result<()> {
    let (arch, dims) = (&model.arch, uniform(model)?);
    let skipped = |key: &str| key.starts_with("split.");
    for (key, value) in model.gguf.metadata().iter().filter(|(key, _)| !skipped(key)) {
        writer.set(key, value.clone());
    }
    let sizes = [
        ("embedding_length", dims.dim),
        ("feed_forward_length", dims.ffn),
        ("attention.head_count", dims.n_head),
        ("attention.head_count_kv", dims.n_kv_head),
    ];
    for (name, size) in sizes {
        let wide = u32::try_from(size as u64 * factor).ok().filter(|&n| n <= i32::MAX as u32);
        let Some(wide) = wide else {
            return Err(Error::Usage(format!("`factor` {factor}: `{arch}.{name}` would be beyond 2^31")));
        };
        writer.set(&format!("{arch}.{name}"), wide);
    }
    let Some(Op::Head { norm: Norm { eps, .. }, .. }) = model.plan.head else {
        unreachable!("a plan ends with its head")
    };
    writer
        .set(&format!("{arch}.attention.layer_norm_rms_epsilon"), eps / factor as f32)
        .set("general.name", format!("{} widened {factor} times", model.name))
        .set("spec_run.widened", factor as u32);
    Ok(())
}
