//! Attention over contexts of all lengths, against f64.

use super::{
    super::{
        device::Gpu,
        lab::{Random, bind, numbers, run, storage},
        params::AttendParams,
        pipelines::{Family, Kernel, Pipelines},
        variants::Arith,
        work::{CHUNK, Stored, head_stride, kv_words},
    },
    TUNINGS, U, bits, gpu, store,
};
use crate::kv_type::KvType;

/// Cells in the cache, more than a context has.
const CELLS: usize = 760;

struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    stored: Stored,
    scale: f32,
    /// Scores stay below it.
    cap: f32,
    /// By head, if there are any.
    sinks: Vec<f32>,
    /// [rows, heads, stride]
    q: Vec<f32>,
    /// [kv_heads, cells, stride]
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Cells in order of positions; rows see beginnings of it.
    list: Vec<u32>,
}

impl Case {
    fn new(heads: usize, kv_heads: usize, dim: usize, stored: Stored, rows: usize) -> Self {
        let mut random = Random::new((heads * dim) as u64);
        let stride = head_stride(dim);
        let mut filled = |count: usize, ty: KvType| -> Vec<f32> {
            let mut head = || {
                let mut head: Vec<f32> = (0..dim).map(|_| 2.0 * random.float()).collect();
                head.resize(stride, 0.0);
                store(ty, &mut head);
                head
            };
            (0..count).flat_map(|_| head()).collect()
        };
        let q = filled(rows * heads, KvType::F32);
        let keys = filled(kv_heads * CELLS, stored.keys);
        let values = filled(kv_heads * CELLS, stored.values);
        // A step that shares no factor with the count visits every cell.
        let list = (0..CELLS).map(|i| (i * 377 % CELLS) as u32).collect();
        let scale = 1.0 / (dim as f32).sqrt();
        Case { heads, kv_heads, dim, stored, scale, cap: 0.0, sinks: Vec::new(), q, keys, values, list }
    }

    /// With scores that are capped, and sinks.
    fn with_sinks(mut self, cap: f32) -> Self {
        self.cap = cap;
        self.sinks = Random::new(5).floats(self.heads).iter().map(|x| 3.0 * x).collect();
        self
    }

    /// The same numbers, stored as they are.
    fn in_f32(&self) -> Self {
        let stored = Stored { keys: KvType::F32, values: KvType::F32 };
        let Case { q, keys, values, list, .. } = self;
        let (q, keys, values, list) = (q.clone(), keys.clone(), values.clone(), list.clone());
        Case { stored, q, keys, values, list, sinks: self.sinks.clone(), ..*self }
    }

    fn words(&self, x: &[f32], ty: KvType) -> Vec<u32> {
        x.chunks_exact(head_stride(self.dim)).flat_map(|head| store(ty, &mut head.to_vec())).collect()
    }

    /// `[rows, heads, dim]`; row i sees the first `lens[i]` cells of the list.
    fn run(&self, gpu: &Gpu, pipelines: &mut Pipelines, lens: &[usize], how: (bool, bool)) -> Vec<f32> {
        self.run_in_pieces(gpu, pipelines, lens, how, lens.len())
    }

    /// So many rows in a dispatch.
    fn run_in_pieces(
        &self,
        gpu: &Gpu,
        pipelines: &mut Pipelines,
        lens: &[usize],
        (split, shared): (bool, bool),
        piece_rows: usize,
    ) -> Vec<f32> {
        let rows = lens.len();
        let stride = head_stride(self.dim);
        let Stored { keys, values } = self.stored;
        let most_chunks = lens.iter().max().unwrap().div_ceil(CHUNK);
        let params = AttendParams {
            heads: self.heads as u32,
            group: (self.heads / self.kv_heads) as u32,
            head_dim: self.dim as u32,
            head_stride: stride as u32,
            cells: CELLS as u32,
            key_words: kv_words(keys, self.dim) as u32,
            value_words: kv_words(values, self.dim) as u32,
            scale: self.scale,
            cap: self.cap,
            has_sinks: u32::from(!self.sinks.is_empty()),
            out_stride: (self.heads * self.dim) as u32,
            view_at: 1,
            spans_at: 2,
            view_rows: rows as u32,
            most_chunks: most_chunks as u32,
            first_row: 0,
        };
        // View 1 is the one that counts; the list begins at word 3.
        let mut row_data = vec![0u32, 1];
        row_data.extend(vec![0u32; 2 * rows]);
        row_data.extend(lens.iter().flat_map(|&len| [3, len as u32]));
        let list: Vec<u32> = [0, 0, 0].into_iter().chain(self.list.iter().copied()).collect();
        let made = |words: &[u32]| storage(gpu, bytemuck::cast_slice(words)).unwrap();
        let (row_data, list, q) = (made(&row_data), made(&list), numbers(gpu, &self.q).unwrap());
        let keys = made(&self.words(&self.keys, keys));
        let values = made(&self.words(&self.values, values));
        let sinks = if self.sinks.is_empty() { numbers(gpu, &[0.0]) } else { numbers(gpu, &self.sinks) };
        let sinks = sinks.unwrap();
        let len = rows * self.heads * self.dim;
        let out = numbers(gpu, &vec![7.0; len]).unwrap();
        let chunks = numbers(gpu, &vec![7.0; piece_rows * self.heads * most_chunks * (stride + 2)]).unwrap();
        let to = if split { &chunks } else { &out };
        let heads = self.heads as u32;
        let group = (self.heads / self.kv_heads) as u32;
        let groups = if shared { self.kv_heads as u32 * group.div_ceil(4) } else { heads };
        let y = if split { most_chunks as u32 } else { 1 };
        let kernel = Kernel::Attend { split, shared, stored: self.stored, arith: Arith::Float };
        let mut steps = Vec::new();
        for first in (0..rows).step_by(piece_rows) {
            let params = AttendParams { first_row: first as u32, ..params };
            let rows = piece_rows.min(rows - first) as u32;
            let buffers = [&row_data, &list, &q, &keys, &values, &sinks, to].map(|b| &b.buffer);
            let attend = bind(gpu, pipelines, Family::Attend, &params, &buffers).unwrap();
            steps.push((kernel, attend, [groups, y, rows]));
            if split {
                let buffers = [&row_data, &chunks, &sinks, &out].map(|b| &b.buffer);
                let join = bind(gpu, pipelines, Family::AttendJoin, &params, &buffers).unwrap();
                steps.push((Kernel::AttendJoin(Arith::Float), join, [heads, 1, rows]));
            }
        }
        run(gpu, pipelines, &steps, &out.buffer, len).unwrap()
    }

    fn check(&self, got: &[f32], lens: &[usize], what: &str) {
        let stride = head_stride(self.dim);
        for (i, got) in got.chunks_exact(self.dim).enumerate() {
            let (row, head) = (i / self.heads, i % self.heads);
            let kv_head = head / (self.heads / self.kv_heads);
            let q = &self.q[i * stride..][..self.dim];
            let cell = |x: &'_ [f32], cell: u32| -> Vec<f64> {
                let at = (kv_head * CELLS + cell as usize) * stride;
                x[at..][..self.dim].iter().map(|&x| f64::from(x)).collect()
            };
            let cells = &self.list[..lens[row]];
            let scale = f64::from(self.scale);
            let (scores, sizes): (Vec<f64>, Vec<f64>) = cells
                .iter()
                .map(|&c| {
                    let key = cell(&self.keys, c);
                    let products = q.iter().zip(&key).map(|(&q, k)| f64::from(q) * k);
                    products.fold((0.0, 0.0), |(sum, size), x| (sum + scale * x, size + scale * x.abs()))
                })
                .unzip();
            let cap = f64::from(self.cap);
            let capped = |s: f64| if cap > 0.0 { cap * (s / cap).tanh() } else { s };
            let scores: Vec<f64> = scores.into_iter().map(capped).collect();
            let sink = self.sinks.get(head).map(|&sink| f64::from(sink));
            let top = scores.iter().copied().chain(sink).fold(f64::MIN, f64::max);
            let low = scores.iter().copied().chain(sink).fold(f64::MAX, f64::min);
            let e: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let sum: f64 = e.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - top).exp());
            // A score is a sum of dim products in four chains; twice, for the maximum is such a score too. WGSL's
            // exponential is right to 3 + 2·|x| units, and x may be the whole range of the scores. Then the sums
            // over the cells, of weights and of weighted values.
            // A cap is taken from twice itself, by such an exponential.
            let score = 2.0 * (self.dim as f64 / 4.0 + 4.0) * U * sizes.iter().copied().fold(0.0, f64::max)
                + 48.0 * U * cap;
            let exponential = (3.0 + 2.0 * (top - low)) * 2.0 * U;
            let relative = 2.0 * (score + 2.0 * exponential + (cells.len() as f64 + 8.0) * U);
            for (i, &got) in got.iter().enumerate() {
                let (want, size) = cells.iter().zip(&e).fold((0.0, 0.0), |(want, size), (&c, e)| {
                    let v = f64::from(self.values[(kv_head * CELLS + c as usize) * stride + i]);
                    (want + e / sum * v, size + e / sum * v.abs())
                });
                let off = (f64::from(got) - want).abs();
                assert!(off <= relative * size, "{what}, row {row}, head {head}, {i}: {got}, {want}");
            }
        }
    }
}

#[test]
fn attention_is_right_to_rounding_split_and_whole() {
    let test = "attention_is_right_to_rounding_split_and_whole";
    let Some(mut gpu) = gpu(test) else { return };
    use KvType::{F16, F32, Q8_0};
    let shapes = [
        (6, 2, 64, (F16, F16)),
        (10, 2, 24, (F16, F16)),
        (4, 4, 20, (F32, F32)),
        (8, 1, 32, (F16, F32)),
        (4, 2, 128, (F32, F16)),
        (6, 2, 64, (Q8_0, Q8_0)),
        (8, 1, 96, (F16, Q8_0)),
        (2, 1, 288, (Q8_0, F32)),
    ];
    for tuning in TUNINGS {
        gpu.tuning = tuning;
        let mut pipelines = Pipelines::new(&gpu);
        for (heads, kv_heads, dim, types) in shapes {
            let case = Case::new(heads, kv_heads, dim, Stored { keys: types.0, values: types.1 }, 12);
            let what = format!("{heads}/{kv_heads} heads of {dim}, {types:?}");
            for len in [1, 2, 255, 256, 257, 700] {
                let whole = case.run(&gpu, &mut pipelines, &[len], (false, false));
                case.check(&whole, &[len], &what);
                for (split, shared) in [(true, false), (true, true), (false, true)] {
                    let other = case.run(&gpu, &mut pipelines, &[len], (split, shared));
                    assert!(
                        bits(&other) == bits(&whole),
                        "{what}: {len} cells, split {split}, shared {shared}"
                    );
                }
            }
            // A scale times a whole number of eight bits is exact, so all that counts is which numbers were stored.
            let stored = case.run(&gpu, &mut pipelines, &[300], (false, true));
            let as_they_are = case.in_f32().run(&gpu, &mut pipelines, &[300], (false, true));
            assert!(bits(&stored) == bits(&as_they_are), "{what}: as numbers");
            // A few rows of different lengths, split; more of them whole; each as if it were alone.
            let few = [257, 1, 700];
            let split = case.run(&gpu, &mut pipelines, &few, (true, false));
            case.check(&split, &few, &what);
            let many: Vec<usize> = (0..12).map(|i| if i < 3 { few[i] } else { 250 + i }).collect();
            let whole = case.run(&gpu, &mut pipelines, &many, (false, true));
            case.check(&whole, &many, &what);
            assert!(bits(&whole[..split.len()]) == bits(&split), "{what}: a row among others");
            for how in [(true, false), (false, true)] {
                let pieces = case.run_in_pieces(&gpu, &mut pipelines, &many, how, 5);
                assert!(bits(&pieces) == bits(&whole), "{what}: five rows at a time, {how:?}");
            }
        }
    }
}

/// A sink takes its share once, however a context is cut; and a cap is one for all heads of a workgroup.
#[test]
fn sinks_and_caps_are_right_to_rounding_split_and_whole() {
    let test = "sinks_and_caps_are_right_to_rounding_split_and_whole";
    let Some(gpu) = gpu(test) else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let stored = Stored { keys: KvType::F32, values: KvType::F16 };
    for (heads, kv_heads, dim, cap) in [(6, 2, 64, 0.0), (8, 1, 32, 2.0), (2, 1, 512, 1.0), (8, 1, 576, 1.0)]
    {
        let case = Case::new(heads, kv_heads, dim, stored, 3).with_sinks(cap);
        for len in [1, 257, 700] {
            let whole = case.run(&gpu, &mut pipelines, &[len], (false, false));
            case.check(&whole, &[len], &format!("{heads} heads of {dim}, below {cap}"));
            for (split, shared) in [(true, false), (true, true), (false, true)] {
                let other = case.run(&gpu, &mut pipelines, &[len], (split, shared));
                assert!(bits(&other) == bits(&whole), "{len} cells, split {split}, shared {shared}");
            }
        }
    }
}
