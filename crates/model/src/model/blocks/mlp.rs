//! The MLP: `Wdown · (activation(Wgate·h) ⊙ (Wup·h))`, or without the second factor.

use super::Residual;
use crate::{
    Result,
    model::Builder,
    plan::{Activation, Buf, Op},
};

#[derive(Clone, Copy, Debug)]
pub struct Mlp {
    pub input: Buf,
    pub width: usize,
    pub activation: Activation,
    pub gated: bool,
    pub residual: Residual,
}

impl Mlp {
    pub fn ops(&self, b: &mut Builder, layer: usize) -> Result<Vec<Op>> {
        let (gate, hidden) = self.gate(b, layer, ["ffn_gate", "ffn_up"])?;
        let last = b.linear(&format!("blk.{layer}.ffn_down"), b.dims().dim, self.width)?;
        let mut ops = vec![gate];
        ops.extend(self.residual.close(b, layer, last, hidden)?);
        Ok(ops)
    }

    /// The first products, by the names of their matrices, and the buffer that has what they let through.
    pub fn gate(&self, b: &mut Builder, layer: usize, names: [&str; 2]) -> Result<(Op, Buf)> {
        let [gate, up] = names.map(|part| format!("blk.{layer}.{part}"));
        let (dim, width) = (b.dims().dim, self.width);
        let dst = b.buffer("g", width)?;
        let (gate, up) = match self.gated {
            false => (b.linear(&up, width, dim)?, None),
            true if b.has(&format!("{gate}.weight")) => {
                (b.linear(&gate, width, dim)?, Some(b.linear(&up, width, dim)?))
            }
            // Both in one tensor, the gate first.
            true => (
                b.linear_rows(&up, 2 * width, dim, 0..width)?,
                Some(b.linear_rows(&up, 2 * width, dim, width..2 * width)?),
            ),
        };
        Ok((Op::Gate { gate, up, activation: self.activation, src: self.input, dst }, dst))
    }
}
