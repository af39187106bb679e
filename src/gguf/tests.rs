//! Reading real files: what the gguf package for Python says is in them.

use std::path::{Path, PathBuf};

use super::*;
use crate::embedded;

/// A file outside the repository, if it is there.
pub(super) fn fixture(test: &str, file: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures").join(file);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{} is missing", path.display());
    println!("SKIPPED {test}: no {}", path.display());
    None
}

#[test]
#[cfg(feature = "embedded-model")]
fn the_embedded_model_is_as_its_card_says() {
    let gguf = embedded::open().unwrap();
    let m = gguf.metadata();
    assert_eq!(gguf.version(), 3);
    assert_eq!(m.str("general.architecture").unwrap(), Some("llama"));
    assert_eq!(m.u32("llama.block_count").unwrap(), Some(16));
    assert_eq!(m.u32("llama.embedding_length").unwrap(), Some(256));
    assert_eq!(m.strings("tokenizer.ggml.tokens").unwrap().unwrap().len(), 2048);
    let q = gguf.tensor("blk.15.attn_k.weight").unwrap();
    assert_eq!((q.ty, &q.shape[..], q.bytes), (GgmlType::Q8_0, &[256, 128][..], 128 * 8 * 34));
    assert_eq!(gguf.bytes(q).len(), 128 * 8 * 34);
    assert!(gguf.tensor("blk.16.attn_k.weight").is_none());
}

#[test]
fn a_vocabulary_without_tensors_opens() {
    let Some(path) = fixture("a_vocabulary_without_tensors_opens", "vocab/ggml-vocab-llama-bpe.gguf") else {
        return;
    };
    let gguf = Gguf::open(&path).unwrap();
    assert!(gguf.tensors().is_empty());
    let tokens = gguf.metadata().strings("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!((tokens.len(), tokens.get(0), tokens.get(128_256)), (128_256, Some("!"), None));
    assert_eq!(gguf.metadata().i32s("tokenizer.ggml.token_type").unwrap().unwrap().len(), 128_256);
}
