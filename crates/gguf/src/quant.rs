//! Block formats of GGUF tensors, and their scalar dequantization. They are in the package of the kernels.

pub use spec_run_kernels::quant::{
    F16, GgmlType, blocks, dequantize, grids, groups, iq4_nl, quantize, rounding,
};
