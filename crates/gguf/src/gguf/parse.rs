//! One file's header, metadata and tensor directory, checked against the bytes that are there.
//!
//! A hostile file costs at most about twelve bytes of memory for each of its own: the worst are metadata
//! entries of a single byte under the shortest names.

use super::{
    Metadata, TensorInfo,
    reader::{Place, Reader},
    value::Value,
};
use crate::{Error, Result, quant::GgmlType};

pub(super) const MAX_DIMS: u32 = 4;
pub(super) const ALIGNMENT: &str = "general.alignment";
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
/// Length and one byte of the name, type, a one-byte value.
const SMALLEST_ENTRY: usize = 8 + 1 + 4 + 1;
/// Length and one byte of the name, number of dimensions, one dimension, type, offset.
const SMALLEST_TENSOR: usize = 8 + 1 + 4 + 8 + 4 + 8;
/// Lists longer than this grow as they are read: a count in a header is only a claim.
const TRUSTED_COUNT: u64 = 4096;

pub(super) struct Parsed {
    pub version: u32,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
}

/// `shard` goes into the tensors' entries.
pub(super) fn parse(file: &str, bytes: &[u8], shard: usize) -> Result<Parsed> {
    let mut r = Reader::new(file, bytes);
    let version = read_magic_and_version(file, &mut r)?;
    let n_tensors = r.u64(Place::Header)?;
    let n_entries = r.u64(Place::Header)?;
    r.check_count(n_entries, SMALLEST_ENTRY, "metadata keys", Place::Header)?;
    r.check_count(n_tensors, SMALLEST_TENSOR, "tensors", Place::Header)?;
    if n_entries >= u32::MAX.into() || n_tensors >= u32::MAX.into() {
        let what = format_args!("{n_entries} metadata keys and {n_tensors} tensors; the limit is 2^32");
        return Err(r.error(8, Place::Header, what));
    }

    let mut entries = Vec::with_capacity(n_entries.min(TRUSTED_COUNT) as usize);
    for i in 0..n_entries {
        entries.push(read_entry(&mut r, i)?);
    }
    let metadata = Metadata::new(file, entries)?;
    let alignment = alignment(file, &metadata)?;

    let mut tensors = Vec::with_capacity(n_tensors.min(TRUSTED_COUNT) as usize);
    for i in 0..n_tensors {
        tensors.push(read_tensor(&mut r, i, alignment, shard)?);
    }
    let data_start = (r.pos() as u64).next_multiple_of(alignment);
    place_data(file, &mut tensors, data_start, bytes.len() as u64)?;
    Ok(Parsed { version, metadata, tensors })
}

/// What [`check_magic`] looks at.
pub(super) const MAGIC_BYTES: u64 = 16;

/// Refuses what is no model by its first bytes.
pub(super) fn check_magic(file: &str, head: &[u8]) -> Result<()> {
    read_magic_and_version(file, &mut Reader::new(file, head)).map(drop)
}

fn read_magic_and_version(file: &str, r: &mut Reader) -> Result<u32> {
    const MAGIC: &[u8] = b"GGUF";
    const BIG_ENDIAN: &str = "a big-endian GGUF; only little-endian files can be read: convert it with \
                              gguf-py's gguf_convert_endian";
    let begin = r.take(r.left().min(16) as u64, Place::Header)?;
    if begin.is_empty() {
        return Err(Error::gguf(file, "the file is empty"));
    }
    if begin.starts_with(b"FUGG") {
        return Err(Error::gguf(file, BIG_ENDIAN));
    }
    if !begin.starts_with(MAGIC) && !MAGIC.starts_with(begin) {
        let what = format!("not a GGUF file: it begins with \"{}\", not with \"GGUF\"", begin.escape_ascii());
        return Err(Error::gguf(file, what));
    }
    *r = r.back_to(MAGIC.len().min(begin.len()));
    match r.u32(Place::Header)? {
        version @ (2 | 3) => Ok(version),
        1 => Err(Error::gguf(
            file,
            "GGUF version 1, which is no longer in use; convert the model again with a current llama.cpp",
        )),
        v if matches!(v.swap_bytes(), 1..=3) => Err(Error::gguf(file, BIG_ENDIAN)),
        v => Err(Error::gguf(file, format!("GGUF version {v}; versions 2 and 3 can be read"))),
    }
}

fn read_entry(r: &mut Reader, i: u64) -> Result<(Box<str>, Value)> {
    let at = r.pos();
    let key = r.str(Place::Key(i))?;
    if key.is_empty() {
        return Err(r.error(at, Place::Key(i), "it is empty"));
    }
    Ok((key.into(), Value::read(r, Place::Value(key))?))
}

/// As llama.cpp: 32 unless `general.alignment` says otherwise, and always a power of two.
fn alignment(file: &str, metadata: &Metadata) -> Result<u64> {
    match metadata.u32(ALIGNMENT)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(n) if n.is_power_of_two() => Ok(n.into()),
        Some(n) => Err(Error::gguf(
            file,
            format!("metadata key `{ALIGNMENT}`: {n} is not a power of two, which it must be"),
        )),
    }
}

/// The offset stays relative to the data region, which is known only after the whole directory.
fn read_tensor(r: &mut Reader, i: u64, alignment: u64, shard: usize) -> Result<TensorInfo> {
    let at = r.pos();
    let name = r.str(Place::TensorName(i))?;
    if name.is_empty() {
        return Err(r.error(at, Place::TensorName(i), "it is empty"));
    }
    let place = Place::Tensor(name);
    let at = r.pos();
    let n_dims = r.u32(place)?;
    if !(1..=MAX_DIMS).contains(&n_dims) {
        return Err(r.error(at, place, format_args!("{n_dims} dimensions; 1 to {MAX_DIMS} are allowed")));
    }
    let at = r.pos();
    let mut shape = Vec::with_capacity(n_dims as usize);
    for _ in 0..n_dims {
        shape.push(r.u64(place)?);
    }
    let at_type = r.pos();
    let id = r.u32(place)?;
    let ty = GgmlType::from_id(id).ok_or_else(|| {
        r.error(at_type, place, format_args!("tensor type {id} is unknown to this version"))
    })?;
    let bytes = data_bytes(ty, &shape).map_err(|what| r.error(at, place, what))?;
    let at = r.pos();
    let offset = r.u64(place)?;
    if offset % alignment != 0 {
        let what = format_args!("data offset {offset} is not a multiple of the alignment {alignment}");
        return Err(r.error(at, place, what));
    }
    Ok(TensorInfo { name: name.to_owned(), ty, shape, shard, offset, bytes })
}

/// Bytes of a tensor's data, or what is wrong with its shape.
pub(super) fn data_bytes(ty: GgmlType, shape: &[u64]) -> Result<u64, String> {
    let columns = *shape.first().ok_or("it has no dimensions")?;
    if shape.contains(&0) {
        return Err(format!("the shape {shape:?} has a dimension of zero"));
    }
    let block = ty.block_len() as u64;
    if columns % block != 0 {
        return Err(format!("rows of {columns} are not a multiple of {ty}'s block of {block}"));
    }
    let bytes = shape[1..]
        .iter()
        .try_fold(columns / block, |blocks, &dim| blocks.checked_mul(dim))
        .and_then(|blocks| blocks.checked_mul(ty.block_bytes() as u64));
    // The number of weights must fit too: others multiply it without another look.
    let weights = shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
    match (bytes, weights) {
        (Some(bytes), Some(_)) => Ok(bytes),
        _ => Err(format!("the shape {shape:?} overflows 64 bits")),
    }
}

/// Turns offsets into places in the file, and checks that each tensor lies inside it and alone.
fn place_data(file: &str, tensors: &mut [TensorInfo], start: u64, file_len: u64) -> Result<()> {
    for t in &mut *tensors {
        let begin =
            start.checked_add(t.offset).filter(|b| b.checked_add(t.bytes).is_some_and(|e| e <= file_len));
        t.offset = begin.ok_or_else(|| {
            let (tensor, bytes, offset) = (Place::Tensor(&t.name), t.bytes, t.offset);
            let what = format!(
                "{tensor}: {bytes} bytes of data, {offset} after byte {start}, lie beyond the end of the file \
                 at byte {file_len}; the file is incomplete or damaged"
            );
            Error::gguf(file, what)
        })?;
    }
    let mut by_offset: Vec<u32> = (0..tensors.len() as u32).collect();
    by_offset.sort_unstable_by_key(|&i| tensors[i as usize].offset);
    for pair in by_offset.windows(2) {
        let (a, b) = (&tensors[pair[0] as usize], &tensors[pair[1] as usize]);
        if a.offset + a.bytes > b.offset {
            let (a, at, b) = (Place::Tensor(&a.name), b.offset, Place::Tensor(&b.name));
            return Err(Error::gguf(file, format!("the data of {a} and {b} overlap at byte {at}")));
        }
    }
    Ok(())
}
