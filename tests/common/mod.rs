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
pub mod samplers;
#[cfg(all(feature = "cli", feature = "server"))]
pub mod server;
#[cfg(feature = "constraints")]
pub mod silent_tokens;

use std::{
    process::{Command, Output},
    sync::{Arc, OnceLock},
};

use child::Start;
use spec_run::{
    Batch, Context, ContextConfig, Gguf, Model, embedded,
    gguf::{TensorInfo, Writer},
    quant::{GgmlType, dequantize, quantize},
};
pub use spec_run_fixtures::fixture;

pub fn load(path: &std::path::Path) -> Arc<Model> {
    Arc::new(Model::load(Arc::new(Gguf::open(path).unwrap())).unwrap())
}

/// The same model with its tensors in other types.
pub fn retyped(model: &Model, ty: impl Fn(&TensorInfo) -> GgmlType) -> Arc<Model> {
    rewritten(model, |_| {}, ty)
}

/// The same with other metadata, too.
pub fn rewritten(
    model: &Model,
    edit: impl FnOnce(&mut Writer),
    ty: impl Fn(&TensorInfo) -> GgmlType,
) -> Arc<Model> {
    load_file(changed(model, edit, ty, |_, _| {}))
}

/// The same with other numbers.
pub fn reweighted(model: &Model, numbers: impl Fn(&TensorInfo, &mut [f32])) -> Arc<Model> {
    load_file(changed(model, |_| {}, |tensor| tensor.ty, numbers))
}

fn load_file(file: Gguf) -> Arc<Model> {
    Arc::new(Model::load(Arc::new(file)).unwrap())
}

/// A file with other metadata, types and numbers.
pub fn changed(
    model: &Model,
    edit: impl FnOnce(&mut Writer),
    ty: impl Fn(&TensorInfo) -> GgmlType,
    change: impl Fn(&TensorInfo, &mut [f32]),
) -> Gguf {
    let mut writer = Writer::new();
    for (key, value) in model.gguf.metadata().iter() {
        writer.set(key, value.clone());
    }
    edit(&mut writer);
    let tensors = model.gguf.tensors();
    for tensor in tensors {
        writer.tensor(&tensor.name, ty(tensor), &tensor.shape);
    }
    let mut bytes = Vec::new();
    writer
        .write(&mut bytes, |i, out| {
            let tensor = &tensors[i];
            let mut numbers = vec![0.0; tensor.shape.iter().product::<u64>() as usize];
            dequantize(tensor.ty, model.gguf.bytes(tensor), &mut numbers);
            change(tensor, &mut numbers);
            let mut bytes = Vec::new();
            quantize(ty(tensor), &numbers, &mut bytes).expect("a type that can be written");
            out.write(&bytes)
        })
        .unwrap();
    Gguf::from_bytes("retyped", bytes).unwrap()
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
        let mut batch = Batch::new();
        for (pos, &token) in (row..).zip(part) {
            batch.push(token, pos as u32, 0, true);
        }
        context.decode(&batch).unwrap();
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

/// The logits after each of `tokens`, all in one batch on an empty sequence.
pub fn all_logits(context: &mut Context, tokens: &[u32]) -> Vec<Vec<u32>> {
    context.remove(0);
    let mut batch = Batch::new();
    for (pos, &token) in tokens.iter().enumerate() {
        batch.push(token, pos as u32, 0, true);
    }
    context.decode(&batch).unwrap();
    (0..tokens.len()).map(|i| bits(context.logits(i))).collect()
}

/// The program, from outside.
pub fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spec-run")).args(args).ended()
}

pub fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
