//! Scores and weighted sums straight from the cache, for few pairs: keys are turned into lanes in registers, while
//! the products of those before are computed, and no unpacked copy is written and read again. Of the types that
//! `for_stored!` has no long kernels for, 64 cells at a time become floats in the nearest cache.

use std::{marker::PhantomData, ops::Range};

use super::{
    Lanes, Lens, STEP, TILES,
    stored::{InF32, Stored, for_stored},
    unpack::{self, Cells, IN_ORDER, Prefetch, Tile, fetch},
};
use crate::{
    head_rows::HeadRows,
    kv_type::KvType,
    simd::{Kernel, LANES, Simd},
};

/// The most pairs that an item may have: their sums stand in registers together.
pub const PAIRS: usize = 8;

/// Cells between what is computed and what memory is asked for.
const PREFETCHED: usize = 32;

/// One head's rows.
#[derive(Clone, Copy)]
pub struct Read<'a> {
    pub ty: KvType,
    pub rows: HeadRows,
    pub cells: &'a [u32],
    /// Those that are read after them; none if all lie in a cache.
    pub then: Option<Prefetch<'a>>,
}

impl Read<'_> {
    /// Asks for what comes a while after `cells`.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, cells: Range<usize>) {
        let Some(then) = self.then else {
            return;
        };
        let n = self.cells.len();
        let part = |list: &[u32], skip: usize| {
            let bound = |at: usize| (at + PREFETCHED).saturating_sub(skip).min(list.len());
            bound(cells.start)..bound(cells.end)
        };
        fetch(s, &self.rows, &self.cells[part(self.cells, 0)]);
        fetch(s, &then.rows, &then.cells[part(then.cells, n)]);
    }

    /// The rows of some cells, at their places in `buffer`.
    #[inline(always)]
    fn floats<'a, S: Simd>(
        &self,
        s: S,
        cells: Range<usize>,
        buffer: &'a mut [Lanes],
        vectors: usize,
    ) -> Read<'a> {
        let prefetch = match (&self.cells[cells.end..], self.then) {
            ([], Some(then)) => then,
            (next, _) => Prefetch { rows: self.rows, cells: next },
        };
        let to = &mut buffer[cells.start * vectors..];
        let cells_of = Cells { rows: &self.rows, list: &self.cells[cells.clone()], prefetch };
        unpack::values(s, self.ty, cells_of, to, vectors * LANES);
        Read {
            ty: KvType::F32,
            rows: unpack::rows_of(buffer, vectors),
            cells: &IN_ORDER[..cells.end],
            then: None,
        }
    }
}

/// Calls with the least of 1, 2, 4 and 8 that is no less than the number of pairs.
macro_rules! with_room_for {
    ($n:expr, $P:ident => $call:expr) => {
        match $n {
            0 | 1 => {
                const $P: usize = 1;
                $call
            }
            2 => {
                const $P: usize = 2;
                $call
            }
            3 | 4 => {
                const $P: usize = 4;
                $call
            }
            _ => {
                const $P: usize = PAIRS;
                $call
            }
        }
    };
}

/// Some cells, a step's at a time.
fn steps(cells: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    cells.clone().step_by(STEP).map(move |step| step..(step + STEP).min(cells.end))
}

/// Scores of pairs with some cells, the first of which begins a tile; lanes beyond the last cell repeat it.
pub struct Score<'a> {
    pub keys: Read<'a>,
    pub cells: Range<usize>,
    pub q: &'a [f32],
    pub head_dim: usize,
    pub pairs: usize,
    pub scores: &'a mut [Lanes],
}

impl Score<'_> {
    /// With `buffer` for the rows of all cells.
    #[inline(always)]
    pub fn run<S: Simd>(self, s: S, buffer: &mut [Lanes]) {
        for_stored!(self.keys.ty, K => self.read::<S, K>(s), else => {
            let Score { keys, cells, q, head_dim, pairs, scores } = self;
            for cells in steps(cells) {
                let keys = keys.floats(s, cells.clone(), buffer, head_dim / LANES);
                Score { keys, cells, q, head_dim, pairs, scores: &mut *scores }.read::<S, InF32>(s);
            }
        })
    }

    #[inline(always)]
    fn read<S: Simd, K: Stored>(self, s: S) {
        with_room_for!(self.pairs, P => s.call(Scores::<K, P>(self, PhantomData)))
    }
}

/// [`Score`] for up to `P` pairs.
struct Scores<'a, K, const P: usize>(Score<'a>, PhantomData<K>);

impl<K: Stored, const P: usize> Kernel for Scores<'_, K, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Score { keys, cells, q, head_dim, pairs, scores } = self.0;
        for tile in cells.start / LANES..cells.end.div_ceil(LANES) {
            let cells = tile * LANES..cells.end.min((tile + 1) * LANES);
            keys.prefetch(s, cells.clone());
            let keys = Tile::new(&keys.rows, &keys.cells[cells]);
            score_tile::<S, K, P>(s, &keys, q, head_dim, pairs, &mut scores[tile..]);
        }
    }
}

/// Of `pairs` pairs; the last one is computed again where `P` is more.
#[inline(always)]
fn score_tile<S: Simd, K: Stored, const P: usize>(
    s: S,
    keys: &Tile,
    q: &[f32],
    head_dim: usize,
    pairs: usize,
    scores: &mut [Lanes],
) {
    let mut of_pair = [&[[0.0; LANES]][..]; P];
    for (p, of_pair) in of_pair.iter_mut().enumerate() {
        *of_pair = q[p.min(pairs - 1) * head_dim..][..head_dim].as_chunks().0;
    }
    let mut acc = [s.splat(0.0); P];
    for i in 0..head_dim / LANES {
        let q = of_pair.map(|q| &q[i]);
        for (d, key) in keys.square::<S, K>(s, i * LANES).into_iter().enumerate() {
            for (acc, q) in acc.iter_mut().zip(q) {
                *acc = s.fma(s.splat(q[d]), key, *acc);
            }
        }
    }
    for (p, acc) in acc.into_iter().enumerate().take(pairs) {
        s.store(acc, &mut scores[p * TILES].0);
    }
}

/// Adds the weighted values of some cells, the first of which begins a step, to the parts of pairs, to each those that
/// it sees.
pub struct WeighAll<'a> {
    pub values: Read<'a>,
    pub cells: Range<usize>,
    pub weights: &'a [Lanes],
    pub pairs: usize,
    pub lens: &'a Lens<'a>,
    pub parts: &'a mut [Lanes],
}

impl WeighAll<'_> {
    /// With `buffer` for the rows of all cells.
    #[inline(always)]
    pub fn run<S: Simd>(self, s: S, buffer: &mut [Lanes]) {
        for_stored!(self.values.ty, V => self.read::<S, V>(s), else => {
            let WeighAll { values, cells, weights, pairs, lens, parts } = self;
            let vectors = parts.len() / pairs - 1;
            for cells in steps(cells) {
                let values = values.floats(s, cells.clone(), buffer, vectors);
                WeighAll { values, cells, weights, pairs, lens, parts: &mut *parts }.read::<S, InF32>(s);
            }
        })
    }

    #[inline(always)]
    fn read<S: Simd, V: Stored>(self, s: S) {
        with_room_for!(self.pairs, P => s.call(WeighStored::<V, P>(self, PhantomData)))
    }
}

/// [`WeighAll`] for up to `P` pairs.
struct WeighStored<'a, V, const P: usize>(WeighAll<'a>, PhantomData<V>);

impl<V: Stored, const P: usize> Kernel for WeighStored<'_, V, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let WeighAll { values, cells, weights, pairs: n, lens, parts } = self.0;
        let values = &values;
        let part_len = parts.len() / n;
        for cells in steps(cells) {
            let (step, end) = (cells.start, cells.end);
            // As in the blocks: before, together, beyond.
            let common = lens.common(0, n, cells);
            let parts = &mut *parts;
            let mut weigh = Weigh { values, cells: 0..0, weights, part_len, parts, p: 0, pairs: 1 };
            for p in 0..n {
                let before = lens.begin(p).max(step)..common.start;
                if !before.is_empty() {
                    weigh = Weigh { cells: before, p, ..weigh };
                    weigh.all_columns::<S, V, 1>(s);
                }
            }
            weigh = Weigh { cells: common.clone(), p: 0, pairs: n, ..weigh };
            weigh.all_columns::<S, V, P>(s);
            for p in 0..n {
                let from = common.end.max(lens.begin(p));
                weigh = Weigh { cells: from..lens.of(p).clamp(from, end.max(from)), p, pairs: 1, ..weigh };
                weigh.all_columns::<S, V, 1>(s);
            }
        }
    }
}

/// Adds weighted values of some cells to the parts of `pairs` pairs from `p` on.
struct Weigh<'a> {
    values: &'a Read<'a>,
    cells: Range<usize>,
    weights: &'a [Lanes],
    part_len: usize,
    parts: &'a mut [Lanes],
    p: usize,
    pairs: usize,
}

impl Weigh<'_> {
    #[inline(always)]
    fn all_columns<S: Simd, V: Stored, const P: usize>(&mut self, s: S) {
        if self.cells.is_empty() {
            return;
        }
        let vectors = self.part_len - 1;
        let mut at = 0;
        while at < vectors {
            if P <= 4 && at + 4 <= vectors {
                self.columns::<S, V, P, 4>(s, at);
                at += 4;
            } else if P > 4 && at + 2 <= vectors {
                self.columns::<S, V, P, 2>(s, at);
                at += 2;
            } else {
                self.columns::<S, V, P, 1>(s, at);
                at += 1;
            }
        }
    }

    /// `C` vectors from `at`; the last pair is computed again where `P` is more than there are.
    #[inline(always)]
    fn columns<S: Simd, V: Stored, const P: usize, const C: usize>(&mut self, s: S, at: usize) {
        let Self { values, weights, part_len, p: from, pairs, .. } = *self;
        let pair = |p: usize| from + p.min(pairs - 1);
        let first = |p: usize| pair(p) * part_len + 1 + at;
        let cells = self.cells.clone();
        let mut rows = [&[0.0f32][..]; P];
        for (p, row) in rows.iter_mut().enumerate() {
            *row = &bytemuck::cast_slice(&weights[pair(p) * TILES..][..TILES])[cells.clone()];
        }
        let mut acc = [[s.splat(0.0); C]; P];
        for (p, acc) in acc.iter_mut().enumerate() {
            for (acc, from) in acc.iter_mut().zip(&self.parts[first(p)..][..C]) {
                *acc = s.load(&from.0);
            }
        }
        for (j, &cell) in values.cells[cells.clone()].iter().enumerate() {
            if at == 0 {
                values.prefetch(s, cells.start + j..cells.start + j + 1);
            }
            // SAFETY: as for keys.
            let value_row = unsafe { values.rows.row(cell) };
            let mut value = [s.splat(0.0); C];
            for (c, value) in value.iter_mut().enumerate() {
                *value = V::load(s, value_row, (at + c) * LANES);
            }
            for (acc, row) in acc.iter_mut().zip(rows) {
                let weight = s.splat(row[j]);
                for (acc, value) in acc.iter_mut().zip(value) {
                    *acc = s.fma(weight, value, *acc);
                }
            }
        }
        for (p, acc) in acc.into_iter().enumerate().take(pairs) {
            for (acc, to) in acc.into_iter().zip(&mut self.parts[first(p)..][..C]) {
                s.store(acc, &mut to.0);
            }
        }
    }
}
