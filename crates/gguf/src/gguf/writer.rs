//! Writes a GGUF of version 3 to any stream: metadata and directory first, then each tensor's data as the
//! caller gives them, so memory does not depend on the size of the model.

use std::io::{self, BufWriter, Write};

use super::{
    names::NameIndex,
    parse::{ALIGNMENT, DEFAULT_ALIGNMENT, MAX_DIMS, data_bytes},
    reader::Place,
    value::{Value, encode_str},
};
use crate::{Error, Result, quant::GgmlType, quoted::Quoted};

const VERSION: u32 = 3;

/// ```
/// # extern crate spec_run_gguf as spec_run;
/// # use spec_run::{Gguf, gguf::Writer, quant::GgmlType};
/// let mut file = Vec::new();
/// Writer::new()
///     .set("general.architecture", "llama")
///     .tensor("output_norm.weight", GgmlType::F32, &[2])
///     .write(&mut file, |_, sink| sink.write(&[0; 8]))?;
/// let gguf = Gguf::from_bytes("made here", file)?;
/// assert_eq!(gguf.tensor("output_norm.weight").unwrap().bytes, 8);
/// # Ok::<(), spec_run::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    file: String,
    entries: Vec<(String, Value)>,
    tensors: Vec<NewTensor>,
}

#[derive(Clone, Debug)]
struct NewTensor {
    name: String,
    ty: GgmlType,
    shape: Vec<u64>,
}

/// Takes one tensor's data, in as many pieces as the caller likes.
pub struct Sink<'a> {
    out: &'a mut dyn Write,
    file: &'a str,
    tensor: &'a str,
    wanted: u64,
    left: u64,
}

impl Sink<'_> {
    /// Bytes that the tensor still lacks.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Adds bytes to the tensor.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            let (tensor, wanted) = (Place::Tensor(self.tensor), self.wanted);
            Error::gguf(self.file, format!("{tensor}: more data than its {wanted} bytes were written"))
        })?;
        self.out.write_all(bytes).map_err(|e| Error::io(self.file, e))
    }

    fn close(self) -> Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let (tensor, wanted, left) = (Place::Tensor(self.tensor), self.wanted, self.left);
        Err(Error::gguf(self.file, format!("{tensor}: {left} of its {wanted} bytes were not written")))
    }
}

impl Default for Writer {
    fn default() -> Self {
        Writer { file: "GGUF output".into(), entries: Vec::new(), tensors: Vec::new() }
    }
}

impl Writer {
    /// A file without keys and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name that stands in messages.
    pub fn named(&mut self, file: impl Into<String>) -> &mut Self {
        self.file = file.into();
        self
    }

    /// Adds a metadata key, or gives one that is there another value. `general.alignment` sets the alignment.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.entries.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.entries.push((key.to_owned(), value)),
        }
        self
    }

    /// Adds a tensor; `shape` has the fastest dimension first.
    pub fn tensor(&mut self, name: &str, ty: GgmlType, shape: &[u64]) -> &mut Self {
        self.tensors.push(NewTensor { name: name.to_owned(), ty, shape: shape.to_vec() });
        self
    }

    /// Writes the file. `data` is called for each tensor in order, with its index, and must write exactly the
    /// bytes that type and shape ask for. What cannot be read back is an error before the first byte is
    /// written.
    pub fn write(&self, out: impl Write, mut data: impl FnMut(usize, &mut Sink) -> Result<()>) -> Result<()> {
        let alignment = self.alignment()?;
        let places = self.places(alignment)?;
        let mut out = BufWriter::new(out);
        let io = |e| Error::io(&self.file, e);

        let head = self.head(&places);
        out.write_all(&head).map_err(io)?;
        let mut at = head.len() as u64;
        let start = at.next_multiple_of(alignment);
        for (i, (tensor, &(offset, bytes))) in self.tensors.iter().zip(&places).enumerate() {
            pad(&mut out, start + offset - at).map_err(io)?;
            let (file, tensor) = (&*self.file, &*tensor.name);
            let mut sink = Sink { out: &mut out, file, tensor, wanted: bytes, left: bytes };
            data(i, &mut sink)?;
            sink.close()?;
            at = start + offset + bytes;
        }
        // Other readers expect the last tensor padded like the rest.
        pad(&mut out, at.next_multiple_of(alignment) - at).map_err(io)?;
        out.flush().map_err(io)
    }

    /// What such a file begins with, up to the first tensor's bytes, and how long it would be.
    pub fn outline(&self) -> Result<(Vec<u8>, u64)> {
        let alignment = self.alignment()?;
        let places = self.places(alignment)?;
        let head = self.head(&places);
        let start = (head.len() as u64).next_multiple_of(alignment);
        let end = places.last().map_or(0, |(offset, bytes)| offset + bytes);
        Ok((head, start + end.next_multiple_of(alignment)))
    }

    fn alignment(&self) -> Result<u64> {
        match self.entries.iter().find(|(k, _)| k == ALIGNMENT) {
            None => Ok(DEFAULT_ALIGNMENT),
            Some((_, Value::U32(n))) if n.is_power_of_two() => Ok((*n).into()),
            Some(_) => Err(self.error(format!("`{ALIGNMENT}` must be a power of two, of type u32"))),
        }
    }

    /// Offset in the data region and length of each tensor.
    fn places(&self, alignment: u64) -> Result<Vec<(u64, u64)>> {
        NameIndex::new(self.tensors.len(), |i| &self.tensors[i].name)
            .map_err(|i| self.error(format!("tensor {} is there twice", Quoted(&self.tensors[i].name))))?;
        if self.entries.iter().any(|(key, _)| key.is_empty())
            || self.tensors.iter().any(|t| t.name.is_empty())
        {
            return Err(self.error("a key or tensor without a name".into()));
        }
        let mut offset = 0u64;
        let mut places = Vec::with_capacity(self.tensors.len());
        for t in &self.tensors {
            let fail = |what| self.error(format!("{}: {what}", Place::Tensor(&t.name)));
            if t.shape.len() > MAX_DIMS as usize {
                return Err(fail(format!("{} dimensions; {MAX_DIMS} are the limit", t.shape.len())));
            }
            let bytes = data_bytes(t.ty, &t.shape).map_err(fail)?;
            places.push((offset, bytes));
            offset = offset
                .checked_add(bytes)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .ok_or_else(|| fail("the file would be longer than 2^64 bytes".into()))?;
        }
        Ok(places)
    }

    /// Everything before the data.
    fn head(&self, places: &[(u64, u64)]) -> Vec<u8> {
        let mut head = b"GGUF".to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend((self.tensors.len() as u64).to_le_bytes());
        head.extend((self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            encode_str(key, &mut head);
            value.encode(&mut head);
        }
        for (t, (offset, _)) in self.tensors.iter().zip(places) {
            encode_str(&t.name, &mut head);
            head.extend((t.shape.len() as u32).to_le_bytes());
            head.extend(t.shape.iter().flat_map(|dim| dim.to_le_bytes()));
            head.extend((t.ty as u32).to_le_bytes());
            head.extend(offset.to_le_bytes());
        }
        head
    }

    fn error(&self, what: String) -> Error {
        Error::gguf(&self.file, what)
    }
}

fn pad(out: &mut impl Write, len: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), len), out).map(|_| ())
}
