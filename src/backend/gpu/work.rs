//! The device buffers that a pass works in, and the K/V cache.

use super::{device::Gpu, formats::BLOCK, variants::Arith};
use crate::{
    Error, Result,
    kv_type::{KvType, Q8_BLOCK},
    plan::{Buf, Uniform, UnitSet},
};

/// Rows of a tile of `matmul_tile`; buffers of rows have whole tiles.
pub const TILE_ROWS: usize = 32;

/// Logits made, and read back, at once.
pub const OUTPUTS_AT_ONCE: usize = TILE_ROWS;

/// Cells in a chunk of attention, as in `attention.wgsl`.
pub const CHUNK: usize = 256;

/// The largest head that the kernels have room for.
pub const MOST_HEAD: usize = 512;

/// A batch of at most so many rows has its contexts split over workgroups.
const MOST_SPLIT_ROWS: usize = 8;
const MOST_SPLIT_BYTES: usize = 64 << 20;

/// Numbers in a row of matrix input: whole blocks.
pub fn padded(width: usize) -> usize {
    width.next_multiple_of(BLOCK)
}

/// Numbers in a head of queries, keys and values.
pub fn head_stride(head_dim: usize) -> usize {
    head_dim.next_multiple_of(8)
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    pub keys: KvType,
    pub values: KvType,
}

/// Words of a stored key or value: whole quads, so that keys can be read by quads.
pub fn kv_words(ty: KvType, head_dim: usize) -> usize {
    let stride = head_stride(head_dim);
    match ty {
        KvType::F32 => stride,
        KvType::F16 => stride / 2,
        KvType::Q8_0 => (stride / 4 + head_dim.div_ceil(2 * Q8_BLOCK)).next_multiple_of(4),
    }
}

pub struct WorkBuffers {
    pub max_rows: usize,
    /// `[rows, padded dim]`
    pub x: wgpu::Buffer,
    pub h: wgpu::Buffer,
    /// `[rows, n_head·head_dim + 2·n_kv_head·head_dim]`: what comes out of the matrices.
    pub qkv: wgpu::Buffer,
    /// `[rows, n_head, head_stride]`: queries, rotated.
    pub q: wgpu::Buffer,
    /// `[rows, padded n_head·head_dim]`
    pub a: wgpu::Buffer,
    /// `[rows, padded ffn]`
    pub g: wgpu::Buffer,
    /// The same for an up matrix of another format than its gate.
    pub u: Option<wgpu::Buffer>,
    pub rounded: Option<Rounded>,
    /// Chunks of attention: `[split_rows, n_head, most_chunks, head_stride + 2]`
    pub chunks: wgpu::Buffer,
    pub split_rows: usize,
    pub most_chunks: usize,
    /// `[OUTPUTS_AT_ONCE, n_vocab]`
    pub logits: Option<wgpu::Buffer>,
}

/// Rows for products that are not in floats: `[rows, blocks, Arith::block_quads]`
pub struct Rounded {
    /// Of `h`.
    pub h: wgpu::Buffer,
    /// Of `a` and of `g` in turn: a kernel makes one from the other's product, or from `h`.
    pub rest: wgpu::Buffer,
}

/// Bytes of each buffer, which placement counts with too.
struct Sizes {
    x: usize,
    qkv: usize,
    q: usize,
    a: usize,
    g: usize,
    /// At the larger of the two.
    rounded_h: usize,
    rounded_rest: usize,
    chunks: usize,
    logits: usize,
    split_rows: usize,
    most_chunks: usize,
}

fn sizes(dims: &Uniform, rows: usize, n_cells: usize) -> Sizes {
    let rows = rows.next_multiple_of(TILE_ROWS);
    let most_chunks = n_cells.div_ceil(CHUNK);
    let chunk_row = 4 * dims.n_head * most_chunks * (head_stride(dims.head_dim) + 2);
    let rounded = |width: usize| rows * padded(width) / BLOCK * 16 * Arith::Half.block_quads();
    let split_rows = (MOST_SPLIT_BYTES / chunk_row).clamp(1, MOST_SPLIT_ROWS);
    Sizes {
        x: 4 * rows * padded(dims.dim),
        qkv: 4 * rows * (dims.width(Buf::Q) + 2 * dims.kv_width()),
        q: 4 * rows * dims.n_head * head_stride(dims.head_dim),
        a: 4 * rows * padded(dims.width(Buf::A)),
        g: 4 * rows * padded(dims.ffn),
        rounded_h: rounded(dims.dim),
        rounded_rest: rounded(dims.width(Buf::A).max(dims.ffn)),
        chunks: split_rows * chunk_row,
        logits: 4 * OUTPUTS_AT_ONCE * dims.n_vocab,
        split_rows,
        most_chunks,
    }
}

impl WorkBuffers {
    pub fn new(gpu: &Gpu, dims: &Uniform, max_rows: usize, n_cells: usize, needs: Needs) -> Result<Self> {
        use wgpu::BufferUsages as Usage;
        let plain = Usage::STORAGE;
        let both_ways = Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC;
        let sizes = sizes(dims, max_rows, n_cells);
        let buffer = |label, bytes: usize, usage| {
            if bytes as u64 > gpu.binding_bytes() {
                return Err(too_large(gpu, label, bytes as u64));
            }
            gpu.buffer(label, bytes as u64, usage)
        };
        Ok(WorkBuffers {
            max_rows,
            x: buffer("hidden rows", sizes.x, both_ways)?,
            h: buffer("normed rows", sizes.x, plain)?,
            qkv: buffer("queries, keys and values", sizes.qkv, plain)?,
            q: buffer("queries", sizes.q, plain)?,
            a: buffer("attention's rows", sizes.a, plain)?,
            g: buffer("gated rows", sizes.g, plain)?,
            u: if needs.up { Some(buffer("up rows", sizes.g, plain)?) } else { None },
            rounded: if needs.arith == Arith::Float {
                None
            } else {
                let h = buffer("normed rows, rounded", sizes.rounded_h, plain)?;
                Some(Rounded { h, rest: buffer("rounded rows", sizes.rounded_rest, plain)? })
            },
            chunks: buffer("attention's chunks", sizes.chunks, plain)?,
            split_rows: sizes.split_rows,
            most_chunks: sizes.most_chunks,
            logits: if needs.logits { Some(buffer("logits", sizes.logits, both_ways)?) } else { None },
        })
    }

    /// Bytes of all of them but the logits, for a plan of what fits.
    pub fn bytes(dims: &Uniform, max_rows: usize, n_cells: usize) -> u64 {
        let s = sizes(dims, max_rows, n_cells);
        (2 * s.x + s.qkv + s.q + s.a + 2 * s.g + s.rounded_h + s.rounded_rest + s.chunks) as u64
    }
}

/// What not every plan needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    pub up: bool,
    pub logits: bool,
    pub arith: Arith,
}

fn too_large(gpu: &Gpu, label: &str, bytes: u64) -> Error {
    Error::Memory(format!(
        "{}: {label} take {} MiB, the device binds at most {} MiB: a smaller `n_ctx` or `n_ubatch`",
        gpu.info.name,
        bytes >> 20,
        gpu.binding_bytes() >> 20
    ))
}

/// Keys and values by slot.
pub struct Cache {
    pub stored: Stored,
    pub n_cells: usize,
    slots: Vec<Option<(wgpu::Buffer, wgpu::Buffer)>>,
}

impl Cache {
    /// Slots of the layers that `held` runs attention of, and those that no layer owns.
    pub fn new(
        gpu: &Gpu,
        dims: &Uniform,
        held: &UnitSet,
        n_slots: usize,
        n_cells: usize,
        stored: Stored,
    ) -> Result<Self> {
        stored.keys.check(dims.head_dim)?;
        stored.values.check(dims.head_dim)?;
        let buffer = |label, ty| {
            let bytes = 4 * (dims.n_kv_head * n_cells * kv_words(ty, dims.head_dim)) as u64;
            if bytes > gpu.binding_bytes() {
                return Err(too_large(gpu, label, bytes));
            }
            gpu.buffer(label, bytes, wgpu::BufferUsages::STORAGE)
        };
        let slots = (0..n_slots).map(|slot| {
            let wanted = held.attn.get(slot).copied().unwrap_or(true);
            if wanted {
                Ok(Some((buffer("keys", stored.keys)?, buffer("values", stored.values)?)))
            } else {
                Ok(None)
            }
        });
        Ok(Cache { stored, n_cells, slots: slots.collect::<Result<_>>()? })
    }

    /// One slot, of f32.
    #[cfg(test)]
    pub fn of(keys: wgpu::Buffer, values: wgpu::Buffer, n_cells: usize) -> Self {
        let slots = vec![Some((keys, values))];
        let stored = Stored { keys: KvType::F32, values: KvType::F32 };
        Cache { stored, n_cells, slots }
    }

    pub fn slot(&self, slot: usize) -> (&wgpu::Buffer, &wgpu::Buffer) {
        let (keys, values) = self.slots[slot].as_ref().expect("attention runs where its keys are");
        (keys, values)
    }

    /// Words of a stored key, and of a value.
    pub fn words(&self, dims: &Uniform) -> [usize; 2] {
        [self.stored.keys, self.stored.values].map(|ty| kv_words(ty, dims.head_dim))
    }

    /// Bytes of a cell's keys and values in a slot.
    pub fn cell_bytes(&self, dims: &Uniform) -> u64 {
        let [keys, values] = self.words(dims);
        4 * (dims.n_kv_head * (keys + values)) as u64
    }

    /// Slots that live here.
    pub fn held(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.slots.len()).filter(|&slot| self.slots[slot].is_some())
    }
}
