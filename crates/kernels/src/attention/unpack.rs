//! Stored keys and values as numbers: keys with cells in lanes, values as they lie.

use std::marker::PhantomData;

use super::{
    CHUNK, Lanes,
    stored::{InF32, Stored, for_stored},
};
use crate::{
    head_rows::HeadRows,
    kv_type::KvType,
    simd::{Kernel, LANES, Simd},
};

/// Rows that will be unpacked next: asked for a while before, so that memory works while numbers are computed.
#[derive(Clone, Copy)]
pub struct Prefetch<'a> {
    pub rows: HeadRows,
    pub cells: &'a [u32],
}

impl Prefetch<'_> {
    /// Asks for the rows of the cells that stand at `from..to`.
    #[inline(always)]
    pub fn fetch<S: Simd>(&self, s: S, from: usize, to: usize) {
        let n = self.cells.len();
        fetch(s, &self.rows, &self.cells[from.min(n)..to.min(n)]);
    }
}

/// Asks for every cache line of the cells' rows.
#[inline(always)]
pub fn fetch<S: Simd>(s: S, rows: &HeadRows, cells: &[u32]) {
    const LINE: usize = 64;
    for &cell in cells {
        let (row, bytes) = rows.address(cell);
        for at in (0..row.addr() % LINE + bytes).step_by(LINE) {
            s.prefetch(row.wrapping_add(at.min(bytes - 1)));
        }
    }
}

/// The cells of a chunk whose rows lie in order.
pub static IN_ORDER: [u32; CHUNK] = {
    let mut cells = [0; CHUNK];
    let mut i = 0;
    while i < CHUNK {
        cells[i] = i as u32;
        i += 1;
    }
    cells
};

/// What [`values`] has made, as rows of floats.
#[inline(always)]
pub fn rows_of(unpacked: &[Lanes], vectors: usize) -> HeadRows {
    HeadRows::of_rows(bytemuck::cast_slice(unpacked), vectors * size_of::<Lanes>())
}

/// `out` is `[tiles, head_dim]`: the number d of 16 cells together. Lanes beyond the last cell repeat it. `buffer` is for
/// the rows as they lie.
#[inline(always)]
pub fn keys<S: Simd>(
    s: S,
    ty: KvType,
    cells: Cells,
    out: &mut [Lanes],
    head_dim: usize,
    buffer: &mut [Lanes],
) {
    for_stored!(ty, K => s.call(Keys::<K> { cells, out, head_dim, stored: PhantomData }), else => {
        let list = &IN_ORDER[..cells.list.len()];
        values(s, ty, cells, buffer, head_dim);
        let rows = rows_of(buffer, head_dim.div_ceil(LANES));
        let cells = Cells { rows: &rows, list, prefetch: Prefetch { rows, cells: &[] } };
        s.call(Keys::<InF32> { cells, out, head_dim, stored: PhantomData })
    })
}

/// `out` is `[cells, vectors of a head]`.
#[inline(always)]
pub fn values<S: Simd>(s: S, ty: KvType, cells: Cells, out: &mut [Lanes], head_dim: usize) {
    for_stored!(ty, V => s.call(Values::<V> { cells, out, head_dim, stored: PhantomData }))
}

/// What is unpacked, and what will be next.
pub struct Cells<'a> {
    pub rows: &'a HeadRows,
    pub list: &'a [u32],
    pub prefetch: Prefetch<'a>,
}

/// The arguments of [`keys`].
struct Keys<'a, K> {
    cells: Cells<'a>,
    out: &'a mut [Lanes],
    head_dim: usize,
    stored: PhantomData<K>,
}

impl<K: Stored> Kernel for Keys<'_, K> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Keys { cells: Cells { rows, list, prefetch }, out, head_dim, .. } = self;
        for (tile, (cells, out)) in list.chunks(LANES).zip(out.chunks_exact_mut(head_dim)).enumerate() {
            prefetch.fetch(s, tile * LANES, (tile + 1) * LANES);
            let rows = Tile::new(rows, cells);
            let (squares, last) = out.as_chunks_mut::<LANES>();
            let at = LANES * squares.len();
            for (i, out) in squares.iter_mut().enumerate() {
                for (out, column) in out.iter_mut().zip(rows.square::<S, K>(s, i * LANES)) {
                    s.store(column, &mut out.0);
                }
            }
            if !last.is_empty() {
                let mut square = [s.splat(0.0); LANES];
                for (i, to) in square.iter_mut().enumerate() {
                    *to = K::load_last(s, rows.row(i), at);
                }
                for (out, column) in last.iter_mut().zip(s.transpose(square)) {
                    s.store(column, &mut out.0);
                }
            }
        }
    }
}

/// The arguments of [`values`].
struct Values<'a, V> {
    cells: Cells<'a>,
    out: &'a mut [Lanes],
    head_dim: usize,
    stored: PhantomData<V>,
}

impl<V: Stored> Kernel for Values<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Values { cells: Cells { rows, list, prefetch }, out, head_dim, .. } = self;
        let (whole, vectors) = (head_dim / LANES, head_dim.div_ceil(LANES));
        for (j, (&cell, out)) in list.iter().zip(out.chunks_exact_mut(vectors)).enumerate() {
            prefetch.fetch(s, j, j + 1);
            // SAFETY: as for keys.
            let row = unsafe { rows.row(cell) };
            for (i, out) in out[..whole].iter_mut().enumerate() {
                s.store(V::load(s, row, i * LANES), &mut out.0);
            }
            if whole < vectors {
                s.store(V::load_last(s, row, whole * LANES), &mut out[whole].0);
            }
        }
    }
}

/// The rows of up to 16 cells; the last one's again where there are fewer.
pub struct Tile {
    rows: [*const u8; LANES],
    /// Of each; in one place, so that one check does for all.
    bytes: usize,
}

impl Tile {
    #[inline(always)]
    pub fn new(rows: &HeadRows, cells: &[u32]) -> Self {
        let (last, bytes) = rows.address(cells[cells.len() - 1]);
        let mut tile = Tile { rows: [last; LANES], bytes };
        for (to, &cell) in tile.rows.iter_mut().zip(cells) {
            (*to, _) = rows.address(cell);
        }
        tile
    }

    #[inline(always)]
    fn row(&self, i: usize) -> &[u8] {
        // SAFETY: keys of visible cells were written in an earlier phase or pass.
        unsafe { std::slice::from_raw_parts(self.rows[i], self.bytes) }
    }

    /// Numbers `at..at + 16` of the rows, each number of all rows in a vector.
    #[inline(always)]
    pub fn square<S: Simd, K: Stored>(&self, s: S, at: usize) -> [S::F; LANES] {
        let mut square = [s.splat(0.0); LANES];
        for (i, to) in square.iter_mut().enumerate() {
            *to = K::load(s, self.row(i), at);
        }
        s.transpose(square)
    }
}
