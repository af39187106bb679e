//! Attention of query heads over the keys and values of one K/V head.
//!
//! # The contract
//!
//! What a query head of a row gets is the same f32, bit for bit, on every tier, whichever rows and heads stand
//! beside it and whichever thread computes it: it depends on the query and on the keys and values of the
//! cells that the row sees, in position order, by exactly this. Everything is f32; stored keys and
//! values are the numbers that [`crate::quant::dequantize`] makes of their rows.
//! ```text
//! cells in chunks of 256, counted from the sequence's first; in each chunk, over those of its cells that the row sees
//!   s[j] = Σ over d in order, from +0.0, by fma(q[d] · scale, key[j][d], ·)
//!   s[j] = cap · (2 / (1 + exp(s[j] · (-2 / cap))) - 1), where scores have a cap
//!   s[j] = s[j] - slope · |j - own place|, where scores have slopes (ALiBi)
//!   m    = max s[j]                       e[j] = exp(s[j] - m)
//!   l    = Σ e[j]: 16 sums, number i takes the j with j mod 16 = i in order; then i and i+8, i+4, i+2, i+1
//!   o[d] = Σ over j in order, from +0.0, by fma(e[j], value[j][d], ·)
//! chunks are joined in order: the first as it is, each further one (m', l', o') by
//!   M = max(m, m')     keep = exp(m - M)     take = exp(m' - M)
//!   l = l · keep + l' · take              o[d] = fma(o'[d], take, o[d] · keep)
//! a sink of score z is joined last as (z, 1, 0)
//! out[d] = o[d] / l
//! ```
//! So a chunk is a result by itself, a part (`parts`), and chunks may be dealt to threads.
//!
//! # How it goes
//!
//! A chunk's keys are unpacked once for all rows and heads of an item, 16 cells side by side in lanes, so that
//! scores need no horizontal sums; its values are unpacked as they lie. Both stay in the nearest caches
//! while a block of (row, head) pairs goes over them. Few pairs, as one row has, take both straight from the
//! cache where registers suffice (`direct`), or from floats that 64 cells at a time become in types that fewer use:
//! the same operations in the same order.

mod direct;
mod parts;
mod stored;
mod unpack;

use direct::{Read, Score, WeighAll};
pub use parts::{Join, Parts, part_floats};
use parts::{begin_parts, finish, join, part_len};
use unpack::{Cells, Prefetch};

use crate::{
    head_rows::HeadRows,
    kv_type::KvType,
    rows::SharedRows,
    simd::{Kernel, LANES, Simd, compiled_here},
};

/// Attention walks a sequence's cells in chunks of so many, counted from its first; each is a partial result.
pub const CHUNK: usize = 256;

/// Cells whose unpacked keys, then values, stay in the L1 cache while a block goes over them.
const STEP: usize = 64;

/// Pairs whose scores are held at a time.
const BLOCK: usize = 32;

/// Pairs whose sums stand in registers together.
const PAIRS: usize = 4;

/// Vectors of a row of scores.
const TILES: usize = CHUNK / LANES;

/// One vector in memory, on a cache line of its own.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct Lanes([f32; LANES]);

const ZERO: Lanes = Lanes([0.0; LANES]);

/// A row of the pass, and what it sees of its sequence's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub list: usize,
    pub to: usize,
    pub from: usize,
    pub row: usize,
    /// Its own place in the list.
    pub own: usize,
}

/// Some rows of one sequence and the query heads that share a K/V head.
pub struct Attend<'a> {
    pub head_dim: usize,
    /// Query heads of the K/V head.
    pub group: usize,
    pub scale: f32,
    pub cap: Option<f32>,
    /// By query head of the K/V head.
    pub sinks: Option<&'a [f32]>,
    /// By query head of the K/V head: what a score loses for each place between the row and the cell.
    pub slopes: Option<&'a [f32]>,
    pub keys: HeadRows,
    pub key_type: KvType,
    pub values: HeadRows,
    pub value_type: KvType,
    /// The sequence's cells in position order.
    pub list: &'a [u32],
    /// The rows, and how much of the list each sees; ascending.
    pub rows: &'a [Span],
    /// Queries and results lie at `column` of these, `group · head_dim` wide.
    pub q: &'a SharedRows,
    pub column: usize,
    pub to: To<'a>,
    pub scratch: &'a mut Scratch,
}

/// What becomes of the results.
#[derive(Clone, Copy)]
pub enum To<'a> {
    /// All chunks are joined, and the result goes where the queries lie in theirs.
    Out(&'a SharedRows),
    /// One chunk's parts are put down, to be joined by [`Join`] when all are there.
    Parts { parts: Parts<'a>, chunk: usize, first_head: usize },
}

/// Per thread, kept from pass to pass.
#[derive(Default)]
pub struct Scratch {
    /// `[pairs, head_dim]`, scaled.
    q: Vec<f32>,
    /// `[TILES, head_dim]`: lane i is cell i of the tile.
    keys: Vec<Lanes>,
    /// `[CHUNK, vectors of a head]`
    values: Vec<Lanes>,
    /// `[BLOCK, TILES]`
    scores: Vec<Lanes>,
    /// `[BLOCK]` parts of the chunk.
    parts: Vec<Lanes>,
    /// `[pairs]` parts of all chunks so far.
    joined: Vec<Lanes>,
}

impl Scratch {
    fn prepare(&mut self, pairs: usize, head_dim: usize) {
        let vectors = head_dim.div_ceil(LANES);
        self.q.resize(self.q.len().max(pairs * head_dim), 0.0);
        for (lanes, len) in [
            (&mut self.keys, TILES * head_dim),
            (&mut self.values, CHUNK * vectors),
            (&mut self.scores, BLOCK * TILES),
            (&mut self.parts, BLOCK * part_len(head_dim)),
            (&mut self.joined, pairs * part_len(head_dim)),
        ] {
            lanes.resize(lanes.len().max(len), ZERO);
        }
    }
}

impl Kernel for Attend<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if const { S::REGISTERS >= 32 } { self.attend::<S, 4>(s) } else { self.attend::<S, 1>(s) }
    }
}

impl Attend<'_> {
    /// `C`: vectors of scores or of values that stand in registers for each pair.
    #[inline(always)]
    fn attend<S: Simd, const C: usize>(mut self, s: S) {
        let pairs = self.rows.len() * self.group;
        self.scratch.prepare(pairs, self.head_dim);
        self.load_queries();
        let seen = self.rows.last().map_or(0, |row| row.to);
        let first = self.rows.first().map_or(0, |row| row.from) / CHUNK * CHUNK;
        match self.to {
            To::Out(out) => {
                for start in (first..seen).step_by(CHUNK) {
                    self.chunk::<S, C>(s, start);
                }
                self.store_results(s, out);
            }
            To::Parts { chunk, .. } => self.chunk::<S, C>(s, chunk * CHUNK),
        }
    }

    fn load_queries(&mut self) {
        let width = self.group * self.head_dim;
        for (row, scaled) in self.rows.iter().zip(self.scratch.q.chunks_exact_mut(width)) {
            // SAFETY: queries were written in an earlier phase, or by this thread.
            let q = unsafe { self.q.columns(row.row, self.column..self.column + width) };
            scaled.iter_mut().zip(q).for_each(|(scaled, q)| *scaled = q * self.scale);
        }
    }

    #[inline(always)]
    fn store_results<S: Simd>(&mut self, s: S, out: &SharedRows) {
        let parts = self.scratch.joined.chunks_exact(part_len(self.head_dim));
        for (pair, part) in parts.take(self.rows.len() * self.group).enumerate() {
            let column = self.column + pair % self.group * self.head_dim;
            let row = self.rows[pair / self.group].row;
            // SAFETY: the item's rows and columns are this thread's.
            let out = unsafe { out.row_mut(row, column..column + self.head_dim) };
            finish(s, part, self.sinks.map(|sinks| sinks[pair % self.group]), out);
        }
    }

    /// Joins what the chunk from cell `start` of the list gives, or puts it down.
    #[inline(always)]
    fn chunk<S: Simd, const C: usize>(&mut self, s: S, start: usize) {
        // Both ends of what rows see ascend.
        let first = self.rows.partition_point(|row| row.to <= start);
        let end = self.rows.partition_point(|row| row.from < start + CHUNK);
        if first >= end {
            return;
        }
        let last = &self.rows[end - 1];
        let (cells, next) = self.list[start..last.to].split_at(CHUNK.min(last.to - start));
        let mut unpacked = Unpacked { keys: 0, values: 0 };
        let pairs = end * self.group;
        for from in (first * self.group..pairs).step_by(BLOCK) {
            let lens = Lens { rows: self.rows, group: self.group, from, start };
            let n = BLOCK.min(pairs - from);
            let few = pairs - first * self.group <= direct::PAIRS && self.head_dim.is_multiple_of(LANES);
            // A square of keys and the sums must have buffer in the registers.
            if const { S::REGISTERS >= 32 } && few {
                self.direct_block(s, cells, next, &lens, n);
            } else {
                self.block::<S, C>(s, cells, next, &lens, n, &mut unpacked);
            }
            match self.to {
                To::Out(_) => self.join_parts(s, &lens, n),
                To::Parts { parts, chunk, first_head } => self.put_down(from, n, &parts, chunk, first_head),
            }
        }
    }

    /// The parts of `n` pairs, to those of the chunks before.
    #[inline(always)]
    fn join_parts<S: Simd>(&mut self, s: S, lens: &Lens, n: usize) {
        let len = part_len(self.head_dim);
        let Scratch { parts, joined, .. } = &mut *self.scratch;
        let joined = joined[lens.from * len..].chunks_exact_mut(len);
        for (pair, (joined, part)) in joined.zip(parts.chunks_exact(len)).take(n).enumerate() {
            if lens.is_first(pair) { joined.copy_from_slice(part) } else { join(s, joined, part) }
        }
    }

    fn put_down(&self, from: usize, n: usize, to: &Parts, chunk: usize, first_head: usize) {
        let parts = self.scratch.parts.chunks_exact(part_len(self.head_dim));
        for (pair, part) in (from..from + n).zip(parts) {
            let (row, head) = (self.rows[pair / self.group].row, first_head + pair % self.group);
            // SAFETY: the item's rows, heads and chunk are this thread's.
            let to = unsafe { to.rows.row_mut(row * to.n_head + head, Parts::columns(chunk, self.head_dim)) };
            to.copy_from_slice(bytemuck::cast_slice(part));
        }
    }

    /// The parts of `n` pairs in one chunk, without an unpacked copy of it.
    #[inline(always)]
    fn direct_block<S: Simd>(&mut self, s: S, cells: &[u32], next: &[u32], lens: &Lens, n: usize) {
        let (head_dim, pairs) = (self.head_dim, n);
        let Scratch { q, values: buffer, scores, parts, .. } = &mut *self.scratch;
        let q = &q[lens.from * head_dim..];
        let parts = &mut parts[..n * part_len(head_dim)];
        let list = &cells[..lens.of(n - 1)];
        let cells_from = |whole: usize| lens.begin(0) / whole * whole..list.len();
        let (keys, values) = (self.keys, self.values);
        let read = |ty, rows, then| Read { ty, rows, cells: list, then: Some(then) };
        let keys_read = read(self.key_type, keys, Prefetch { rows: values, cells: list });
        Score { keys: keys_read, cells: cells_from(LANES), q, head_dim, pairs, scores }.run(s, buffer);
        begin_parts(s, (self.cap, self.slopes), scores, lens, n, parts);
        let values_read = read(self.value_type, values, Prefetch { rows: keys, cells: next });
        WeighAll { values: values_read, cells: cells_from(STEP), weights: scores, pairs, lens, parts }
            .run(s, buffer);
    }

    /// The parts of `n` pairs in one chunk.
    #[inline(always)]
    fn block<S: Simd, const C: usize>(
        &mut self,
        s: S,
        cells: &[u32],
        next: &[u32],
        lens: &Lens,
        n: usize,
        unpacked: &mut Unpacked,
    ) {
        let head_dim = self.head_dim;
        let vectors = head_dim.div_ceil(LANES);
        let Scratch { q, keys, values, scores, parts, .. } = &mut *self.scratch;
        let q = &q[lens.from * head_dim..];
        let longest = lens.of(n - 1);
        let begin = lens.begin(0) / STEP * STEP;
        for step in (begin..longest).step_by(STEP) {
            let end = (step + STEP).min(cells.len());
            if unpacked.keys <= step {
                let prefetch = match &cells[end..] {
                    [] => Prefetch { rows: self.values, cells },
                    cells => Prefetch { rows: self.keys, cells },
                };
                let to = &mut keys[step / LANES * head_dim..];
                let cells = Cells { rows: &self.keys, list: &cells[step..end], prefetch };
                // Values of these cells come later.
                let buffer = &mut values[step * vectors..];
                unpack::keys(s, self.key_type, cells, to, head_dim, buffer);
                unpacked.keys = end;
            }
            for p in (0..n).step_by(PAIRS) {
                let pairs = PAIRS.min(n - p);
                let end = lens.of(p + pairs - 1).min(end);
                if end > step {
                    let tiles = step / LANES..end.div_ceil(LANES);
                    let (q, scores) = (&q[p * head_dim..], &mut scores[p * TILES..]);
                    macro_rules! score {
                        ($P:expr) => {
                            s.call(ScoreTiles::<{ $P }, C> { q, head_dim, keys, tiles, scores })
                        };
                    }
                    match pairs {
                        1 => score!(1),
                        2 => score!(2),
                        3 => score!(3),
                        _ => score!(PAIRS),
                    }
                }
            }
        }
        let part_len = part_len(head_dim);
        begin_parts(s, (self.cap, self.slopes), scores, lens, n, &mut parts[..n * part_len]);
        for step in (begin..longest).step_by(STEP) {
            let end = (step + STEP).min(cells.len());
            if unpacked.values <= step {
                let prefetch = match &cells[end..] {
                    [] => Prefetch { rows: self.keys, cells: next },
                    cells => Prefetch { rows: self.values, cells },
                };
                let to = &mut values[step * vectors..];
                let cells = Cells { rows: &self.values, list: &cells[step..end], prefetch };
                unpack::values(s, self.value_type, cells, to, head_dim);
                unpacked.values = end;
            }
            for p in (0..n).step_by(PAIRS) {
                let pairs = PAIRS.min(n - p);
                // What each sees before the rest, what all of them see, then each what it sees beyond: a weight of zero
                // would not do for the others, because a value may be infinite.
                let common = lens.common(p, pairs, step..end);
                macro_rules! weigh {
                    ($P:expr, $p:expr, $cells:expr) => {{
                        let (weights, parts) = (&scores[$p * TILES..], &mut parts[$p * part_len..]);
                        s.call(WeighCells::<{ $P }, C> { weights, values, vectors, cells: $cells, parts })
                    }};
                }
                for p in p..p + pairs {
                    let before = lens.begin(p).max(step)..common.start;
                    if !before.is_empty() {
                        weigh!(1, p, before);
                    }
                }
                if !common.is_empty() {
                    match pairs {
                        1 => weigh!(1, p, common.clone()),
                        2 => weigh!(2, p, common.clone()),
                        3 => weigh!(3, p, common.clone()),
                        _ => weigh!(PAIRS, p, common.clone()),
                    }
                }
                for p in p..p + pairs {
                    let beyond = common.end.max(lens.begin(p))..lens.of(p).min(end);
                    if !beyond.is_empty() {
                        weigh!(1, p, beyond);
                    }
                }
            }
        }
    }
}

/// How many cells of the chunk are unpacked.
struct Unpacked {
    keys: usize,
    values: usize,
}

/// How many cells of a chunk the pairs from `from` see.
struct Lens<'a> {
    rows: &'a [Span],
    group: usize,
    from: usize,
    start: usize,
}

impl Lens<'_> {
    #[inline(always)]
    fn of(&self, pair: usize) -> usize {
        (self.row(pair).to - self.start).min(CHUNK)
    }

    /// The first cell that it sees.
    #[inline(always)]
    fn begin(&self, pair: usize) -> usize {
        self.row(pair).from.saturating_sub(self.start)
    }

    #[inline(always)]
    fn row(&self, pair: usize) -> &Span {
        &self.rows[(self.from + pair) / self.group]
    }

    /// Which of the heads of a K/V head a pair has.
    #[inline(always)]
    fn head(&self, pair: usize) -> usize {
        (self.from + pair) % self.group
    }

    /// Whether no chunk before has anything of it.
    #[inline(always)]
    fn is_first(&self, pair: usize) -> bool {
        self.row(pair).from >= self.start
    }

    /// Which of some cells all of `pairs` pairs from `p` see; an empty range at the begin of none.
    #[inline(always)]
    fn common(&self, p: usize, pairs: usize, cells: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let start = self.begin(p + pairs - 1).clamp(cells.start, cells.end);
        let end = self.of(p).clamp(cells.start, cells.end);
        if start < end { start..end } else { cells.start..cells.start }
    }
}

/// Scores of `P` pairs with the cells of some tiles.
struct ScoreTiles<'a, const P: usize, const C: usize> {
    q: &'a [f32],
    head_dim: usize,
    keys: &'a [Lanes],
    tiles: std::ops::Range<usize>,
    scores: &'a mut [Lanes],
}

impl<const P: usize, const C: usize> Kernel for ScoreTiles<'_, P, C> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ScoreTiles { q, head_dim, keys, tiles, scores } = self;
        let mut tile = tiles.start;
        while tile + C <= tiles.end {
            score::<S, P, C>(s, q, head_dim, keys, tile, scores);
            tile += C;
        }
        if const { C > 1 } {
            while tile < tiles.end {
                score::<S, P, 1>(s, q, head_dim, keys, tile, scores);
                tile += 1;
            }
        }
    }
}

#[inline(always)]
fn score<S: Simd, const P: usize, const C: usize>(
    s: S,
    q: &[f32],
    head_dim: usize,
    keys: &[Lanes],
    tile: usize,
    scores: &mut [Lanes],
) {
    let mut q_rows = [q; P];
    for (p, row) in q_rows.iter_mut().enumerate() {
        *row = &q[p * head_dim..][..head_dim];
    }
    let mut tiles = [keys; C];
    for (c, keys) in tiles.iter_mut().enumerate() {
        *keys = &keys[(tile + c) * head_dim..][..head_dim];
    }
    let mut acc = [[s.splat(0.0); C]; P];
    for d in 0..head_dim {
        let mut key = [s.splat(0.0); C];
        for (key, tile) in key.iter_mut().zip(tiles) {
            *key = s.load(&tile[d].0);
        }
        for (acc, row) in acc.iter_mut().zip(q_rows) {
            let q = s.splat(row[d]);
            for (acc, key) in acc.iter_mut().zip(key) {
                *acc = s.fma(q, key, *acc);
            }
        }
    }
    for (p, acc) in acc.into_iter().enumerate() {
        let scores = &mut scores[p * TILES + tile..][..C];
        for (acc, to) in acc.into_iter().zip(scores) {
            s.store(acc, &mut to.0);
        }
    }
}

/// Adds the weighted values of some cells to the parts of `P` pairs.
struct WeighCells<'a, const P: usize, const C: usize> {
    weights: &'a [Lanes],
    values: &'a [Lanes],
    vectors: usize,
    cells: std::ops::Range<usize>,
    parts: &'a mut [Lanes],
}

impl<const P: usize, const C: usize> Kernel for WeighCells<'_, P, C> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let WeighCells { weights, values, vectors, cells, parts } = self;
        let mut rows = [&[0.0f32][..]; P];
        for (p, row) in rows.iter_mut().enumerate() {
            *row = &bytemuck::cast_slice(&weights[p * TILES..][..TILES])[cells.clone()];
        }
        let values = &values[cells.start * vectors..cells.end * vectors];
        let mut at = 0;
        while at + C <= vectors {
            weigh_columns::<S, P, C>(s, rows, values, vectors, at, parts);
            at += C;
        }
        if const { C > 1 } {
            while at < vectors {
                weigh_columns::<S, P, 1>(s, rows, values, vectors, at, parts);
                at += 1;
            }
        }
    }
}

#[inline(always)]
fn weigh_columns<S: Simd, const P: usize, const C: usize>(
    s: S,
    weights: [&[f32]; P],
    values: &[Lanes],
    vectors: usize,
    at: usize,
    parts: &mut [Lanes],
) {
    let first = |p: usize| p * (1 + vectors) + 1 + at;
    let mut acc = [[s.splat(0.0); C]; P];
    for (p, acc) in acc.iter_mut().enumerate() {
        for (acc, from) in acc.iter_mut().zip(&parts[first(p)..][..C]) {
            *acc = s.load(&from.0);
        }
    }
    let n = values.len() / vectors;
    let mut rows = weights;
    for row in &mut rows {
        *row = &row[..n];
    }
    for (j, cell) in values.chunks_exact(vectors).enumerate() {
        let cell = &cell[at..at + C];
        let mut value = [s.splat(0.0); C];
        for (value, from) in value.iter_mut().zip(cell) {
            *value = s.load(&from.0);
        }
        for (acc, row) in acc.iter_mut().zip(rows) {
            let weight = s.splat(row[j]);
            for (acc, value) in acc.iter_mut().zip(value) {
                *acc = s.fma(weight, value, *acc);
            }
        }
    }
    for (p, acc) in acc.into_iter().enumerate() {
        for (acc, to) in acc.into_iter().zip(&mut parts[first(p)..][..C]) {
            s.store(acc, &mut to.0);
        }
    }
}

compiled_here!(Attend, Join);
