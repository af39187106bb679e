//! What the integration tests share: the fixtures outside the repository and small models made on the spot.
#![allow(dead_code)]

pub mod child;
pub mod covering;
pub mod embeddings;
pub mod families;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod in_floats;
pub mod lora;
pub mod mtp;
pub mod noise;
pub mod nvfp4;
pub mod parts;
pub mod program;
pub mod samplers;
#[cfg(all(feature = "cli", feature = "server"))]
pub mod server;
#[cfg(feature = "constraints")]
pub mod silent_tokens;

use std::{
    iter::zip,
    sync::{Arc, OnceLock},
};

use parts::Parts;
use spec_run::{
    Batch, Context, ContextConfig, Gguf, Model, RunLayers, embedded, gguf::TensorInfo, quant::GgmlType,
};
pub use spec_run_fixtures::fixture;

pub fn load(path: &std::path::Path) -> Arc<Model> {
    Arc::new(Model::load(Arc::new(Gguf::open(path).unwrap())).unwrap())
}

/// The same model with its tensors in other types.
pub fn retyped(model: &Model, ty: impl Fn(&TensorInfo) -> GgmlType) -> Arc<Model> {
    let mut parts = Parts::of(&model.gguf);
    for (part, tensor) in zip(&mut parts.tensors, model.gguf.tensors()) {
        *part = part.with_numbers(ty(tensor), &part.numbers());
    }
    parts.model("retyped")
}

/// The same with other numbers.
pub fn reweighted(model: &Model, change: impl Fn(&TensorInfo, &mut [f32])) -> Arc<Model> {
    let mut parts = Parts::of(&model.gguf);
    for (part, tensor) in zip(&mut parts.tensors, model.gguf.tensors()) {
        let mut numbers = part.numbers();
        change(tensor, &mut numbers);
        *part = part.with_numbers(part.ty, &numbers);
    }
    parts.model("reweighted")
}

/// A model of five layers, for what takes many passes and depends on no model.
pub fn five_layers() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = fixture("five_layers", "models/stories260K.gguf").expect("the archive has it");
        path.display().to_string()
    })
}

pub fn embedded_model() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    MODEL.get_or_init(|| Arc::new(Model::load(Arc::new(embedded::open().unwrap())).unwrap())).clone()
}

pub fn context(model: &Arc<Model>, edit: impl FnOnce(&mut ContextConfig)) -> Context {
    let mut config = ContextConfig { n_ctx: 512, ..ContextConfig::default() };
    edit(&mut config);
    Context::new(model.clone(), &config).unwrap()
}

/// A text in batches of so many rows: each has the bits that are expected of it.
#[track_caller]
pub fn same_in_batches(context: &mut Context, text: &[u32], size: usize, expected: &[Vec<u32>], name: &str) {
    same_in_batches_behind(context, 0, text, size, expected, name);
}

/// The same behind so many tokens that are evaluated at once.
#[track_caller]
pub fn same_in_batches_behind(
    context: &mut Context,
    at_once: usize,
    text: &[u32],
    size: usize,
    expected: &[Vec<u32>],
    name: &str,
) {
    context.remove(0);
    let parts = std::iter::once(&text[..at_once]).chain(text[at_once..].chunks(size));
    let mut row = 0;
    for part in parts.filter(|part| !part.is_empty()) {
        context.decode(&with_logits(part, row as u32)).unwrap();
        for j in 0..part.len() {
            assert!(bits(context.logits(j)) == expected[row], "{name}: row {row}, batches of {size}");
            row += 1;
        }
    }
    assert_eq!(row, text.len());
}

/// Token ids that mean nothing, different for each seed.
pub fn tokens(n: usize, seed: u64, n_vocab: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n_vocab as u64) as u32
        })
        .collect()
}

pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Tokens from a position on, each with its logits.
pub fn with_logits(tokens: &[u32], pos: u32) -> Batch {
    let mut batch = Batch::prompt(tokens, pos, 0);
    batch.rows.iter_mut().for_each(|row| row.logits = true);
    batch
}

/// The logits after each of `tokens`, all in one batch on an empty sequence.
pub fn all_logits(context: &mut Context, tokens: &[u32]) -> Vec<Vec<u32>> {
    all_logits_of(context, &with_logits(tokens, 0))
}

/// The same under a mask.
pub fn masked_logits(context: &mut Context, tokens: &[u32], mask: &RunLayers) -> Vec<Vec<u32>> {
    all_logits_of(context, &with_logits(tokens, 0).with_layers(mask.clone()))
}

fn all_logits_of(context: &mut Context, batch: &Batch) -> Vec<Vec<u32>> {
    context.remove(0);
    context.decode(batch).unwrap();
    (0..batch.rows.len()).map(|i| bits(context.logits(i))).collect()
}

/// All layers by their high planes.
pub fn coarse(n_layer: usize) -> RunLayers {
    (0..n_layer).fold(RunLayers::all(n_layer), |mask, l| mask.coarse_attn(l).coarse_mlp(l))
}
