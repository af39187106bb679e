//! Vocabularies for tests: fixtures from outside the repository, and small ones made by hand.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::PathBuf;

use spec_run::{Gguf, Result, Tokenizer};

/// The path of a fixture that CI does without, or of the same file in the source of llama.cpp.
pub fn optional_fixture(name: &str, in_llama_cpp: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures").join(name);
    let source = std::env::var_os("SPEC_RUN_LLAMA_CPP").map(PathBuf::from);
    let found = [Some(path), source.map(|source| source.join(in_llama_cpp))];
    let found = found.into_iter().flatten().find(|path| path.exists());
    if found.is_none() {
        eprintln!(
            "NOT RUN: {name}: not in ../shared/fixtures, and SPEC_RUN_LLAMA_CPP names no source of llama.cpp"
        );
    }
    found
}

pub fn open(path: &std::path::Path) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap()
}

/// A GGUF without tensors, written key by key.
#[derive(Clone, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    count: u64,
}

impl Keys {
    pub fn str(self, key: &str, value: &str) -> Self {
        self.key(key, 8).string(value)
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.key(key, 4).raw(&value.to_le_bytes())
    }

    pub fn bool(self, key: &str, value: bool) -> Self {
        self.key(key, 7).raw(&[value.into()])
    }

    pub fn strings<S: AsRef<str>>(self, key: &str, values: &[S]) -> Self {
        let array = self.key(key, 9).array(8, values.len());
        values.iter().fold(array, |array, value| array.string(value.as_ref()))
    }

    pub fn f32s(self, key: &str, values: &[f32]) -> Self {
        let array = self.key(key, 9).array(6, values.len());
        values.iter().fold(array, |array, value| array.raw(&value.to_le_bytes()))
    }

    pub fn i32s(self, key: &str, values: &[i32]) -> Self {
        let array = self.key(key, 9).array(5, values.len());
        values.iter().fold(array, |array, value| array.raw(&value.to_le_bytes()))
    }

    pub fn gguf(&self) -> Gguf {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        file.extend(self.count.to_le_bytes());
        file.extend(&self.bytes);
        Gguf::from_bytes("test", file).unwrap()
    }

    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Tokenizer::from_gguf(&self.gguf())
    }

    fn key(mut self, key: &str, value_type: u32) -> Self {
        self.count += 1;
        self.string(key).raw(&value_type.to_le_bytes())
    }

    fn array(self, element_type: u32, len: usize) -> Self {
        self.raw(&element_type.to_le_bytes()).raw(&(len as u64).to_le_bytes())
    }

    fn string(self, value: &str) -> Self {
        self.raw(&(value.len() as u64).to_le_bytes()).raw(value.as_bytes())
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }
}
