//! Block formats of GGUF tensors, and their scalar dequantization. They are in the package of the kernels.

pub(crate) use spec_run_kernels::quant::{Block, blocks, iq4_nl, rounding};
pub use spec_run_kernels::quant::{F16, GgmlType, dequantize, quantize};
#[cfg(feature = "gpu")]
pub(crate) use spec_run_kernels::quant::{grids, groups};
