//! Keys and values in memory: per slot and K/V head, one row of `head_dim` numbers per cell, so that a
//! head's keys lie one after the other.

use std::{cell::UnsafeCell, fmt, str::FromStr};

use crate::{Error, Result};

/// How keys or values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    F32,
    F16,
    /// Blocks of 32: an f16 scale and 32 bytes.
    Q8_0,
}

pub const Q8_BLOCK: usize = 32;
pub const Q8_BLOCK_BYTES: usize = 34;

impl KvType {
    /// Bytes of one head's row.
    pub fn row_bytes(self, head_dim: usize) -> usize {
        match self {
            KvType::F32 => 4 * head_dim,
            KvType::F16 => 2 * head_dim,
            KvType::Q8_0 => head_dim / Q8_BLOCK * Q8_BLOCK_BYTES,
        }
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.to_ascii_lowercase().as_str() {
            "f32" => Ok(KvType::F32),
            "f16" => Ok(KvType::F16),
            "q8_0" => Ok(KvType::Q8_0),
            _ => Err("supported types are f16, f32, q8_0".into()),
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct KvShape {
    pub n_slots: usize,
    pub n_cells: usize,
    pub n_kv_head: usize,
    pub head_dim: usize,
}

/// All keys, or all values. Rows are written by the one thread that owns them in a phase and read after the
/// barrier that ends it.
pub struct KvStore {
    pub ty: KvType,
    shape: KvShape,
    row_bytes: usize,
    data: Box<[UnsafeCell<u8>]>,
}

// SAFETY: the cells are plain bytes, and whoever takes a row through `HeadRows` vouches for its exclusivity.
unsafe impl Sync for KvStore {}

impl KvStore {
    pub fn new(ty: KvType, shape: KvShape) -> Result<Self> {
        let KvShape { n_slots, n_cells, n_kv_head, head_dim } = shape;
        if ty == KvType::Q8_0 && head_dim % Q8_BLOCK != 0 {
            return Err(Error::Usage(format!(
                "-ctk/-ctv q8_0 needs heads of a multiple of {Q8_BLOCK}, this model's have {head_dim}: use f16"
            )));
        }
        let row_bytes = ty.row_bytes(head_dim);
        let bytes = [n_slots, n_cells, n_kv_head, row_bytes].into_iter().try_fold(1usize, usize::checked_mul);
        let data = bytes.and_then(zeroed).ok_or_else(|| {
            let gib =
                n_slots as f64 * n_cells as f64 * n_kv_head as f64 * row_bytes as f64 / (1u64 << 30) as f64;
            Error::Memory(format!(
                "no memory for {gib:.1} GiB of keys or values: use a smaller -c or -ctk q8_0"
            ))
        })?;
        Ok(KvStore { ty, shape, row_bytes, data })
    }

    pub fn n_slots(&self) -> usize {
        self.shape.n_slots
    }

    /// Where the rows of one head's cells begin, and how far apart they are.
    pub fn head(&self, slot: usize, kv_head: usize) -> HeadRows {
        let first = (slot * self.shape.n_kv_head + kv_head) * self.shape.n_cells;
        assert!(slot < self.shape.n_slots && kv_head < self.shape.n_kv_head);
        HeadRows {
            base: UnsafeCell::raw_get(self.data.as_ptr()).wrapping_add(first * self.row_bytes),
            row_bytes: self.row_bytes,
            n_cells: self.shape.n_cells,
        }
    }
}

/// Zeroed by the operating system, so that cells never used cost no memory.
fn zeroed(bytes: usize) -> Option<Box<[UnsafeCell<u8>]>> {
    let plain: Box<[u8]> = bytemuck::allocation::try_zeroed_slice_box(bytes).ok()?;
    // SAFETY: `UnsafeCell<u8>` has the layout of `u8`.
    Some(unsafe { Box::from_raw(Box::into_raw(plain) as *mut [UnsafeCell<u8>]) })
}

/// One head's rows, by cell.
#[derive(Clone, Copy)]
pub struct HeadRows {
    base: *mut u8,
    row_bytes: usize,
    n_cells: usize,
}

impl HeadRows {
    #[inline(always)]
    fn at(&self, cell: u32) -> *mut u8 {
        assert!((cell as usize) < self.n_cells);
        self.base.wrapping_add(cell as usize * self.row_bytes)
    }

    /// Where a cell's row lies, and how long it is.
    #[inline(always)]
    pub fn address(&self, cell: u32) -> (*const u8, usize) {
        (self.at(cell), self.row_bytes)
    }

    /// # Safety
    /// The store is alive and nobody writes this cell meanwhile.
    #[inline(always)]
    pub unsafe fn row<'a>(&self, cell: u32) -> &'a [u8] {
        unsafe { std::slice::from_raw_parts(self.at(cell), self.row_bytes) }
    }

    /// # Safety
    /// The store is alive and nobody else touches this cell meanwhile.
    #[inline(always)]
    pub unsafe fn row_mut<'a>(&self, cell: u32) -> &'a mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.at(cell), self.row_bytes) }
    }
}
