//! Scores and weighted sums straight from the cache, for few pairs: keys are turned into lanes in registers, while
//! the products of those before are computed, and no unpacked copy is written and read again.

use std::{marker::PhantomData, ops::Range};

use super::{
    super::{
        kv_store::HeadRows,
        simd::{Kernel, LANES, Simd},
    },
    Lanes, Lens, STEP, TILES,
    stored::{Stored, for_stored},
    unpack::{Tile, ask},
};
use crate::kv_type::KvType;

/// The most pairs that an item may have: their sums stand in registers together.
pub const PAIRS: usize = 8;

/// Cells between what is computed and what memory is asked for.
const AHEAD: usize = 32;

/// One head's rows, and those that are read after them.
#[derive(Clone, Copy)]
pub struct Read<'a> {
    pub ty: KvType,
    pub rows: &'a HeadRows,
    pub cells: &'a [u32],
    pub then: (&'a HeadRows, &'a [u32]),
}

impl Read<'_> {
    /// Asks for what comes a while after `cells`.
    #[inline(always)]
    fn ask_ahead<S: Simd>(&self, s: S, cells: Range<usize>) {
        let n = self.cells.len();
        let part = |list: &[u32], skip: usize| {
            let bound = |at: usize| (at + AHEAD).saturating_sub(skip).min(list.len());
            bound(cells.start)..bound(cells.end)
        };
        ask(s, self.rows, &self.cells[part(self.cells, 0)]);
        let (rows, then) = self.then;
        ask(s, rows, &then[part(then, n)]);
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

/// Scores of `n` pairs with the cells from `begin`; lanes beyond the last cell repeat it.
#[inline(always)]
pub fn scores<S: Simd>(
    s: S,
    keys: &Read,
    q: &[f32],
    head_dim: usize,
    n: usize,
    begin: usize,
    scores: &mut [Lanes],
) {
    for_stored!(keys.ty, K => with_room_for!(n, P => {
        s.call(Scores::<K, P> { keys, q, head_dim, pairs: n, begin, scores, stored: PhantomData })
    }))
}

/// The arguments of [`scores`], for up to `P` pairs.
struct Scores<'a, K, const P: usize> {
    keys: &'a Read<'a>,
    q: &'a [f32],
    head_dim: usize,
    pairs: usize,
    begin: usize,
    scores: &'a mut [Lanes],
    stored: PhantomData<K>,
}

impl<K: Stored, const P: usize> Kernel for Scores<'_, K, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Scores { keys, q, head_dim, pairs, begin, scores, .. } = self;
        for tile in begin / LANES..keys.cells.len().div_ceil(LANES) {
            let cells = tile * LANES..keys.cells.len().min((tile + 1) * LANES);
            keys.ask_ahead(s, cells.clone());
            let keys = Tile::new(keys.rows, &keys.cells[cells]);
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

/// Adds the weighted values of the cells to the parts of `n` pairs, to each those that it sees.
#[inline(always)]
pub fn weigh<S: Simd>(s: S, values: &Read, weights: &[Lanes], n: usize, lens: &Lens, parts: &mut [Lanes]) {
    for_stored!(values.ty, V => with_room_for!(n, P => {
        s.call(WeighAll::<V, P> { values, weights, n, lens, parts, stored: PhantomData })
    }))
}

/// The arguments of [`weigh`], for up to `P` pairs.
struct WeighAll<'a, V, const P: usize> {
    values: &'a Read<'a>,
    weights: &'a [Lanes],
    n: usize,
    lens: &'a Lens<'a>,
    parts: &'a mut [Lanes],
    stored: PhantomData<V>,
}

impl<V: Stored, const P: usize> Kernel for WeighAll<'_, V, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let WeighAll { values, weights, n, lens, parts, .. } = self;
        let part_len = parts.len() / n;
        let begin = lens.begin(0) / STEP * STEP;
        for step in (begin..values.cells.len()).step_by(STEP) {
            let end = (step + STEP).min(values.cells.len());
            // As in the blocks: before, together, beyond.
            let common = lens.common(0, n, step..end);
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
                values.ask_ahead(s, cells.start + j..cells.start + j + 1);
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
