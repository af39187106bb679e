//! Models that people trained, held to numbers that other programs computed (`golden/`, whose README says how).
//!
//! `SPEC_RUN_REAL_MODELS` names the folder of the models. A test whose model is not there says `NOT RUN`, unless
//! `SPEC_RUN_REQUIRE_REAL` names the model: then the test fails.

#[path = "../common/mod.rs"]
mod common;

mod embeddings;
mod files;
mod numbers;
mod program;
mod templates;
#[cfg(unix)]
mod terminal;
mod texts;
mod tokens;

use std::path::{Path, PathBuf};

use serde_json::Value;
use spec_run::{Gguf, Tokenizer};

/// A model: its name in the goldens, and its file.
#[derive(Clone, Copy)]
struct Real {
    name: &'static str,
    file: &'static str,
}

const SMOLLM2: Real = Real { name: "smollm2", file: "SmolLM2-135M-Instruct.Q4_1.gguf" };
const GEMMA3: Real = Real { name: "gemma3", file: "gemma-3-270m-q4_k_m.gguf" };
const QWEN: Real = Real { name: "qwen2.5-coder", file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf" };
const MINILM: Real = Real { name: "minilm", file: "all-MiniLM-L6-v2.f32.gguf" };
/// Those that write text.
const ALL: [Real; 3] = [SMOLLM2, GEMMA3, QWEN];

impl Real {
    /// Where it lies; `None`, said on stderr, where it is not there and need not be.
    fn path(self, test: &str) -> Option<PathBuf> {
        let folder = std::env::var_os("SPEC_RUN_REAL_MODELS").map(PathBuf::from);
        let path = folder.map(|folder| folder.join(self.file)).filter(|path| path.exists());
        if path.is_none() {
            let reason = format!("SPEC_RUN_REAL_MODELS names no folder with {}", self.file);
            let required = std::env::var("SPEC_RUN_REQUIRE_REAL").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == self.name), "{test}: {reason}");
            eprintln!("NOT RUN: {test} on {}: {reason}", self.name);
        }
        path
    }
}

/// llama.cpp's server, which `SPEC_RUN_LLAMA_SERVER` names; `None`, said on stderr, where it is not there.
fn llama_server(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("SPEC_RUN_LLAMA_SERVER").map(PathBuf::from).filter(|path| path.exists());
    if path.is_none() {
        eprintln!("NOT RUN: {test}: SPEC_RUN_LLAMA_SERVER names no llama-server");
    }
    path
}

/// The models that are there, with their files.
fn models(test: &str, wanted: &[Real]) -> Vec<(Real, PathBuf)> {
    wanted.iter().filter_map(|&real| Some((real, real.path(test)?))).collect()
}

fn tokenizer(path: &Path) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap()
}

fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/golden").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}
