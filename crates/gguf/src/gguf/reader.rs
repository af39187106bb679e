//! A cursor over a file's bytes: no read goes past the end, and a failed one says where and at what.

use std::{fmt, str};

use crate::{Error, Result, quoted::Quoted};

/// What is being read, for messages.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Header,
    Key(u64),
    Value(&'a str),
    TensorName(u64),
    Tensor(&'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Place::Header => f.write_str("the header"),
            Place::Key(i) => write!(f, "the name of metadata key {i}"),
            Place::Value(key) => write!(f, "metadata key {}", Quoted(key)),
            Place::TensorName(i) => write!(f, "the name of tensor {i}"),
            Place::Tensor(name) => write!(f, "tensor {}", Quoted(name)),
        }
    }
}

pub(super) struct Reader<'a> {
    file: &'a str,
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    pub fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Reader { file, bytes, pos: 0 }
    }

    pub fn pos(&self) -> usize {
        self.pos
    }

    /// A second cursor over the same bytes.
    pub fn back_to(&self, pos: usize) -> Self {
        Reader { pos, ..*self }
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    pub fn error(&self, offset: usize, place: Place, what: impl fmt::Display) -> Error {
        Error::gguf(self.file, format!("{place} at byte {offset}: {what}"))
    }

    pub fn take(&mut self, len: u64, place: Place) -> Result<&'a [u8]> {
        let left = self.left();
        match usize::try_from(len) {
            Ok(n) if n <= left => {
                let taken = &self.bytes[self.pos..self.pos + n];
                self.pos += n;
                Ok(taken)
            }
            _ => Err(self.cut(place, format_args!("{len} bytes"))),
        }
    }

    /// The bytes of `count` items of `size` each.
    pub fn take_items(&mut self, count: u64, size: usize, place: Place) -> Result<&'a [u8]> {
        match count.checked_mul(size as u64) {
            Some(len) if len <= self.left() as u64 || size == 1 => self.take(len, place),
            _ => Err(self.cut(place, format_args!("{count} items of {size} bytes"))),
        }
    }

    /// Refuses a count that the rest of the file cannot hold, before anything is allocated for it.
    pub fn check_count(&self, count: u64, smallest: usize, what: &str, place: Place) -> Result<()> {
        match count.checked_mul(smallest as u64) {
            Some(len) if len <= self.left() as u64 => Ok(()),
            _ => Err(self.cut(place, format_args!("{count} {what}"))),
        }
    }

    fn cut(&self, place: Place, wanted: fmt::Arguments) -> Error {
        let left = self.left();
        self.error(
            self.pos,
            place,
            format_args!("{wanted} do not fit in the {left} bytes left; the file is incomplete or damaged"),
        )
    }

    pub fn array<const N: usize>(&mut self, place: Place) -> Result<[u8; N]> {
        let bytes = self.take(N as u64, place)?;
        Ok(bytes.try_into().expect("take gives the length asked for"))
    }

    pub fn u32(&mut self, place: Place) -> Result<u32> {
        self.array(place).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, place: Place) -> Result<u64> {
        self.array(place).map(u64::from_le_bytes)
    }

    pub fn str(&mut self, place: Place) -> Result<&'a str> {
        let len = self.u64(place)?;
        let bytes = self.take(len, place)?;
        str::from_utf8(bytes).map_err(|e| {
            let offset = self.pos - bytes.len() + e.valid_up_to();
            self.error(offset, place, "not UTF-8")
        })
    }
}
