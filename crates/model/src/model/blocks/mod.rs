//! The pieces that decoders are made of, and the decoder that most of them are: a [`Decoder`] begins as a llama with the
//! file's sizes, an architecture changes what differs, and [`Decoder::build`] names the tensors.

mod attention;
mod decoder;
mod encoder;
mod experts;
mod latent;
mod mixers;
mod mlp;
mod mtp;

pub use attention::{Attention, HeadNorms, Heads};
pub use decoder::{Decoder, embed, head};
pub use encoder::Encoder;
pub use experts::{Experts, Shared};
pub use latent::Latent;
pub use mixers::{Mixer, Sizes as MixerSizes};
pub use mlp::Mlp;
pub use mtp::mtp;

use super::Builder;
use crate::{
    Result,
    plan::{Buf, Linear, Norm, NormKind, Op},
};

/// How what a sublayer gives comes back to the residual stream.
#[derive(Clone, Copy, Debug)]
pub struct Residual {
    /// A norm before the sum.
    pub norm: Option<ResidualNorm>,
    pub scale: f32,
}

#[derive(Clone, Copy, Debug)]
pub struct ResidualNorm {
    /// The last part of its tensors' name.
    pub name: &'static str,
    pub kind: NormKind,
    /// If not the model's.
    pub eps: Option<f32>,
}

impl Residual {
    pub const PLAIN: Residual = Residual { norm: None, scale: 1.0 };

    pub fn is_plain(&self) -> bool {
        self.norm.is_none() && self.scale == 1.0
    }

    /// What adds a sublayer's result, which lies in `src`, to the stream.
    pub fn ops(&self, b: &mut Builder, layer: usize, src: Buf) -> Result<Vec<Op>> {
        let mut ops = Vec::new();
        if let Some(ResidualNorm { name, kind, eps }) = self.norm {
            let mut norm = b.norm(kind, &format!("blk.{layer}.{name}"), b.dims().dim)?;
            norm.eps = eps.unwrap_or(norm.eps);
            let add = self.scale == 1.0;
            ops.push(whole_norm(norm, src, if add { Buf::X } else { src }, add));
        }
        if self.norm.is_none() || self.scale != 1.0 {
            ops.push(Op::Add { src, dst: Buf::X, scale: self.scale, gate: None });
        }
        Ok(ops)
    }

    /// The sublayer's last product, from `src`, and the sum.
    pub fn close(&self, b: &mut Builder, layer: usize, product: Linear, src: Buf) -> Result<Vec<Op>> {
        let Linear { weight, bias } = product;
        if self.is_plain() {
            return Ok(vec![Op::MatMul { weight, bias, src, dst: Buf::X, add: true }]);
        }
        let out = b.buffer("out", b.dims().dim)?;
        let mut ops = vec![Op::MatMul { weight, bias, src, dst: out, add: false }];
        ops.extend(self.ops(b, layer, out)?);
        Ok(ops)
    }
}

/// Of a whole row.
pub fn whole_norm(norm: Norm, src: Buf, dst: Buf, add: bool) -> Op {
    Op::Norm { norm, group: 0, src, dst, add }
}
