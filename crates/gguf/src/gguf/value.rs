//! Metadata values: thirteen types, arrays of twelve of them, and how each is read from a file.

use super::reader::{Place, Reader};
use crate::Result;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned byte.
    U8(u8),
    /// A signed byte.
    I8(i8),
    /// 16 bits without a sign.
    U16(u16),
    /// 16 bits with a sign.
    I16(i16),
    /// 32 bits without a sign.
    U32(u32),
    /// 32 bits with a sign.
    I32(i32),
    /// A float of 32 bits.
    F32(f32),
    /// True or false.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// 64 bits without a sign.
    U64(u64),
    /// 64 bits with a sign.
    I64(i64),
    /// A float of 64 bits.
    F64(f64),
    /// Many values of one type.
    Array(Array),
}

/// Arrays keep their element type: a byte array costs a byte per element.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Unsigned bytes.
    U8(Vec<u8>),
    /// Signed bytes.
    I8(Vec<i8>),
    /// 16 bits without a sign.
    U16(Vec<u16>),
    /// 16 bits with a sign.
    I16(Vec<i16>),
    /// 32 bits without a sign.
    U32(Vec<u32>),
    /// 32 bits with a sign.
    I32(Vec<i32>),
    /// Floats of 32 bits.
    F32(Vec<f32>),
    /// True or false.
    Bool(Vec<bool>),
    /// UTF-8 texts.
    String(Strings),
    /// 64 bits without a sign.
    U64(Vec<u64>),
    /// 64 bits with a sign.
    I64(Vec<i64>),
    /// Floats of 64 bits.
    F64(Vec<f64>),
}

/// Many strings in one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strings {
    text: Box<str>,
    ends: Box<[u32]>,
}

impl Strings {
    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at this index.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.text[start as usize..end as usize])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let s = &self.text[start..end as usize];
            start = end as usize;
            s
        })
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    /// Panics if the strings hold 4 GiB or more.
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for s in strings {
            text.push_str(s.as_ref());
            ends.push(u32::try_from(text.len()).expect("an array of strings holds less than 4 GiB"));
        }
        Strings { text: text.into(), ends: ends.into() }
    }
}

/// Ids of the value types in the file.
mod id {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
}

impl Value {
    /// The type in words, for messages.
    pub fn kind(&self) -> String {
        match self {
            Value::Array(array) => format!("an array of {}", array.element_kind()),
            other => type_name(other.type_id()).to_owned(),
        }
    }

    /// Any of the eight integer types.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(x) => x.into(),
            Value::I8(x) => x.into(),
            Value::U16(x) => x.into(),
            Value::I16(x) => x.into(),
            Value::U32(x) => x.into(),
            Value::I32(x) => x.into(),
            Value::U64(x) => x.into(),
            Value::I64(x) => x.into(),
            _ => return None,
        })
    }

    pub(super) fn type_id(&self) -> u32 {
        match self {
            Value::U8(_) => id::U8,
            Value::I8(_) => id::I8,
            Value::U16(_) => id::U16,
            Value::I16(_) => id::I16,
            Value::U32(_) => id::U32,
            Value::I32(_) => id::I32,
            Value::F32(_) => id::F32,
            Value::Bool(_) => id::BOOL,
            Value::String(_) => id::STRING,
            Value::Array(_) => id::ARRAY,
            Value::U64(_) => id::U64,
            Value::I64(_) => id::I64,
            Value::F64(_) => id::F64,
        }
    }

    /// Type and value, as they stand in a file.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.type_id().to_le_bytes());
        match self {
            Value::U8(x) => out.extend(x.to_le_bytes()),
            Value::I8(x) => out.extend(x.to_le_bytes()),
            Value::U16(x) => out.extend(x.to_le_bytes()),
            Value::I16(x) => out.extend(x.to_le_bytes()),
            Value::U32(x) => out.extend(x.to_le_bytes()),
            Value::I32(x) => out.extend(x.to_le_bytes()),
            Value::F32(x) => out.extend(x.to_le_bytes()),
            Value::Bool(x) => out.push((*x).into()),
            Value::String(x) => encode_str(x, out),
            Value::U64(x) => out.extend(x.to_le_bytes()),
            Value::I64(x) => out.extend(x.to_le_bytes()),
            Value::F64(x) => out.extend(x.to_le_bytes()),
            Value::Array(x) => x.encode(out),
        }
    }

    pub(super) fn read(r: &mut Reader, place: Place) -> Result<Self> {
        let at = r.pos();
        Ok(match r.u32(place)? {
            id::U8 => Value::U8(u8::from_le_bytes(r.array(place)?)),
            id::I8 => Value::I8(i8::from_le_bytes(r.array(place)?)),
            id::U16 => Value::U16(u16::from_le_bytes(r.array(place)?)),
            id::I16 => Value::I16(i16::from_le_bytes(r.array(place)?)),
            id::U32 => Value::U32(r.u32(place)?),
            id::I32 => Value::I32(i32::from_le_bytes(r.array(place)?)),
            id::F32 => Value::F32(f32::from_le_bytes(r.array(place)?)),
            id::BOOL => Value::Bool(read_bools(r, 1, place)?[0]),
            id::STRING => Value::String(r.str(place)?.to_owned()),
            id::ARRAY => Value::Array(Array::read(r, place)?),
            id::U64 => Value::U64(r.u64(place)?),
            id::I64 => Value::I64(i64::from_le_bytes(r.array(place)?)),
            id::F64 => Value::F64(f64::from_le_bytes(r.array(place)?)),
            other => return Err(r.error(at, place, format_args!("unknown value type {other}"))),
        })
    }
}

impl Array {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(x) => x.len(),
            Array::I8(x) => x.len(),
            Array::U16(x) => x.len(),
            Array::I16(x) => x.len(),
            Array::U32(x) => x.len(),
            Array::I32(x) => x.len(),
            Array::F32(x) => x.len(),
            Array::Bool(x) => x.len(),
            Array::String(x) => x.len(),
            Array::U64(x) => x.len(),
            Array::I64(x) => x.len(),
            Array::F64(x) => x.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leaves the elements at these places.
    pub fn retain(&mut self, wanted: impl Fn(usize) -> bool) {
        fn kept<T>(all: &mut Vec<T>, wanted: impl Fn(usize) -> bool) {
            let mut places = 0..;
            all.retain(|_| places.next().is_some_and(&wanted));
        }
        match self {
            Array::U8(x) => kept(x, wanted),
            Array::I8(x) => kept(x, wanted),
            Array::U16(x) => kept(x, wanted),
            Array::I16(x) => kept(x, wanted),
            Array::U32(x) => kept(x, wanted),
            Array::I32(x) => kept(x, wanted),
            Array::F32(x) => kept(x, wanted),
            Array::Bool(x) => kept(x, wanted),
            Array::String(x) => {
                *x = x.iter().enumerate().filter(|(i, _)| wanted(*i)).map(|(_, text)| text).collect();
            }
            Array::U64(x) => kept(x, wanted),
            Array::I64(x) => kept(x, wanted),
            Array::F64(x) => kept(x, wanted),
        }
    }

    /// The type of the elements in words: `i32`, `string`.
    pub fn element_kind(&self) -> &'static str {
        type_name(self.element_id())
    }

    pub(super) fn element_id(&self) -> u32 {
        match self {
            Array::U8(_) => id::U8,
            Array::I8(_) => id::I8,
            Array::U16(_) => id::U16,
            Array::I16(_) => id::I16,
            Array::U32(_) => id::U32,
            Array::I32(_) => id::I32,
            Array::F32(_) => id::F32,
            Array::Bool(_) => id::BOOL,
            Array::String(_) => id::STRING,
            Array::U64(_) => id::U64,
            Array::I64(_) => id::I64,
            Array::F64(_) => id::F64,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.element_id().to_le_bytes());
        out.extend((self.len() as u64).to_le_bytes());
        match self {
            Array::U8(x) => out.extend(x),
            Array::I8(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
            Array::U16(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
            Array::I16(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
            Array::U32(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
            Array::I32(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
            Array::F32(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
            Array::Bool(x) => out.extend(x.iter().map(|&x| u8::from(x))),
            Array::String(x) => x.iter().for_each(|s| encode_str(s, out)),
            Array::U64(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
            Array::I64(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
            Array::F64(x) => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
        }
    }

    fn read(r: &mut Reader, place: Place) -> Result<Self> {
        fn numbers<const N: usize, T>(
            r: &mut Reader,
            count: u64,
            place: Place,
            read: fn([u8; N]) -> T,
        ) -> Result<Vec<T>> {
            let (items, _) = r.take_items(count, N, place)?.as_chunks();
            Ok(items.iter().map(|&item| read(item)).collect())
        }
        let at = r.pos();
        let element = r.u32(place)?;
        let n = r.u64(place)?;
        Ok(match element {
            id::U8 => Array::U8(r.take(n, place)?.to_vec()),
            id::I8 => Array::I8(numbers(r, n, place, i8::from_le_bytes)?),
            id::U16 => Array::U16(numbers(r, n, place, u16::from_le_bytes)?),
            id::I16 => Array::I16(numbers(r, n, place, i16::from_le_bytes)?),
            id::U32 => Array::U32(numbers(r, n, place, u32::from_le_bytes)?),
            id::I32 => Array::I32(numbers(r, n, place, i32::from_le_bytes)?),
            id::F32 => Array::F32(numbers(r, n, place, f32::from_le_bytes)?),
            id::BOOL => Array::Bool(read_bools(r, n, place)?),
            id::STRING => Array::String(read_strings(r, n, place)?),
            id::ARRAY => return Err(r.error(at, place, "an array of arrays, which is not supported")),
            id::U64 => Array::U64(numbers(r, n, place, u64::from_le_bytes)?),
            id::I64 => Array::I64(numbers(r, n, place, i64::from_le_bytes)?),
            id::F64 => Array::F64(numbers(r, n, place, f64::from_le_bytes)?),
            other => return Err(r.error(at, place, format_args!("an array of unknown type {other}"))),
        })
    }
}

fn read_bools(r: &mut Reader, count: u64, place: Place) -> Result<Vec<bool>> {
    let start = r.pos();
    let bytes = r.take(count, place)?;
    match bytes.iter().position(|&b| b > 1) {
        Some(i) => Err(r.error(start + i, place, format_args!("{} is neither false nor true", bytes[i]))),
        None => Ok(bytes.iter().map(|&b| b == 1).collect()),
    }
}

/// Walks the strings twice: once to check them and learn their size, once to copy them.
fn read_strings(r: &mut Reader, count: u64, place: Place) -> Result<Strings> {
    let start = r.pos();
    r.check_count(count, size_of::<u64>(), "strings", place)?;
    let mut len = 0;
    for _ in 0..count {
        len += r.str(place)?.len();
    }
    if u32::try_from(len).is_err() {
        let what = format_args!("{len} bytes of strings in one array; 4 GiB is the limit");
        return Err(r.error(start, place, what));
    }
    let mut text = String::with_capacity(len);
    let mut ends = Vec::with_capacity(count as usize);
    let mut again = r.back_to(start);
    for _ in 0..count {
        text.push_str(again.str(place)?);
        ends.push(text.len() as u32);
    }
    Ok(Strings { text: text.into(), ends: ends.into() })
}

pub(super) fn encode_str(s: &str, out: &mut Vec<u8>) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn type_name(id: u32) -> &'static str {
    match id {
        id::U8 => "u8",
        id::I8 => "i8",
        id::U16 => "u16",
        id::I16 => "i16",
        id::U32 => "u32",
        id::I32 => "i32",
        id::F32 => "f32",
        id::BOOL => "bool",
        id::STRING => "string",
        id::ARRAY => "array",
        id::U64 => "u64",
        id::I64 => "i64",
        id::F64 => "f64",
        _ => "unknown",
    }
}

macro_rules! value_from {
    ($($variant:ident: $ty:ty;)*) => {
        $(impl From<$ty> for Value {
            fn from(x: $ty) -> Self {
                Value::$variant(x.into())
            }
        })*
    };
}

macro_rules! array_from {
    ($($variant:ident: $ty:ty;)*) => {
        $(impl From<$ty> for Array {
            fn from(x: $ty) -> Self {
                Array::$variant(x)
            }
        }
        impl From<$ty> for Value {
            fn from(x: $ty) -> Self {
                Value::Array(Array::$variant(x))
            }
        })*
    };
}

value_from! {
    U8: u8;
    I8: i8;
    U16: u16;
    I16: i16;
    U32: u32;
    I32: i32;
    F32: f32;
    Bool: bool;
    String: String;
    String: &str;
    U64: u64;
    I64: i64;
    F64: f64;
    Array: Array;
}

array_from! {
    U8: Vec<u8>;
    I8: Vec<i8>;
    U16: Vec<u16>;
    I16: Vec<i16>;
    U32: Vec<u32>;
    I32: Vec<i32>;
    F32: Vec<f32>;
    Bool: Vec<bool>;
    String: Strings;
    U64: Vec<u64>;
    I64: Vec<i64>;
    F64: Vec<f64>;
}
