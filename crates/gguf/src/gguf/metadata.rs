//! The key-value part of a GGUF: typed values, read by name with an error that says what was found instead.

use super::{
    names::NameIndex,
    value::{Array, Strings, Value},
};
use crate::{Error, Result, quoted::Quoted};

/// All keys of a file, in file order.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    file: String,
    entries: Vec<(Box<str>, Value)>,
    index: NameIndex,
}

/// Typed reads. A missing key is `None`; a key of another type is an error that names file, key, the type
/// found and the type wanted. Any integer type is taken for an integer if its value fits.
impl Metadata {
    pub(super) fn new(file: &str, entries: Vec<(Box<str>, Value)>) -> Result<Self> {
        let index = NameIndex::new(entries.len(), |i| &entries[i].0).map_err(|i| {
            Error::gguf(file, format!("metadata key {} is there twice", Quoted(&entries[i].0)))
        })?;
        Ok(Metadata { file: file.into(), entries, index })
    }

    /// All keys and values, in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (&**k, v))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.find(key, |i| &self.entries[i].0).map(|i| &self.entries[i].1)
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |v| if let Value::String(s) = v { Some(s.as_str()) } else { None })
    }

    /// True or false.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", |v| if let Value::Bool(b) = v { Some(*b) } else { None })
    }

    /// An integer of any type whose value fits.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.fitting(key, "32 bits without a sign")
    }

    /// An integer that fits in 32 bits with a sign.
    pub fn i32(&self, key: &str) -> Result<Option<i32>> {
        self.fitting(key, "32 bits")
    }

    /// A float of 32 or 64 bits.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a float", |v| match v {
            Value::F32(x) => Some(*x),
            Value::F64(x) => Some(*x as f32),
            _ => None,
        })
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        let wanted = "an array of strings";
        self.typed(key, wanted, |v| if let Value::Array(Array::String(s)) = v { Some(s) } else { None })
    }

    /// An array of floats.
    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>> {
        let wanted = "an array of f32";
        self.typed(key, wanted, |v| if let Value::Array(Array::F32(x)) = v { Some(&x[..]) } else { None })
    }

    /// An array of bytes, with a sign or without.
    pub fn bytes(&self, key: &str) -> Result<Option<&[u8]>> {
        self.typed(key, "an array of bytes", |v| match v {
            Value::Array(Array::U8(x)) => Some(x.as_slice()),
            Value::Array(Array::I8(x)) => Some(bytemuck::cast_slice(x)),
            _ => None,
        })
    }

    /// An array of any integer type whose values fit.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        fn all<T: Copy + TryInto<i32>>(values: &[T]) -> Result<Vec<i32>, usize> {
            values.iter().enumerate().map(|(i, &v)| v.try_into().map_err(|_| i)).collect()
        }
        let values = self.typed(key, "an array of integers", |v| match v {
            Value::Array(Array::U8(x)) => Some(all(x)),
            Value::Array(Array::I8(x)) => Some(all(x)),
            Value::Array(Array::U16(x)) => Some(all(x)),
            Value::Array(Array::I16(x)) => Some(all(x)),
            Value::Array(Array::U32(x)) => Some(all(x)),
            Value::Array(Array::I32(x)) => Some(Ok(x.clone())),
            Value::Array(Array::U64(x)) => Some(all(x)),
            Value::Array(Array::I64(x)) => Some(all(x)),
            _ => None,
        })?;
        values
            .transpose()
            .map_err(|i| self.error(key, format_args!("element {i} does not fit in 32 bits with a sign")))
    }

    /// An array of integers or bools, which are 0 and 1, or one such value for an array of one.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>> {
        match self.get(key) {
            Some(Value::Bool(b)) => Ok(Some(vec![u32::from(*b)])),
            Some(Value::Array(Array::Bool(bools))) => {
                Ok(Some(bools.iter().copied().map(u32::from).collect()))
            }
            Some(Value::Array(_)) => {
                let Some(numbers) = self.i32s(key)? else { return Ok(None) };
                let numbers = numbers.into_iter().enumerate().map(|(i, n)| {
                    u32::try_from(n).map_err(|_| self.error(key, format_args!("element {i} is {n}, below 0")))
                });
                Ok(Some(numbers.collect::<Result<_>>()?))
            }
            _ => Ok(self.u32(key)?.map(|n| vec![n])),
        }
    }

    /// The error for a key that must be there: "FILE: no `KEY` in the metadata; ..".
    pub fn missing(&self, key: &str) -> Error {
        Error::gguf(&self.file, format!("no `{key}` in the metadata; the file is incomplete"))
    }

    /// An integer of any type whose value fits in `what`.
    fn fitting<T: TryFrom<i128>>(&self, key: &str, what: &str) -> Result<Option<T>> {
        let Some(n) = self.typed(key, "an integer", Value::integer)? else { return Ok(None) };
        n.try_into().map(Some).map_err(|_| self.error(key, format_args!("{n} does not fit in {what}")))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.error(key, format_args!("found {}, wanted {wanted}", value.kind()))),
        }
    }

    fn error(&self, key: &str, what: std::fmt::Arguments) -> Error {
        Error::gguf(&self.file, format!("metadata key {}: {what}", Quoted(key)))
    }
}
