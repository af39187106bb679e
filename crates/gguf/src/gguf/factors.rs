//! What stands beside a weight of NVFP4: numbers that its products are multiplied by.

use super::{Gguf, TensorInfo};
use crate::{Error, Result, quant::GgmlType};

/// The names of what may belong to a tensor of NVFP4: the factors of its products, and those of activations in four bits, which
/// nothing here has.
pub fn beside(tensor: &TensorInfo) -> Option<[String; 2]> {
    let name = tensor.name.strip_suffix(".weight").filter(|_| tensor.ty == GgmlType::NVFP4)?;
    Some(["scale", "input_scale"].map(|end| format!("{name}.{end}")))
}

impl Gguf {
    /// By what the weights of a tensor are multiplied: a number for each of its matrices.
    pub fn factors(&self, tensor: &TensorInfo) -> Result<Vec<f32>> {
        let matrices = tensor.shape.iter().skip(2).product::<u64>();
        let Some(scale) = beside(tensor).and_then(|[scale, _]| self.tensor(&scale)) else {
            return Ok(vec![1.0; matrices as usize]);
        };
        let fail = |what: String| Err(Error::model(self.name(), format!("tensor `{}` {what}", scale.name)));
        if scale.ty != GgmlType::F32 || scale.elements() != matrices {
            return fail(format!(
                "is of type {} and shape {:?}: beside `{}` it must be F32 and [{matrices}]",
                scale.ty, scale.shape, tensor.name
            ));
        }
        let mut factors = vec![0.0; matrices as usize];
        crate::quant::dequantize(scale.ty, self.bytes(scale), &mut factors);
        match factors.iter().find(|factor| !factor.is_finite()) {
            Some(factor) => fail(format!("holds {factor}: it must hold finite numbers")),
            None => Ok(factors),
        }
    }
}
