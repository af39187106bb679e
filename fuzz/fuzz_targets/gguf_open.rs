//! Arbitrary bytes as a GGUF: opening them, and reading all that an opened file offers, never panics.
//!
//! `cargo +nightly fuzz run gguf_open -- -max_total_time=60`

#![no_main]

use std::hint::black_box;

use libfuzzer_sys::fuzz_target;
use spec_run::{
    Gguf,
    gguf::{Array, Value},
};

fuzz_target!(|bytes: &[u8]| {
    let gguf = match Gguf::from_bytes("fuzz", bytes.to_vec()) {
        Ok(gguf) => gguf,
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            return;
        }
    };
    let metadata = gguf.metadata();
    for (key, value) in metadata.iter() {
        assert!(metadata.get(key).is_some());
        let _ = (metadata.u32(key), metadata.f32(key), metadata.str(key), metadata.i32s(key));
        if let Value::Array(Array::String(strings)) = value {
            assert!(strings.iter().enumerate().all(|(i, s)| strings.get(i) == Some(s)));
        }
    }
    for tensor in gguf.tensors() {
        assert!(gguf.tensor(&tensor.name).is_some());
        black_box(tensor.elements());
        black_box(gguf.bytes(tensor).iter().fold(0u8, |sum, b| sum.wrapping_add(*b)));
    }
});
