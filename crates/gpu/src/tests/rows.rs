//! What is done to a row or a head by itself, against f64.

use super::{
    super::{
        formats::BLOCK,
        harness::{Random, bind, numbers, run, storage},
        params::{NormParams, RopeStoreParams, ShiftParams},
        pipelines::{Kernel, Pipelines},
        stored::{Stored, kv_words},
        variants::Arith,
        work::head_stride,
    },
    TUNINGS, U, gpu, store, taken,
};
use crate::kv_type::KvType;

#[test]
fn norms_are_right_to_rounding() {
    let test = "norms_are_right_to_rounding";
    let Some(mut gpu) = gpu(test) else { return };
    for tuning in TUNINGS {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        let mut random = Random::new(8);
        for dim in [4usize, 64, 100, 2048] {
            let stride = dim.next_multiple_of(BLOCK);
            let padded = |x: &[f32]| -> Vec<f32> {
                let zeros = std::iter::repeat_n(0.0, stride - dim);
                x.chunks_exact(dim).flat_map(|row| row.iter().copied().chain(zeros.clone())).collect()
            };
            let (x, weight, eps) = (random.floats(3 * dim), random.floats(dim), 1e-5f32);
            let params = NormParams {
                dim: dim as u32,
                stride: (stride / 4) as u32,
                eps,
                listed: 1,
                list_at: 1,
                zero: 0,
            };
            let h = numbers(&gpu, &vec![0.0; 3 * stride]).unwrap();
            // Rows 2 and 0, from a list that begins at word 1.
            let rows = storage(&gpu, bytemuck::cast_slice(&[9u32, 2, 0])).unwrap();
            let (weights, rows_x) =
                (numbers(&gpu, &padded(&weight)).unwrap(), numbers(&gpu, &padded(&x)).unwrap());
            let buffers = [&rows, &weights, &rows_x, &h].map(|b| &b.buffer);
            let bound = bind(&gpu, &pipelines, Kernel::Norm(Arith::Float), &params, &buffers).unwrap();
            let norm = [(Kernel::Norm(Arith::Float), bound, [1, 2, 1])];
            let got = run(&gpu, &mut pipelines, &norm, &h.buffer, 2 * stride).unwrap();
            for (got, row) in got.chunks_exact(stride).zip([2, 0]) {
                let x = &x[row * dim..][..dim];
                let scale = scale_of(x, eps);
                assert!(got[dim..].iter().all(|&x| x == 0.0));
                for ((got, &x), &weight) in got.iter().zip(x).zip(&weight) {
                    let want = f64::from(x) * scale * f64::from(weight);
                    let off = (f64::from(*got) - want).abs();
                    assert!(off <= norm_limit(dim) * want.abs() + 1e-30, "dim {dim}: {got}, {want}");
                }
            }
        }
    }
}

fn scale_of(x: &[f32], eps: f32) -> f64 {
    let square: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / x.len() as f64;
    1.0 / (square + f64::from(eps)).sqrt()
}

/// Half of the sum's roundings reach its root; WGSL divides within 2.5 units.
fn norm_limit(dim: usize) -> f64 {
    (dim as f64 / 8.0 + 300.0) * U
}

/// A rotation as models have it: the pairs that turn, and their cosines and sines for each row.
struct Turn {
    halves: bool,
    turned: usize,
    /// [rows, turned]
    turns: Vec<[f32; 2]>,
}

impl Turn {
    fn new(random: &mut Random, halves: bool, turned: usize, rows: usize) -> Self {
        let turns = (0..rows * turned).map(|_| {
            let (sin, cos) = (3.0 * random.float()).sin_cos();
            [cos, sin]
        });
        Turn { halves, turned, turns: turns.collect() }
    }

    /// The head turned, and for each number the size of what was added up for it.
    fn apply(&self, row: usize, head: &[f64]) -> Vec<(f64, f64)> {
        let mut out: Vec<_> = head.iter().map(|&x| (x, x.abs())).collect();
        for i in 0..self.turned {
            let (a, b) = if self.halves { (i, i + self.turned) } else { (2 * i, 2 * i + 1) };
            let [cos, sin] = self.turns[row * self.turned + i].map(f64::from);
            let (x, y) = (head[a], head[b]);
            out[a] = (x * cos - y * sin, (x * cos).abs() + (y * sin).abs());
            out[b] = (x * sin + y * cos, (x * sin).abs() + (y * cos).abs());
        }
        out
    }
}

/// What storing adds to an error: half a unit of a half of either kind, which may be subnormal; or what the scalar format
/// loses. Where a number is as near to two of the format's, it may become the other one, which is off by as much.
fn store_limit(ty: KvType, head: &[f64], i: usize) -> f64 {
    let size = head[i].abs();
    match ty {
        KvType::F32 => 0.0,
        KvType::F16 => size * 2f64.powi(-11) + 2f64.powi(-25),
        KvType::BF16 => size * 2f64.powi(-8) * 1.0001,
        _ => {
            let x: Vec<f32> = head.iter().map(|&x| x as f32).collect();
            let (mut row, mut back) = (vec![0; ty.row_bytes(x.len())], vec![0.0; x.len()]);
            ty.put(&x, &mut row);
            ty.take(&row, &mut back);
            let most = head[i / 32 * 32..][..32].iter().fold(0f64, |m, x| m.max(x.abs()));
            // Scales and minima are halves, of which each may be the neighbour.
            (f64::from(back[i]) - head[i]).abs() * 1.001
                + most * 2.0 * 2f64.powi(-11)
                + 127.0 * 2f64.powi(-25)
        }
    }
}

const UNTOUCHED: u32 = 0x4d2a_4d2a;

#[test]
fn queries_and_keys_are_normed_and_turned_and_stored_in_their_cells() {
    let test = "queries_and_keys_are_normed_and_turned_and_stored_in_their_cells";
    let Some(mut gpu) = gpu(test) else { return };
    const ROWS: usize = 3;
    const CELLS: usize = 7;
    let (heads, kv_heads, eps) = (4usize, 2usize, 1e-6f32);
    use KvType::{BF16, F16, F32, IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    let cases = [
        (64, 32, true, (F32, F16), 3),
        (64, 32, false, (F16, F32), 0),
        (20, 8, true, (F16, F32), 1),
        (26, 13, false, (F32, F16), 2),
        (64, 32, true, (Q8_0, F16), 2),
        (96, 48, false, (Q8_0, Q8_0), 0),
        (288, 144, true, (F16, Q8_0), 3),
        (64, 32, true, (Q4_0, Q4_1), 2),
        (96, 48, false, (Q4_1, Q4_0), 0),
        (128, 64, true, (Q5_0, Q5_1), 3),
        (96, 48, true, (Q5_1, Q5_0), 1),
        (64, 20, false, (IQ4_NL, BF16), 2),
        (20, 8, true, (BF16, F16), 1),
        (288, 144, true, (F16, IQ4_NL), 0),
    ];
    for tuning in TUNINGS {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        for (dim, turned, in_halves, types, normed) in cases {
            let mut random = Random::new(dim as u64);
            let stored = Stored { keys: types.0, values: types.1 };
            let stride = head_stride(dim);
            let [key_words, value_words] = [types.0, types.1].map(|ty| kv_words(ty, dim));
            let turn = Turn::new(&mut random, in_halves, turned, ROWS);
            let row_len = (heads + 2 * kv_heads) * dim;
            let qkv = random.floats(ROWS * row_len);
            let norms = [random.floats(dim), random.floats(dim)];
            let cells = [5u32, 0, 3];
            let params = RopeStoreParams {
                heads: heads as u32,
                kv_heads: kv_heads as u32,
                head_dim: dim as u32,
                first_head: 0,
                in_stride: row_len as u32,
                in_first: 0,
                turned: turned as u32,
                halves: u32::from(in_halves),
                turns_stride: turned as u32,
                turns_at: 0,
                factor_at: u32::MAX,
                head_stride: stride as u32,
                cells: CELLS as u32,
                cells_at: 2,
                key_words: key_words as u32,
                value_words: value_words as u32,
                flags: normed,
                q_eps: eps,
                k_eps: eps,
            };
            let row_data =
                storage(&gpu, bytemuck::cast_slice(&[9, 9, cells[0], cells[1], cells[2]])).unwrap();
            let turns = storage(&gpu, bytemuck::cast_slice(&turn.turns)).unwrap();
            let x = numbers(&gpu, &qkv).unwrap();
            let zeros = vec![0.0; dim];
            let [q_norm, k_norm] =
                norms.each_ref().map(|n| numbers(&gpu, &[&n[..], &zeros].concat()).unwrap());
            let scratch = |len| storage(&gpu, bytemuck::cast_slice(&vec![UNTOUCHED; len])).unwrap();
            let q = scratch(ROWS * heads * stride);
            let key_len = kv_heads * CELLS * key_words;
            let value_len = kv_heads * CELLS * value_words;
            let (keys, values) = (scratch(key_len), scratch(value_len));
            let step = || {
                let buffers =
                    [&row_data, &turns, &x, &q_norm, &k_norm, &q, &keys, &values].map(|b| &b.buffer);
                let bound = bind(&gpu, &pipelines, Kernel::RopeStore(stored), &params, &buffers).unwrap();
                [(Kernel::RopeStore(stored), bound, [(heads + 2 * kv_heads) as u32, ROWS as u32, 1])]
            };
            let steps = [step(), step(), step()];
            let got_q = run(&gpu, &mut pipelines, &steps[0], &q.buffer, ROWS * heads * stride).unwrap();
            let got_k = run(&gpu, &mut pipelines, &steps[1], &keys.buffer, key_len).unwrap();
            let got_v = run(&gpu, &mut pipelines, &steps[2], &values.buffer, value_len).unwrap();
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            let (got_k, got_v) = (bits(&got_k), bits(&got_v));
            let check =
                |got: &[f32], row: usize, head: usize, norm: Option<&[f32]>, turns: bool, ty: KvType| {
                    let x = &qkv[row * row_len + head * dim..][..dim];
                    let scale = scale_of(x, eps);
                    let normed: Vec<f64> = match norm {
                        Some(norm) => {
                            x.iter().zip(norm).map(|(&x, &n)| f64::from(x) * scale * f64::from(n)).collect()
                        }
                        None => x.iter().map(|&x| f64::from(x)).collect(),
                    };
                    let want = if turns {
                        turn.apply(row, &normed)
                    } else {
                        normed.iter().map(|&x| (x, 0.0)).collect()
                    };
                    let relative = if norm.is_some() { norm_limit(dim) } else { 0.0 } + 3.0 * U;
                    let numbers: Vec<f64> = want.iter().map(|w| w.0).collect();
                    for (i, (got, (want, size))) in got.iter().zip(want).enumerate() {
                        let limit = relative * size + store_limit(ty, &numbers, i);
                        let off = (f64::from(*got) - want).abs();
                        assert!(off <= limit, "{dim}, row {row}, head {head}, {i}: {got}, {want}");
                    }
                    assert!(got[dim..].iter().all(|&x| x == 0.0), "{dim}: beyond the head");
                };
            for row in 0..ROWS {
                for head in 0..heads {
                    let got = &got_q[(row * heads + head) * stride..][..stride];
                    check(got, row, head, (normed & 1 != 0).then_some(&norms[0]), true, F32);
                }
                for head in 0..kv_heads {
                    let cell = head * CELLS + cells[row] as usize;
                    let key = taken(types.0, &got_k[cell * key_words..][..key_words], dim);
                    check(&key, row, heads + head, (normed & 2 != 0).then_some(&norms[1]), true, types.0);
                    let value = taken(types.1, &got_v[cell * value_words..][..value_words], dim);
                    check(&value, row, heads + kv_heads + head, None, false, types.1);
                }
            }
            for cell in (0..kv_heads * CELLS).filter(|cell| !cells.contains(&((cell % CELLS) as u32))) {
                for (got, words) in [(&got_k, key_words), (&got_v, value_words)] {
                    assert!(got[cell * words..][..words].iter().all(|&w| w == UNTOUCHED));
                }
            }
        }
    }
}

/// Norms less the mean or after the rotation, with summands; queries that grow with the position; and queries, keys and
/// values that lie apart.
#[test]
fn heads_of_every_kind_are_made_together_or_apart() {
    let Some(gpu) = gpu("heads_of_every_kind_are_made_together_or_apart") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, cells, heads, kv_heads, dim, turned, eps) =
        (2usize, 4usize, 4usize, 2usize, 40usize, 12, 1e-5f32);
    let (stride, all) = (head_stride(dim), heads + 2 * kv_heads);
    let stored = Stored { keys: KvType::F32, values: KvType::F32 };
    let words = kv_words(KvType::F32, dim);
    let mut random = Random::new(51);
    let turn = Turn::new(&mut random, true, turned, rows);
    let x = random.floats(rows * all * dim);
    let affine = [random.floats(2 * dim), random.floats(2 * dim)];
    let factors = [1.5f32, 2.25];
    // Behind each row's rotations its factor.
    let entries: Vec<[f32; 2]> = (0..rows)
        .flat_map(|row| [&turn.turns[row * turned..][..turned], &[[factors[row], 0.0]]].concat())
        .collect();
    for (flags, grows) in [(1 | 2 | 4 | 8, false), (1 | 2 | 16, true), (1 | 4 | 16, true), (0, true)] {
        let params = RopeStoreParams {
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            head_dim: dim as u32,
            in_stride: (all * dim) as u32,
            turned: turned as u32,
            halves: 1,
            turns_stride: turned as u32 + 1,
            factor_at: if grows { turned as u32 } else { u32::MAX },
            head_stride: stride as u32,
            cells: cells as u32,
            key_words: words as u32,
            value_words: words as u32,
            flags,
            q_eps: eps,
            k_eps: eps,
            ..RopeStoreParams::default()
        };
        let mut made = |pieces: &[(usize, usize)]| -> Vec<Vec<f32>> {
            let row_data = storage(&gpu, bytemuck::cast_slice(&[2u32, 1])).unwrap();
            let turns = storage(&gpu, bytemuck::cast_slice(&entries)).unwrap();
            let input = numbers(&gpu, &x).unwrap();
            let [q_norm, k_norm] = affine.each_ref().map(|n| numbers(&gpu, n).unwrap());
            let q = numbers(&gpu, &vec![7.0; rows * heads * stride]).unwrap();
            let [keys, values] = [0, 1].map(|_| numbers(&gpu, &vec![7.0; kv_heads * cells * words]).unwrap());
            let steps: Vec<_> = pieces
                .iter()
                .map(|&(first, count)| {
                    let params = RopeStoreParams {
                        first_head: first as u32,
                        in_first: (first * dim) as u32,
                        ..params
                    };
                    let buffers = [&row_data, &turns, &input, &q_norm, &k_norm, &q, &keys, &values];
                    let buffers = buffers.map(|b| &b.buffer);
                    let bound = bind(&gpu, &pipelines, Kernel::RopeStore(stored), &params, &buffers).unwrap();
                    (Kernel::RopeStore(stored), bound, [count as u32, rows as u32, 1])
                })
                .collect();
            let got_q = run(&gpu, &mut pipelines, &steps, &q.buffer, rows * heads * stride).unwrap();
            let of = |scratch: &super::super::harness::Scratch, pipelines: &mut Pipelines| {
                run(&gpu, pipelines, &[], &scratch.buffer, kv_heads * cells * words).unwrap()
            };
            vec![got_q, of(&keys, &mut pipelines), of(&values, &mut pipelines)]
        };
        let together = made(&[(0, all)]);
        let apart = made(&[(0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads)]);
        assert!(together.iter().zip(&apart).all(|(a, b)| super::bits(a) == super::bits(b)), "{flags}");
        for row in 0..rows {
            for head in 0..all {
                let kind = if head < heads { 0 } else { 1 + (head - heads) / kv_heads };
                let at = match kind {
                    0 => (row * heads + head) * stride,
                    _ => ((head - heads) % kv_heads * cells + [2, 1][row]) * words,
                };
                let begin = (row * all + head) * dim;
                let mut want: Vec<f64> = x[begin..][..dim].iter().map(|&x| f64::from(x)).collect();
                let normed = kind < 2 && flags & (1 << kind) != 0;
                let normalise = |x: &mut Vec<f64>| {
                    let centred = flags & (4 << kind) != 0;
                    let mean = if centred { x.iter().sum::<f64>() / dim as f64 } else { 0.0 };
                    let square = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / dim as f64;
                    let scale = 1.0 / (square + f64::from(eps)).sqrt();
                    for (i, x) in x.iter_mut().enumerate() {
                        let [factor, summand] = [affine[kind][i], affine[kind][dim + i]].map(f64::from);
                        *x = (*x - mean) * scale * factor + summand;
                    }
                };
                if normed && flags & 16 == 0 {
                    normalise(&mut want);
                }
                if kind < 2 {
                    want = turn.apply(row, &want).into_iter().map(|(x, _)| x).collect();
                }
                if normed && flags & 16 != 0 {
                    normalise(&mut want);
                }
                let factor = if kind == 0 && grows { f64::from(factors[row]) } else { 1.0 };
                for (i, want) in want.iter().enumerate() {
                    let (got, want) = (f64::from(together[kind][at + i]), want * factor);
                    // Numbers are below 8.
                    let limit = 8.0 * (norm_limit(dim) + 3.0 * U);
                    assert!((got - want).abs() <= limit, "{flags}, head {head}, {i}: {got}, {want}");
                }
            }
        }
    }
}

#[test]
fn shifted_keys_are_turned_and_values_copied() {
    let Some(gpu) = gpu("shifted_keys_are_turned_and_values_copied") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    const CELLS: usize = 6;
    let kv_heads = 2usize;
    use KvType::{BF16, F16, F32, IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    let cases = [
        (64, 32, true, (F16, F16)),
        (64, 20, true, (F32, F16)),
        (20, 10, false, (F16, F16)),
        (20, 8, false, (F32, F16)),
        (64, 32, true, (Q8_0, Q8_0)),
        (96, 40, false, (Q8_0, F16)),
        (288, 144, true, (Q8_0, F16)),
        (64, 32, true, (Q4_0, Q4_0)),
        (96, 40, false, (Q4_1, Q5_1)),
        (128, 64, true, (Q5_0, Q4_1)),
        (96, 48, true, (Q5_1, IQ4_NL)),
        (288, 144, false, (IQ4_NL, Q5_0)),
        (20, 10, false, (BF16, BF16)),
    ];
    for (dim, turned, in_halves, types) in cases {
        let mut random = Random::new(dim as u64 + turned as u64);
        let stride = head_stride(dim);
        let [key_words, value_words] = [types.0, types.1].map(|ty| kv_words(ty, dim));
        let turn = Turn::new(&mut random, in_halves, turned, 1);
        let mut words = |ty: KvType| -> Vec<u32> {
            let mut head = || {
                let mut head = random.floats(dim);
                head.resize(stride, 0.0);
                store(ty, &mut head)
            };
            (0..kv_heads * CELLS).flat_map(|_| head()).collect()
        };
        let (keys, values) = (words(types.0), words(types.1));
        // One in place, one to another cell.
        let moves = [[4u32, 4], [1, 5]];
        let params = ShiftParams {
            kv_heads: kv_heads as u32,
            head_dim: dim as u32,
            turned: turned as u32,
            halves: u32::from(in_halves),
            cells: CELLS as u32,
            key_words: key_words as u32,
            value_words: value_words as u32,
            moves: moves.len() as u32,
        };
        let run_and_read = |which: usize, pipelines: &mut Pipelines| {
            let list = storage(&gpu, bytemuck::cast_slice(&moves)).unwrap();
            let turns = storage(&gpu, bytemuck::cast_slice(&turn.turns)).unwrap();
            let k = storage(&gpu, bytemuck::cast_slice(&keys)).unwrap();
            let v = storage(&gpu, bytemuck::cast_slice(&values)).unwrap();
            let buffers = [&list, &turns, &k, &v].map(|b| &b.buffer);
            let kernel = Kernel::Shift { keys: types.0 };
            let bound = bind(&gpu, pipelines, kernel, &params, &buffers).unwrap();
            let step = [(kernel, bound, [moves.len() as u32, 1, kv_heads as u32])];
            let (out, len) = [(&k, keys.len()), (&v, values.len())][which];
            let read = run(&gpu, pipelines, &step, &out.buffer, len).unwrap();
            read.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
        };
        let (got_k, got_v) = (run_and_read(0, &mut pipelines), run_and_read(1, &mut pipelines));
        for head in 0..kv_heads {
            for cell in 0..CELLS {
                let from = moves.iter().find(|m| m[1] as usize == cell).map_or(cell, |m| m[0] as usize);
                let at = |cell: usize, words: usize| (head * CELLS + cell) * words;
                assert_eq!(
                    got_v[at(cell, value_words)..][..value_words],
                    values[at(from, value_words)..][..value_words]
                );
                let before = &keys[at(from, key_words)..][..key_words];
                let got = &got_k[at(cell, key_words)..][..key_words];
                if !moves.iter().any(|m| m[1] as usize == cell) {
                    assert_eq!(got, before, "cell {cell}");
                    continue;
                }
                let head: Vec<f64> = taken(types.0, before, dim).iter().map(|&x| f64::from(x)).collect();
                let want = turn.apply(0, &head);
                let numbers: Vec<f64> = want.iter().map(|w| w.0).collect();
                for (i, (got, (want, size))) in taken(types.0, got, dim).iter().zip(want).enumerate() {
                    let limit = 3.0 * U * size + store_limit(types.0, &numbers, i);
                    assert!((f64::from(*got) - want).abs() <= limit, "cell {cell}, {i}: {got}, {want}");
                }
            }
        }
    }
}
