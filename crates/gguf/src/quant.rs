//! Block formats of GGUF tensors, and their scalar dequantization. They are in the package of the kernels.

pub use spec_run_kernels::quant::{
    Block, F16, GgmlType, Weights, blocks, dequantize, grids, iq4_nl, quantize, rounding,
};
