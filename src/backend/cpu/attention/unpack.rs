//! Stored keys and values as numbers: keys with cells in lanes, values as they lie.

use super::{
    super::{
        kv_store::{HeadRows, KvType, Q8_BLOCK, Q8_BLOCK_BYTES},
        simd::{LANES, Simd},
    },
    Lanes,
};
use crate::quant::F16;

/// How a stored row is read, sixteen numbers at a time.
trait Stored {
    /// Numbers `at..at + 16`, zero where the row ends before.
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F;
}

struct InF16;
struct InF32;
struct InQ8;

impl Stored for InF16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let row = &bytemuck::cast_slice::<u8, F16>(row)[at..];
        match row.first_chunk() {
            Some(x) => s.load_f16(x),
            None => s.load_f16_partial(row),
        }
    }
}

impl Stored for InF32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let mut x = [0.0; LANES];
        for (x, bytes) in x.iter_mut().zip(row[4 * at..].as_chunks::<4>().0) {
            *x = f32::from_le_bytes(*bytes);
        }
        s.load(&x)
    }
}

impl Stored for InQ8 {
    /// Rows are whole blocks.
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[u8], at: usize) -> S::F {
        let block = &row[at / Q8_BLOCK * Q8_BLOCK_BYTES..][..Q8_BLOCK_BYTES];
        let scale = F16([block[0], block[1]]).to_f32();
        let q = bytemuck::cast_slice::<u8, i8>(&block[2 + at % Q8_BLOCK..]);
        s.mul(s.splat(scale), s.load_i8(q.first_chunk().expect("half a block")))
    }
}

/// Rows that will be unpacked next: asked for a while before, so that memory works while numbers are computed.
#[derive(Clone, Copy)]
pub struct Ahead<'a> {
    pub rows: HeadRows,
    pub cells: &'a [u32],
}

impl Ahead<'_> {
    /// Asks for the rows of the cells that stand at `from..to`.
    #[inline(always)]
    pub fn ask<S: Simd>(&self, s: S, from: usize, to: usize) {
        const LINE: usize = 64;
        for &cell in self.cells.iter().take(to).skip(from) {
            let (first, bytes) = self.rows.address(cell);
            // A row that begins within a line ends in one more.
            for at in (0..bytes + LINE - 1).step_by(LINE) {
                s.prefetch(first.wrapping_add(at.min(bytes - 1)));
            }
        }
    }
}

/// `out` is `[tiles, head_dim]`: the number d of 16 cells together. Lanes beyond the last cell repeat it.
#[inline(always)]
pub fn keys<S: Simd>(
    s: S,
    ty: KvType,
    rows: &HeadRows,
    cells: &[u32],
    ahead: Ahead,
    out: &mut [Lanes],
    head_dim: usize,
) {
    match ty {
        KvType::F16 => transposed::<S, InF16>(s, rows, cells, ahead, out, head_dim),
        KvType::F32 => transposed::<S, InF32>(s, rows, cells, ahead, out, head_dim),
        KvType::Q8_0 => transposed::<S, InQ8>(s, rows, cells, ahead, out, head_dim),
    }
}

/// `out` is `[cells, vectors]`.
#[inline(always)]
pub fn values<S: Simd>(
    s: S,
    ty: KvType,
    rows: &HeadRows,
    cells: &[u32],
    ahead: Ahead,
    out: &mut [Lanes],
    vectors: usize,
) {
    match ty {
        KvType::F16 => plain::<S, InF16>(s, rows, cells, ahead, out, vectors),
        KvType::F32 => plain::<S, InF32>(s, rows, cells, ahead, out, vectors),
        KvType::Q8_0 => plain::<S, InQ8>(s, rows, cells, ahead, out, vectors),
    }
}

#[inline(always)]
fn transposed<S: Simd, K: Stored>(
    s: S,
    rows: &HeadRows,
    cells: &[u32],
    ahead: Ahead,
    out: &mut [Lanes],
    head_dim: usize,
) {
    for (tile, (cells, out)) in cells.chunks(LANES).zip(out.chunks_exact_mut(head_dim)).enumerate() {
        ahead.ask(s, tile * LANES, (tile + 1) * LANES);
        let mut tile = [cells[cells.len() - 1]; LANES];
        tile[..cells.len()].copy_from_slice(cells);
        for (i, out) in out.chunks_mut(LANES).enumerate() {
            let mut square = [s.splat(0.0); LANES];
            for (row, cell) in square.iter_mut().zip(tile) {
                // SAFETY: keys of visible cells were written in an earlier phase or pass.
                *row = K::load(s, unsafe { rows.row(cell) }, i * LANES);
            }
            for (out, column) in out.iter_mut().zip(s.transpose(square)) {
                s.store(column, &mut out.0);
            }
        }
    }
}

#[inline(always)]
fn plain<S: Simd, V: Stored>(
    s: S,
    rows: &HeadRows,
    cells: &[u32],
    ahead: Ahead,
    out: &mut [Lanes],
    vectors: usize,
) {
    for (j, (&cell, out)) in cells.iter().zip(out.chunks_exact_mut(vectors)).enumerate() {
        ahead.ask(s, j, j + 1);
        // SAFETY: as for keys.
        let row = unsafe { rows.row(cell) };
        for (i, out) in out.iter_mut().enumerate() {
            s.store(V::load(s, row, i * LANES), &mut out.0);
        }
    }
}
