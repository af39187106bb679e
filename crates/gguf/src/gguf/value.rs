//! Metadata values: thirteen types, arrays of twelve of them, and how each is read from a file.

use super::reader::{Place, Reader};
use crate::Result;

/// The number of arrays among the types.
const ARRAY: u32 = 9;

/// Makes [`Value`] and [`Array`], and what has a case for each type, of one table: a type's name here, what holds one value of
/// it and many, its number in files and its name in messages.
macro_rules! types {
    ($($(#[$about:meta])* $Type:ident($One:ty, $Many:ty) = $id:literal, $name:literal;)*) => {
        /// A metadata value.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value {
            $($(#[$about])* $Type($One),)*
            /// Many values of one type.
            Array(Array),
        }

        /// Arrays keep their element type: a byte array costs a byte per element.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Array {
            $($(#[$about])* $Type($Many),)*
        }

        impl Value {
            /// The type in words, for messages.
            pub fn kind(&self) -> String {
                match self {
                    $(Value::$Type(_) => $name.to_owned(),)*
                    Value::Array(array) => format!("an array of {}", array.element_kind()),
                }
            }

            /// Type and value, as they stand in a file.
            pub(super) fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Value::$Type(x) => {
                        u32::encode(&$id, out);
                        x.encode(out);
                    })*
                    Value::Array(array) => {
                        ARRAY.encode(out);
                        array.encode(out);
                    }
                }
            }

            pub(super) fn read(r: &mut Reader, place: Place) -> Result<Self> {
                let at = r.pos();
                Ok(match r.u32(place)? {
                    $($id => Value::$Type(Stored::read(r, place)?),)*
                    ARRAY => Value::Array(Array::read(r, place)?),
                    other => return Err(r.error(at, place, format_args!("unknown value type {other}"))),
                })
            }
        }

        impl Array {
            /// How many elements there are.
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$Type(x) => x.len(),)*
                }
            }

            /// The elements, each as a value of its own.
            pub fn iter(&self) -> Box<dyn Iterator<Item = Value> + '_> {
                match self {
                    $(Array::$Type(x) => Box::new(x.iter().map(|x| Value::$Type(x.to_owned()))),)*
                }
            }

            /// Leaves the elements at these places.
            pub fn retain(&mut self, wanted: impl Fn(usize) -> bool) {
                let mut places = 0..;
                match self {
                    $(Array::$Type(x) => x.retain(|_| places.next().is_some_and(&wanted)),)*
                }
            }

            /// The type of the elements in words: `i32`, `string`.
            pub fn element_kind(&self) -> &'static str {
                match self {
                    $(Array::$Type(_) => $name,)*
                }
            }

            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Array::$Type(x) => {
                        u32::encode(&$id, out);
                        (x.len() as u64).encode(out);
                        <$One>::encode_many(x, out);
                    })*
                }
            }

            fn read(r: &mut Reader, place: Place) -> Result<Self> {
                let at = r.pos();
                let element = r.u32(place)?;
                let count = r.u64(place)?;
                Ok(match element {
                    $($id => Array::$Type(<$One>::read_many(r, count, place)?),)*
                    ARRAY => return Err(r.error(at, place, "an array of arrays, which is not supported")),
                    other => {
                        return Err(r.error(at, place, format_args!("an array of unknown type {other}")));
                    }
                })
            }
        }

        $(
            impl From<$One> for Value {
                fn from(x: $One) -> Self {
                    Value::$Type(x)
                }
            }
            impl From<$Many> for Array {
                fn from(x: $Many) -> Self {
                    Array::$Type(x)
                }
            }
            impl From<$Many> for Value {
                fn from(x: $Many) -> Self {
                    Value::Array(Array::$Type(x))
                }
            }
        )*
    };
}

types! {
    /// Bytes without a sign.
    U8(u8, Vec<u8>) = 0, "u8";
    /// Bytes with a sign.
    I8(i8, Vec<i8>) = 1, "i8";
    /// 16 bits without a sign.
    U16(u16, Vec<u16>) = 2, "u16";
    /// 16 bits with a sign.
    I16(i16, Vec<i16>) = 3, "i16";
    /// 32 bits without a sign.
    U32(u32, Vec<u32>) = 4, "u32";
    /// 32 bits with a sign.
    I32(i32, Vec<i32>) = 5, "i32";
    /// Floats of 32 bits.
    F32(f32, Vec<f32>) = 6, "f32";
    /// True or false.
    Bool(bool, Vec<bool>) = 7, "bool";
    /// UTF-8 text.
    String(String, Strings) = 8, "string";
    /// 64 bits without a sign.
    U64(u64, Vec<u64>) = 10, "u64";
    /// 64 bits with a sign.
    I64(i64, Vec<i64>) = 11, "i64";
    /// Floats of 64 bits.
    F64(f64, Vec<f64>) = 12, "f64";
}

impl From<&str> for Value {
    fn from(x: &str) -> Self {
        Value::String(x.into())
    }
}

impl From<Array> for Value {
    fn from(x: Array) -> Self {
        Value::Array(x)
    }
}

impl Value {
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
}

impl Array {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How values of a type lie in a file: one, and the elements of an array.
trait Stored: Sized {
    type Many;

    fn encode(&self, out: &mut Vec<u8>);
    fn encode_many(many: &Self::Many, out: &mut Vec<u8>);
    fn read(r: &mut Reader, place: Place) -> Result<Self>;
    fn read_many(r: &mut Reader, count: u64, place: Place) -> Result<Self::Many>;
}

macro_rules! stored_numbers {
    ($($Number:ty),*) => {$(
        impl Stored for $Number {
            type Many = Vec<Self>;

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn encode_many(many: &Vec<Self>, out: &mut Vec<u8>) {
                out.extend(many.iter().flat_map(|x| x.to_le_bytes()));
            }
            fn read(r: &mut Reader, place: Place) -> Result<Self> {
                r.array(place).map(Self::from_le_bytes)
            }
            fn read_many(r: &mut Reader, count: u64, place: Place) -> Result<Vec<Self>> {
                let (items, _) = r.take_items(count, size_of::<Self>(), place)?.as_chunks();
                Ok(items.iter().map(|&item| Self::from_le_bytes(item)).collect())
            }
        }
    )*};
}

stored_numbers!(u8, i8, u16, i16, u32, i32, f32, u64, i64, f64);

impl Stored for bool {
    type Many = Vec<bool>;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
    fn encode_many(many: &Vec<bool>, out: &mut Vec<u8>) {
        out.extend(many.iter().map(|&x| u8::from(x)));
    }
    fn read(r: &mut Reader, place: Place) -> Result<bool> {
        Ok(Self::read_many(r, 1, place)?[0])
    }
    fn read_many(r: &mut Reader, count: u64, place: Place) -> Result<Vec<bool>> {
        let start = r.pos();
        let bytes = r.take(count, place)?;
        match bytes.iter().position(|&b| b > 1) {
            Some(i) => Err(r.error(start + i, place, format_args!("{} is neither false nor true", bytes[i]))),
            None => Ok(bytes.iter().map(|&b| b == 1).collect()),
        }
    }
}

impl Stored for String {
    type Many = Strings;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_str(self, out);
    }
    fn encode_many(many: &Strings, out: &mut Vec<u8>) {
        many.iter().for_each(|s| encode_str(s, out));
    }
    fn read(r: &mut Reader, place: Place) -> Result<String> {
        Ok(r.str(place)?.to_owned())
    }
    /// Walks the strings twice: once to check them and learn their size, once to copy them.
    fn read_many(r: &mut Reader, count: u64, place: Place) -> Result<Strings> {
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
}

pub(super) fn encode_str(s: &str, out: &mut Vec<u8>) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
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

    fn retain(&mut self, mut wanted: impl FnMut(&str) -> bool) {
        *self = self.iter().filter(|s| wanted(s)).collect();
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
