//! From a batch to logits, and from logits to a token: models, masks, the cache, the CPU kernels, samplers.

#[path = "../common/mod.rs"]
mod common;
#[path = "../weights/mod.rs"]
mod weights;

mod architectures;
mod conformance;
mod embeddings;
mod families;
mod forks;
mod kernel_parity;
mod kv;
mod lora;
mod masks;
mod mtp;
mod nvfp4;
mod out_of_core;
mod packed_parity;
mod placement;
mod resume;
mod rope;
mod run_layers;
mod same_bits;
mod sampler_chain;
mod sampler_draw;
mod sampler_golden;
mod saved;
mod shortlists;
mod taps;
mod tasks;
mod texts;
mod windows;
mod wrong_sizes;
