//! What is read and written: GGUF, blocks of weights, vocabularies, mask files, synthetic models.

#[path = "../common/mod.rs"]
mod common;
#[path = "../tokenizer_support/mod.rs"]
mod tokenizer_support;

mod gguf_crosscheck;
mod gguf_hostile;
mod gguf_shards;
mod masks_files;
mod quant_golden;
mod quant_k_bounds;
mod synth;
mod synth_widen;
mod tokenizer_fixtures;
mod tokenizer_rules;
