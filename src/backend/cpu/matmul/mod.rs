//! Row kernels.
