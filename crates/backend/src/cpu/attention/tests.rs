use super::{deal::Items, *};
use crate::{
    backend::{Seen, View},
    cpu::{kv_store::KvStore, ops::StoreRow, rows::SharedRows, simd::Isa},
    kv::{CellClass, KvLayout, SlotShape},
    kv_type::KvType,
};

/// Numbers in -1..1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / (1 << 23) as f32) - 1.0
    }

    fn below(&mut self, n: usize) -> usize {
        ((self.next() + 1.0) * 0.5 * n as f32) as usize % n
    }
}

/// One K/V head, some sequences, and rows that attend to them.
struct Case {
    head_dim: usize,
    group: usize,
    keys: KvStore,
    values: KvStore,
    view: View<'static>,
    q: SharedRows,
    cap: Option<f32>,
    sinks: Option<Vec<f32>>,
    slopes: Option<Vec<f32>>,
}

impl Case {
    /// `lens`: for each sequence, how much of its list its rows see.
    fn new(
        head_dim: usize,
        group: usize,
        types: (KvType, KvType),
        order: impl Fn(&mut Numbers, usize) -> Vec<u32>,
        lens: &[Vec<usize>],
    ) -> Self {
        let mut numbers = Numbers((head_dim * 31 + group) as u64);
        let n_cells = 1500;
        let layout = KvLayout {
            classes: vec![CellClass { window: None, n_cells }],
            slots: vec![SlotShape { n_kv_head: 1, head_dim, class: 0, keys_only: false }],
            mtp: None,
            keys_turn: true,
            recurrent: 0,
            states: 0,
        };
        let mut store = |ty| {
            let store = KvStore::new(ty, layout.clone()).unwrap();
            for cell in 0..n_cells as u32 {
                let x: Vec<f32> = (0..head_dim).map(|_| 2.0 * numbers.next()).collect();
                // SAFETY: nobody else has the store.
                let row = unsafe { store.head(0, 0, head_dim).row_mut(cell) };
                StoreRow { ty, x: &x, row }.on(Isa::Scalar);
            }
            store
        };
        let (keys, values) = (store(types.0), store(types.1));
        let lists: Vec<_> =
            lens.iter().map(|lens| order(&mut numbers, *lens.iter().max().unwrap()).into()).collect();
        // Rows of different sequences by turns.
        let most = lens.iter().map(Vec::len).max().unwrap();
        let visible: Vec<Seen> = (0..most)
            .flat_map(|i| {
                let seen = move |(list, lens): (usize, &Vec<usize>)| {
                    Some(Seen { list, from: 0, to: *lens.get(i)?, own: lens.get(i)? - 1 })
                };
                lens.iter().enumerate().filter_map(seen)
            })
            .collect();
        let q = SharedRows::new(visible.len(), group * head_dim);
        for row in 0..visible.len() {
            // SAFETY: as above.
            let q = unsafe { q.row_mut(row, 0..group * head_dim) };
            q.fill_with(|| 3.0 * numbers.next());
        }
        Case {
            head_dim,
            group,
            keys,
            values,
            view: View { lists, visible },
            q,
            cap: None,
            sinks: None,
            slopes: None,
        }
    }

    /// Rows see the last `window` cells of what they saw.
    fn with_window(mut self, window: usize) -> Self {
        self.view.visible.iter_mut().for_each(|seen| seen.from = seen.to.saturating_sub(window));
        self
    }

    fn with_cap(self, cap: f32) -> Self {
        Case { cap: Some(cap), ..self }
    }

    fn with_sinks(self) -> Self {
        Case { sinks: Some((0..self.group).map(|head| head as f32 - 1.5).collect()), ..self }
    }

    fn with_slopes(self) -> Self {
        Case { slopes: Some((0..self.group).map(|head| 0.5f32.powi(head as i32 + 2)).collect()), ..self }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Attention of some of the rows, those of one sequence together.
    fn attend(&self, isa: Isa, rows: &[usize]) -> Vec<Vec<f32>> {
        let out = SharedRows::new(rows.len(), self.group * self.head_dim);
        let q = SharedRows::new(rows.len(), self.group * self.head_dim);
        for (to, &from) in rows.iter().enumerate() {
            // SAFETY: one thread.
            unsafe { q.row_mut(to, 0..q.width()).copy_from_slice(self.q.row(from)) };
        }
        let mut items = Items::default();
        items.fill(&self.view, rows.iter().copied(), self.group, 1, false);
        let mut scratch = Scratch::default();
        for item in items.all() {
            Attend {
                head_dim: self.head_dim,
                group: self.group,
                scale: self.scale(),
                cap: self.cap,
                sinks: self.sinks.as_deref(),
                slopes: self.slopes.as_deref(),
                keys: self.keys.head(0, 0, self.head_dim),
                key_type: self.keys.ty,
                values: self.values.head(0, 0, self.head_dim),
                value_type: self.values.ty,
                list: &self.view.lists[item.list],
                rows: item.rows,
                q: &q,
                column: 0,
                to: To::Out(&out),
                scratch: &mut scratch,
            }
            .on(isa);
        }
        // SAFETY: as above.
        (0..rows.len()).map(|row| unsafe { out.row(row) }.to_vec()).collect()
    }

    fn stored(&self, store: &KvStore, cell: u32) -> Vec<f64> {
        let mut x = vec![0.0; self.head_dim];
        // SAFETY: as above.
        store.ty.take(unsafe { store.head(0, 0, self.head_dim).row(cell) }, &mut x);
        x.into_iter().map(f64::from).collect()
    }

    /// What one row should get, by the textbook, and by how much f32 may be off.
    fn expected(&self, row: usize) -> Vec<(f64, f64)> {
        const U: f64 = 1.0 / (1 << 24) as f64;
        let cells = self.view.cells(row);
        let scale = f64::from(self.scale());
        // SAFETY: as above.
        let q = unsafe { self.q.row(row) };
        let values: Vec<_> = cells.iter().map(|&c| self.stored(&self.values, c)).collect();
        let mut out = Vec::new();
        for (head, q) in q.chunks_exact(self.head_dim).enumerate() {
            let (mut scores, mut off) = (Vec::new(), 0.0f64);
            for &cell in cells {
                let products =
                    self.stored(&self.keys, cell).into_iter().zip(q).map(|(k, q)| k * f64::from(*q) * scale);
                let (sum, size) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                // A rounding for q · scale and one for each element.
                let mut score_off = (self.head_dim + 1) as f64 * U * size;
                if let Some(cap) = self.cap.map(f64::from) {
                    // No slope above 1. The tangent is made of numbers up to 2, by an exponential, a sum, a quotient and a
                    // difference, and is multiplied once more.
                    score_off += 8.0 * U * cap;
                    scores.push(cap * (sum / cap).tanh());
                } else {
                    scores.push(sum);
                }
                if let Some(slopes) = &self.slopes {
                    let Seen { from, own, .. } = self.view.visible[row];
                    let loss = f64::from(slopes[head]) * (from + scores.len() - 1).abs_diff(own) as f64;
                    if let Some(score) = scores.last_mut() {
                        *score -= loss;
                        // The product is rounded, and the difference.
                        score_off += U * (loss + score.abs());
                    }
                }
                off = off.max(score_off);
            }
            let sink = self.sinks.as_ref().map(|sinks| f64::from(sinks[head]));
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - max).exp());
            // A weight: twice the error of a score, the rounding of the difference, an ulp of exp (2 U), the
            // joins with as much again. Sums: one rounding for each cell of a chunk and two for each join.
            // Once in the numerator and once in the denominator.
            let joins = cells.len().div_ceil(CHUNK) as f64 + f64::from(u8::from(sink.is_some())) + 1.0;
            let weight = 2.0 * off + U * (max - least) * (1.0 + joins) + 2.0 * U * (1.0 + joins);
            let relative = 2.0 * (weight + U * (CHUNK as f64 + 3.0 * joins)) + U;
            for d in 0..self.head_dim {
                let terms = weights.iter().zip(&values).map(|(w, v)| w / sum * v[d]);
                let (x, size) = terms.fold((0.0, 0.0), |(x, size), t| (x + t, size + t.abs()));
                out.push((x, size * relative));
            }
        }
        out
    }

    fn check(&self, rows: impl Iterator<Item = usize>, name: &str) {
        let all: Vec<usize> = (0..self.view.visible.len()).collect();
        let got = self.attend(Isa::detect(), &all);
        for row in rows {
            for (i, (got, (expected, tolerance))) in got[row].iter().zip(self.expected(row)).enumerate() {
                let off = (f64::from(*got) - expected).abs();
                assert!(
                    off <= tolerance,
                    "{name}: row {row}, {i}: {got} for {expected}, off by {off}, may be {tolerance}"
                );
                // The bound is of use only if a wrong cell or weight would break it.
                assert!(tolerance < 2e-3, "{name}: {tolerance}");
            }
        }
    }
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

fn in_order(_: &mut Numbers, n: usize) -> Vec<u32> {
    (0..n as u32).collect()
}

/// No two neighbours in a run.
fn shuffled(numbers: &mut Numbers, n: usize) -> Vec<u32> {
    let mut cells: Vec<u32> = (0..1500).collect();
    for i in (1..cells.len()).rev() {
        cells.swap(i, numbers.below(i + 1));
    }
    cells.truncate(n);
    cells
}

/// Runs that begin anywhere, as forks and truncations leave them.
fn in_runs(numbers: &mut Numbers, n: usize) -> Vec<u32> {
    let mut cells = Vec::new();
    let mut from = 3 + numbers.below(9) as u32;
    while cells.len() < n {
        let len = 1 + numbers.below(40) as u32;
        cells.extend(from..from + len);
        from += len + numbers.below(3) as u32;
    }
    cells.truncate(n);
    cells
}

const F16: (KvType, KvType) = (KvType::F16, KvType::F16);

#[test]
fn attention_is_the_textbooks_for_every_shape() {
    for head_dim in [16, 32, 64, 80, 128] {
        for group in [1, 2, 3, 4, 8] {
            let lens = [vec![1, 2, 15, 16, 17], vec![255, 256, 257, 300], vec![513]];
            Case::new(head_dim, group, F16, in_runs, &lens).check(0..10, &format!("{head_dim} x {group}"));
        }
    }
}

#[test]
fn attention_is_the_textbooks_for_every_type_and_list() {
    let orders = [
        ("in order", in_order as fn(&mut Numbers, usize) -> Vec<u32>),
        ("shuffled", shuffled),
        ("runs", in_runs),
    ];
    for (i, k) in KvType::ALL.into_iter().enumerate() {
        for (j, v) in KvType::ALL.into_iter().enumerate() {
            let (name, order) = orders[(i + j) % 3];
            let lens = [vec![40, 41, 42, 43], vec![270]];
            Case::new(64, 4, (k, v), order, &lens).check(0..5, &format!("{k} {v} {name}"));
        }
    }
    // A head that is no whole vector.
    Case::new(8, 2, F16, in_runs, &[vec![9, 300]]).check(0..2, "heads of 8");
}

#[test]
fn many_rows_are_the_textbooks() {
    let causal = |from: usize, n: usize| (from + 1..=from + n).collect::<Vec<_>>();
    for n in [2, 7, 16, 31, 70] {
        let case = Case::new(64, 8, F16, in_order, &[causal(240, n), causal(0, 5)]);
        case.check((0..n).step_by(5), &format!("{n} rows"));
    }
}

fn same_bits_alone_and_on_every_tier(case: &Case, name: &str) {
    let rows: Vec<usize> = (0..case.view.visible.len()).collect();
    let together = bits(&case.attend(Isa::detect(), &rows));
    for isa in Isa::available() {
        assert!(bits(&case.attend(isa, &rows)) == together, "{name}: {isa}");
    }
    for size in [1, 2, 3, 5, 16] {
        for part in rows.chunks(size) {
            let alone = bits(&case.attend(Isa::detect(), part));
            assert!(alone == together[part[0]..][..part.len()], "{name}: {size} rows from {}", part[0]);
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_on_every_tier() {
    for (head_dim, group, types) in [
        (64, 8, F16),
        (80, 1, (KvType::F32, KvType::F16)),
        (128, 3, (KvType::Q8_0, KvType::F16)),
        (16, 2, F16),
        (32, 4, (KvType::Q8_0, KvType::Q8_0)),
    ] {
        let lens = [(230..290).collect::<Vec<_>>(), vec![3, 4, 5], vec![600, 601]];
        let case = Case::new(head_dim, group, types, in_runs, &lens);
        same_bits_alone_and_on_every_tier(&case, &format!("{head_dim} x {group}"));
    }
    for ty in KvType::ALL {
        // Few pairs take both from the cache, many unpack them.
        for group in [1, 4] {
            let lens = [(250..270).collect::<Vec<_>>(), vec![3, 4, 5], vec![600, 601]];
            let case = Case::new(64, group, (ty, ty), in_runs, &lens);
            same_bits_alone_and_on_every_tier(&case, &format!("{ty}, {group} heads"));
        }
    }
}

#[test]
fn windows_caps_and_sinks_are_the_textbooks() {
    for (head_dim, group) in [(64, 1), (64, 8), (80, 3), (32, 4)] {
        for window in [1, 15, 16, 100, 256, 300] {
            let lens = [(1..40).step_by(7).collect(), (250..290).collect::<Vec<_>>(), vec![513, 700]];
            let case = || Case::new(head_dim, group, F16, in_runs, &lens).with_window(window);
            let name = format!("{head_dim} x {group}, window {window}");
            let rows = case().view.visible.len();
            case().check((0..rows).step_by(3), &name);
            case().with_cap(5.0).check((0..rows).step_by(5), &format!("{name}, cap"));
            case().with_sinks().check((0..rows).step_by(5), &format!("{name}, sinks"));
            case().with_slopes().check((0..rows).step_by(5), &format!("{name}, slopes"));
        }
    }
}

#[test]
fn a_row_with_a_window_has_the_same_bits_alone_and_on_every_tier() {
    for (head_dim, group, window) in [(64, 8, 100), (64, 1, 37), (80, 2, 300), (128, 4, 256), (16, 2, 5)] {
        let lens = [(230..290).collect::<Vec<_>>(), vec![3, 4, 5], vec![600, 601]];
        let case = Case::new(head_dim, group, F16, in_runs, &lens)
            .with_window(window)
            .with_cap(3.0)
            .with_sinks()
            .with_slopes();
        same_bits_alone_and_on_every_tier(&case, &format!("{head_dim} x {group}"));
    }
}

/// What a row must not see cannot reach it, not even as 0 · infinity.
#[test]
fn a_value_that_a_row_does_not_see_may_be_anything() {
    let lens = [(250..270).collect::<Vec<_>>()];
    let case = Case::new(64, 4, F16, in_order, &lens);
    let rows: Vec<usize> = (0..20).collect();
    let before = bits(&case.attend(Isa::detect(), &rows));
    for store in [&case.keys, &case.values] {
        // SAFETY: one thread.
        let row = unsafe { store.head(0, 0, 64).row_mut(261) };
        StoreRow { ty: store.ty, x: &[f32::INFINITY; 64], row }.on(Isa::Scalar);
    }
    let after = case.attend(Isa::detect(), &rows);
    // Rows 0..12 see cells up to 249 + row.
    assert!(bits(&after)[..12] == before[..12]);
    assert!(after[12].iter().all(|x| x.is_nan()), "row 12 sees it");
}
