//! Tiny encoders and decoders with llama.cpp's embeddings (`tests/golden/embed`).

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;
use spec_run::{
    Context, ContextConfig, Embedder, Model,
    context::KvType,
    embed::{Embedding, Pooling},
};

use super::load;

pub struct Golden {
    pub texts: Vec<Vec<u32>>,
    models: Value,
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/embed").join(name)
}

pub fn golden() -> Golden {
    let json: Value = serde_json::from_slice(&std::fs::read(file("embeddings.json")).unwrap()).unwrap();
    Golden { texts: serde_json::from_value(json["texts"].clone()).unwrap(), models: json["models"].clone() }
}

impl Golden {
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.models.as_object().unwrap().keys()
    }

    /// The vectors that llama.cpp has for the first texts.
    pub fn vectors(&self, name: &str, pooling: Pooling) -> Option<Vec<Vec<Vec<f32>>>> {
        let found = &self.models[name][pooling.name()];
        (!found.is_null()).then(|| serde_json::from_value(found.clone()).unwrap())
    }
}

pub fn model(name: &str) -> Arc<Model> {
    load(&file(&format!("{name}.gguf")))
}

/// With keys and values that are stored as they are.
pub fn embedder(
    model: &Arc<Model>,
    pooling: Option<Pooling>,
    edit: impl FnOnce(&mut ContextConfig),
) -> Embedder {
    let mut config = ContextConfig {
        n_ctx: 512,
        key_type: KvType::F32,
        value_type: KvType::F32,
        threads: 2,
        ..ContextConfig::default()
    };
    edit(&mut config);
    Embedder::prepare(&mut config, model);
    Embedder::new(Context::new(model.clone(), &config).unwrap(), pooling).unwrap()
}

/// By how much numbers differ from llama.cpp's at most.
pub fn farthest(made: &[Embedding], expected: &[Vec<Vec<f32>>]) -> f32 {
    let mut worst = 0.0f32;
    for (made, expected) in made.iter().zip(expected) {
        assert_eq!(made.vectors.len(), expected.len());
        for (made, expected) in made.vectors.iter().zip(expected) {
            assert_eq!(made.len(), expected.len());
            let off = made.iter().zip(expected).map(|(a, b)| (a - b).abs());
            worst = off.fold(worst, |worst, off| if off.is_nan() { f32::INFINITY } else { worst.max(off) });
        }
    }
    worst
}

/// llama.cpp takes GELU from a table of half-precision numbers; in the others sums of 300 terms are rounded.
pub fn allowed(name: &str) -> f32 {
    if name.starts_with("qwen3") || name == "nomic-bert" { 1e-4 } else { 3e-3 }
}
