//! The key-value part of a GGUF: typed values, read by name with an error that says what was found instead.

use crate::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
    Array(Array),
}

/// Arrays keep their element type: a byte array costs a byte per element.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Many strings in one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strings {
    text: String,
    ends: Vec<u32>,
}

/// All keys of a file, in file order.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    file: String,
    entries: Vec<(String, Value)>,
}

/// Typed reads. A missing key is `None`; a key of another type is an error that names file, key, the type
/// found and the type wanted. Any integer type is taken for an integer if its value fits.
impl Metadata {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        let _ = key;
        todo!()
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        let _ = key;
        todo!()
    }

    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        let _ = key;
        todo!()
    }

    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        let _ = key;
        todo!()
    }

    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        let _ = key;
        todo!()
    }

    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>> {
        let _ = key;
        todo!()
    }

    /// An array of any integer type whose values fit.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        let _ = key;
        todo!()
    }

    /// The error for a key that must be there: "FILE: no `KEY` in the metadata; ..".
    pub fn missing(&self, key: &str) -> Error {
        Error::gguf(&self.file, format!("no `{key}` in the metadata; the file is incomplete"))
    }
}
