//! The embedded model as another crate's parser sees it.

use std::{fs::File, io::BufReader};

use gguf_rs::{ByteOrder, GGUFContainer};
use serde_json::json;
use spec_run::{Gguf, gguf::Value};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories13m-q8_0.gguf");

/// As gguf-rs turns values into JSON.
fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::F32(x) => json!(x),
        Value::F64(x) => json!(x),
        Value::Bool(x) => json!(x),
        Value::String(x) => json!(x),
        Value::Array(array) => array.iter().map(|value| as_json(&value)).collect(),
        number => json!(number.integer()),
    }
}

#[test]
fn gguf_rs_sees_the_same_model() {
    // It skips the magic only when it opens a file itself, which it then reads byte by byte.
    let mut file = BufReader::with_capacity(1 << 20, File::open(MODEL).unwrap());
    std::io::Read::read_exact(&mut file, &mut [0; 4]).unwrap();
    let theirs = GGUFContainer::new(ByteOrder::LE, Box::new(file), u64::MAX).decode().unwrap();
    let ours = Gguf::open(MODEL.as_ref()).unwrap();

    let mut keys: Vec<&str> = ours.metadata().iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert_eq!(keys, theirs.metadata().keys().collect::<Vec<_>>());
    for (key, value) in ours.metadata().iter() {
        assert_eq!(as_json(value), theirs.metadata()[key], "{key}");
    }

    assert_eq!(ours.tensors().len(), theirs.tensors().len());
    for (a, b) in ours.tensors().iter().zip(theirs.tensors()) {
        assert_eq!(a.name, b.name);
        assert_eq!(a.ty as u32, b.kind, "{}", a.name);
        // It fills up to four dimensions with ones.
        let shape: Vec<u64> = b.shape.iter().copied().take(a.shape.len()).collect();
        assert_eq!(a.shape, shape, "{}", a.name);
        assert_eq!(a.offset, theirs.data_offset() + b.offset, "{}", a.name);
        assert_eq!(a.bytes, b.size, "{}", a.name);
    }
}
