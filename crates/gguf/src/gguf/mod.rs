//! GGUF files: header, metadata and tensor directory over a memory map, every length checked against the
//! bytes that are there; sharded files; a writer.

mod factors;
mod large;
mod metadata;
mod names;
mod parse;
mod reader;
pub mod shards;
#[cfg(test)]
mod tests;
mod value;
mod writer;

use std::{
    borrow::Cow,
    fmt,
    fs::{self, File},
    io::{self, Read},
    ops::{Deref, Range},
    path::Path,
    sync::Arc,
};

use memmap2::Mmap;

pub use factors::beside;
pub use large::{Window, interrupted, write_model};
pub use metadata::Metadata;
pub use names::NameIndex;
pub use value::{Array, Strings, Value};
pub use writer::{Sink, Writer};

use self::{parse::Parsed, shards::Split};
use crate::{
    Error, Result,
    hash::fnv1a,
    quant::GgmlType,
    quoted::{Quoted, one_line},
};

/// An opened model file, or all shards of one, with the bytes of its tensors mapped.
pub struct Gguf {
    name: String,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: NameIndex,
    shards: Vec<Arc<Shard>>,
}

/// One entry of the tensor directory.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its name, as `blk.0.attn_q.weight`.
    pub name: String,
    /// How its weights are stored.
    pub ty: GgmlType,
    /// Fastest dimension first, as in the file: `[columns, rows]` for a matrix.
    pub shape: Vec<u64>,
    /// Which shard, and where in that file.
    pub shard: usize,
    /// Where its bytes begin in that file.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// A matrix of floats that no file has.
pub struct NewTensor {
    pub name: String,
    pub cols: usize,
    pub rows: usize,
    pub numbers: Vec<f32>,
}

impl TensorInfo {
    /// The number of weights; that it fits was checked when the file was opened.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf").field("name", &self.name).finish_non_exhaustive()
    }
}

enum Shard {
    /// The file stays open for what is said to the system about its pages.
    Mapped(Mmap, #[cfg_attr(not(target_os = "linux"), allow(dead_code))] File),
    Memory(Cow<'static, [u8]>),
}

impl Deref for Shard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Shard::Mapped(map, _) => map,
            Shard::Memory(bytes) => bytes,
        }
    }
}

impl Gguf {
    /// Opens `path`; of a sharded model (`-00001-of-00003.gguf`), all shards beside the first.
    ///
    /// The files stay mapped: who cuts them short while they are open ends the process with SIGBUS.
    pub fn open(path: &Path) -> Result<Self> {
        Self::load(path, |path| map(path).map(|(map, file)| Shard::Mapped(map, file)))
    }

    /// The same with the files read into memory, for where a map is slow or the file may change.
    pub fn read(path: &Path) -> Result<Self> {
        Self::load(path, |path| {
            // A device such as /dev/zero never ends; what is no model shows at its start.
            let io = |e| Error::io(path, e);
            let mut file = File::open(path).map_err(io)?;
            let mut bytes = Vec::new();
            (&mut file).take(parse::MAGIC_BYTES).read_to_end(&mut bytes).map_err(io)?;
            parse::check_magic(&path.display().to_string(), &bytes)?;
            if let Ok(found) = file.metadata() {
                let rest = (found.len() as usize).saturating_sub(bytes.len());
                bytes.try_reserve_exact(rest).map_err(|_| io(io::ErrorKind::OutOfMemory.into()))?;
            }
            file.read_to_end(&mut bytes).map_err(io)?;
            Ok(Shard::Memory(bytes.into()))
        })
    }

    fn load(path: &Path, open: impl Fn(&Path) -> Result<Shard>) -> Result<Self> {
        let name = path.display().to_string();
        let first = open(path)?;
        let Parsed { version, metadata, mut tensors } = parse::parse(&name, &first, 0)?;
        let split = Split::of(&metadata)?;
        let mut shards = vec![first];
        for (no, path) in (1..).zip(shards::others(path, &split)?) {
            let shard = open(&path).map_err(|e| shards::unopened(e, no, &split, &name))?;
            let file = path.display().to_string();
            let parsed = parse::parse(&file, &shard, no)?;
            shards::check(&file, &parsed.metadata, no, &split)?;
            tensors.extend(parsed.tensors);
            shards.push(shard);
        }
        shards::check_tensors(&name, tensors.len(), &split)?;
        let shards = shards.into_iter().map(Arc::new).collect();
        Self::new(name, version, metadata, tensors, shards)
    }

    /// A file that is part of the program, or was made in memory. `name` stands in messages.
    pub fn from_bytes(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        let Parsed { version, metadata, tensors } = parse::parse(name, &bytes, 0)?;
        let Split { no, count, .. } = Split::of(&metadata)?;
        if no > 0 || count > 1 {
            let what =
                format!("shard {} of {count}: a model held in memory must be whole", u64::from(no) + 1);
            return Err(Error::gguf(name, what));
        }
        Self::new(name.into(), version, metadata, tensors, vec![Arc::new(Shard::Memory(bytes))])
    }

    fn new(
        name: String,
        version: u32,
        metadata: Metadata,
        tensors: Vec<TensorInfo>,
        shards: Vec<Arc<Shard>>,
    ) -> Result<Self> {
        let by_name = NameIndex::new(tensors.len(), |i| &tensors[i].name)
            .map_err(|i| Error::gguf(&name, format!("tensor {} is there twice", Quoted(&tensors[i].name))))?;
        Ok(Gguf { name, version, metadata, tensors, by_name, shards })
    }

    /// The same bytes under other keys and names: `tensors` are some of this file's, which may be called otherwise.
    pub fn seen_as(&self, entries: Vec<(Box<str>, Value)>, tensors: Vec<TensorInfo>) -> Result<Self> {
        let metadata = Metadata::new(&self.name, entries)?;
        Self::new(self.name.clone(), self.version, metadata, tensors, self.shards.clone())
    }

    /// The same file with some tensors of another one beside its own.
    pub fn with_tensors_of(&self, other: &Gguf, tensors: Vec<TensorInfo>) -> Result<Self> {
        let before = self.shards.len();
        let taken = tensors.into_iter().map(|tensor| TensorInfo { shard: before + tensor.shard, ..tensor });
        let tensors = self.tensors.iter().cloned().chain(taken).collect();
        let shards = self.shards.iter().chain(&other.shards).cloned().collect();
        Self::new(self.name.clone(), self.version, self.metadata.clone(), tensors, shards)
    }

    /// The same with more tensors, which are held in memory.
    pub fn with_tensors(&self, new: Vec<NewTensor>) -> Result<Self> {
        let (mut tensors, mut shards) = (self.tensors.clone(), self.shards.clone());
        let mut bytes: Vec<u8> = Vec::new();
        for NewTensor { name, cols, rows, numbers } in new {
            let (offset, ty, shape) = (bytes.len() as u64, GgmlType::F32, vec![cols as u64, rows as u64]);
            bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
            let len = bytes.len() as u64 - offset;
            tensors.push(TensorInfo { name, ty, shape, shard: shards.len(), offset, bytes: len });
        }
        shards.push(Arc::new(Shard::Memory(bytes.into())));
        Self::new(self.name.clone(), self.version, self.metadata.clone(), tensors, shards)
    }

    /// The path or name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the file calls its model, on one line, or the file's own name.
    pub fn model_name(&self) -> Result<String> {
        Ok(one_line(self.metadata.str("general.name")?.unwrap_or(&self.name), 80))
    }

    /// Tells one set of weights from another cheaply: FNV-1a over the tensor directory and a sample of each
    /// tensor's bytes.
    pub fn fingerprint(&self) -> String {
        let bytes = self.tensors.iter().flat_map(|tensor| {
            let shape = tensor.shape.iter().flat_map(|d| d.to_le_bytes());
            let data = self.bytes(tensor);
            let sample = &data[data.len() / 2..][..data.len().min(64) / 2];
            tensor.name.bytes().chain(tensor.ty.name().bytes()).chain(shape).chain(sample.iter().copied())
        });
        format!("{:016x}", fnv1a(bytes))
    }

    /// Of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Bytes of all shards together.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.len() as u64).sum()
    }

    /// How many files the model is in.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The keys and values.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.find(name, |i| &self.tensors[i].name).map(|i| &self.tensors[i])
    }

    /// The tensor's bytes, inside the map; the range was checked when the file was opened.
    /// Panics if `tensor` is not one of this file's.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        let start = tensor.offset as usize;
        &self.shards[tensor.shard][start..start + tensor.bytes as usize]
    }

    /// Whether bytes come from files, a page at a time.
    pub fn is_mapped(&self) -> bool {
        self.shards.iter().all(|shard| matches!(**shard, Shard::Mapped(..)))
    }

    /// Tells the system that these of a tensor's bytes will be read soon, so that it may begin to.
    pub fn will_need(&self, tensor: &TensorInfo, range: Range<usize>) {
        /// Linux begins to read no more than its own window for reading ahead at a time, of which this is the usual size.
        #[cfg(unix)]
        const AT_ONCE: usize = 128 << 10;
        let _ = (tensor, &range);
        #[cfg(unix)]
        if let Shard::Mapped(map, _) = &*self.shards[tensor.shard] {
            for start in range.clone().step_by(AT_ONCE) {
                let len = AT_ONCE.min(range.end - start);
                let _ = map.advise_range(memmap2::Advice::WillNeed, tensor.offset as usize + start, len);
            }
        }
    }

    /// Tells the system that of these bytes some will be read and others not, so that it reads what is asked for and
    /// nothing around it.
    pub fn read_apart(&self, tensor: &TensorInfo, range: Range<usize>) {
        let _ = (tensor, &range);
        #[cfg(unix)]
        if let Shard::Mapped(map, _) = &*self.shards[tensor.shard] {
            let start = tensor.offset as usize + range.start;
            let _ = map.advise_range(memmap2::Advice::Random, start, range.len());
        }
    }

    /// Lets the system take back the pages of `range` of a tensor's bytes: they have been copied and are not
    /// needed for now. Read again, they come from the file again.
    pub fn release(&self, tensor: &TensorInfo, range: Range<usize>) {
        let _ = (tensor, &range);
        #[cfg(unix)]
        if let Shard::Mapped(map, _) = &*self.shards[tensor.shard] {
            let pages = whole_pages(tensor, range);
            if !pages.is_empty() {
                // SAFETY: the map is of a file and nobody writes to it, so its pages come back as they were.
                let _ = unsafe {
                    map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, pages.start, pages.len())
                };
            }
        }
    }

    /// The same, and the system is not to keep them in its cache either: the memory is wanted for something else.
    pub fn evict(&self, tensor: &TensorInfo, range: Range<usize>) {
        self.release(tensor, range.clone());
        #[cfg(target_os = "linux")]
        if let Shard::Mapped(_, file) = &*self.shards[tensor.shard] {
            let pages = whole_pages(tensor, range);
            // Of no bytes would be of all up to the end of the file.
            if let Some(len) = std::num::NonZeroU64::new(pages.len() as u64) {
                let _ =
                    rustix::fs::fadvise(file, pages.start as u64, Some(len), rustix::fs::Advice::DontNeed);
            }
        }
    }
}

/// The pages that hold nothing but these bytes of a tensor, as a range of its file.
#[cfg(unix)]
fn whole_pages(tensor: &TensorInfo, range: Range<usize>) -> Range<usize> {
    let page = rustix::param::page_size();
    let start = (tensor.offset as usize + range.start).next_multiple_of(page);
    let end = (tensor.offset as usize + range.end) / page * page;
    start..end.max(start)
}

fn map(path: &Path) -> Result<(Mmap, File)> {
    let io = |e| Error::io(path, e);
    // Before the file is opened, because opening a pipe waits for its other end.
    let kind = fs::metadata(path).map_err(io)?.file_type();
    if kind.is_dir() {
        let what = "is a directory; name a .gguf file in it";
        return Err(Error::gguf(path.display().to_string(), what));
    }
    if !kind.is_file() {
        let what = "is not a regular file, so it cannot be mapped into memory";
        return Err(Error::gguf(path.display().to_string(), what));
    }
    let file = File::open(path).map_err(io)?;
    // SAFETY: the map is only read, as bytes, and everything learnt from it is checked on reading. Another
    // process that writes to the file meanwhile can change weights, but not what was checked and copied.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| match e.kind() {
        io::ErrorKind::OutOfMemory => {
            Error::Memory(format!("{}: no address space to map it", path.display()))
        }
        _ => io(e),
    })?;
    Ok((map, file))
}
