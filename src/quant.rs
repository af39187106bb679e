//! Block formats of GGUF tensors, and their scalar dequantization. They are in the package of the kernels.

pub use spec_run_kernels::quant::{F16, GgmlType, dequantize, quantize};
pub(crate) use spec_run_kernels::quant::{blocks, iq4_nl, rounding};
#[cfg(feature = "gpu")]
pub(crate) use spec_run_kernels::quant::{grids, groups};
