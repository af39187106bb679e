//! Rows of numbers → blocks of a format, with scales that are searched for where that is worth it.

use super::search::{Affine, LevelByLevel, Positive, Search, SearchAll, Symmetric, Table};
use crate::{
    backend::cpu::simd::Isa,
    quant::{
        F16, GgmlType, blocks,
        iq4_nl::KVALUES,
        quantize,
        rounding::{fifth_bits, nibbles},
    },
};

/// Weights of a block of the larger formats.
const BLOCK: usize = 256;
/// Blocks whose scales are searched for at a time.
const STRIP: usize = 16;
/// 1.5 · 2^23: adding it rounds to a whole number that stands in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// The formats that can be written.
pub const WRITTEN: &[GgmlType] = {
    use GgmlType::*;
    &[F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4]
};

/// Whole rows, and by column how much an error there counts, if that is known.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub x: &'a [f32],
    pub columns: usize,
    pub importance: Option<&'a [f32]>,
}

/// Appends the rows as blocks of `ty`, one of [`WRITTEN`] whose blocks fill a row.
pub fn encode(isa: Isa, ty: GgmlType, rows: Rows, out: &mut Vec<u8>) {
    let plain = Affine { top: 0.0, first: -0.5, by: 0.1, tries: 15, absolute: false };
    let weighed = Affine { top: 0.0, first: -0.9, by: 0.05, tries: 36, absolute: false };
    let how = if rows.importance.is_some() { weighed } else { plain };
    match (ty, rows.importance) {
        (GgmlType::Q2_K, importance) => {
            let how = Affine { top: 3.0, absolute: importance.is_none(), ..how };
            let w = rows.weigh(BLOCK, 1.0, |x| x.iter().map(|x| x.abs()).collect());
            affine::<16, 16>(isa, rows, &w, (how, 15.0), |d, dmin, scales, mins, q| {
                put(out, &blocks::BlockQ2K::pack(d, dmin, scales, mins, q));
            });
        }
        (GgmlType::Q4_K, importance) => {
            let how = match importance {
                None => Affine { first: -1.0, tries: 20, ..plain },
                Some(_) => weighed,
            };
            let w = rows.weigh(BLOCK, 2.0, spread);
            affine::<32, 8>(
                isa,
                rows,
                &w,
                (Affine { top: 15.0, ..how }, 63.0),
                |d, dmin, scales, mins, q| {
                    put(out, &blocks::BlockQ4K::pack(d, dmin, scales, mins, q));
                },
            );
        }
        (GgmlType::Q5_K, _) => {
            let w = rows.weigh(BLOCK, 2.0, spread);
            affine::<32, 8>(
                isa,
                rows,
                &w,
                (Affine { top: 31.0, ..how }, 63.0),
                |d, dmin, scales, mins, q| {
                    put(out, &blocks::BlockQ5K::pack(d, dmin, scales, mins, q));
                },
            );
        }
        (GgmlType::Q3_K, None) => {
            let w = rows.weigh(BLOCK, 2.0, squares);
            symmetric::<16, 16, _>(
                isa,
                rows,
                &w,
                (LevelByLevel { most: 4.0 }, -32.0, 31.0),
                |d, scales, x| {
                    put(out, &q3_k(d, scales, x));
                },
            );
        }
        (GgmlType::Q3_K, Some(_)) => {
            let w = rows.weigh(BLOCK, 2.0, squares);
            symmetric::<16, 16, _>(isa, rows, &w, (Symmetric { most: 4.0 }, -32.0, 31.0), |d, scales, x| {
                put(out, &q3_k(d, scales, x));
            });
        }
        (GgmlType::Q6_K, importance) => {
            // The importance itself, without regard to the weights' sizes.
            let w = match importance {
                Some(importance) => importance.repeat(rows.x.len() / rows.columns),
                None => squares(rows.x),
            };
            let how = (Symmetric { most: 32.0 }, -128.0, 127.0);
            symmetric::<16, 16, _>(isa, Rows { importance: None, ..rows }, &w, how, |d, scales, x| {
                let mut q = [0; BLOCK];
                for (sub, (q, x)) in q.chunks_exact_mut(16).zip(x.chunks_exact(16)).enumerate() {
                    levels(x, d.to_f32() * f32::from(scales[sub]), 0.0, (-32.0, 31.0), q);
                }
                put(out, &blocks::BlockQ6K::pack(d, scales, &q));
            });
        }
        (GgmlType::IQ4_XS, _) => {
            let w = rows.weigh(BLOCK, 2.0, squares);
            let how = (Table { levels: KVALUES.map(f32::from) }, -32.0, 31.0);
            symmetric::<32, 8, _>(isa, Rows { importance: None, ..rows }, &w, how, |d, scales, x| {
                let mut q = [0; BLOCK];
                for (sub, (q, x)) in q.chunks_exact_mut(32).zip(x.chunks_exact(32)).enumerate() {
                    nearest(x, d.to_f32() * f32::from(scales[sub]), q);
                }
                put(out, &blocks::BlockIq4Xs::pack(d, &scales.map(|scale| (scale + 32) as u8), &q));
            });
        }
        (GgmlType::IQ4_NL, _) => {
            let w = rows.weigh(32, 2.0, squares);
            for_blocks(isa, rows, &w, Table { levels: KVALUES.map(f32::from) }, |d, _, x| {
                let (d, mut q) = (half(d), [0; 32]);
                nearest(x, d.to_f32(), &mut q);
                put(out, &blocks::BlockIq4Nl { d, qs: nibbles(&q) });
            });
        }
        (GgmlType::Q4_0, Some(_)) => {
            let w = rows.weigh(rows.columns, 1.0, squares);
            for_blocks(isa, rows, &w, Symmetric { most: 8.0 }, |d, _, x| {
                let (d, mut q) = (half(d), [0; 32]);
                levels(x, d.to_f32(), 0.0, (-8.0, 7.0), &mut q);
                put(out, &blocks::BlockQ4_0 { d, qs: nibbles(&q) });
            });
        }
        (GgmlType::Q5_0, Some(_)) => {
            let w = rows.weigh(rows.columns, 1.0, squares);
            for_blocks(isa, rows, &w, Symmetric { most: 16.0 }, |d, _, x| {
                let (d, mut q) = (half(d), [0; 32]);
                levels(x, d.to_f32(), 0.0, (-16.0, 15.0), &mut q);
                put(out, &blocks::BlockQ5_0 { d, qh: fifth_bits(&q), qs: nibbles(&q) });
            });
        }
        (GgmlType::Q4_1, Some(_)) => {
            let w = rows.weigh(rows.columns, 1.0, squares);
            for_blocks(isa, rows, &w, Affine { top: 15.0, ..weighed }, |d, min, x| {
                let (d, m, mut q) = (half(d), half(-min), [0; 32]);
                levels(x, d.to_f32(), -m.to_f32(), (0.0, 15.0), &mut q);
                put(out, &blocks::BlockQ4_1 { d, m, qs: nibbles(&q) });
            });
        }
        (GgmlType::Q5_1, Some(_)) => {
            let w = rows.weigh(rows.columns, 1.0, squares);
            for_blocks(isa, rows, &w, Affine { top: 31.0, ..weighed }, |d, min, x| {
                let (d, m, mut q) = (half(d), half(-min), [0; 32]);
                levels(x, d.to_f32(), -m.to_f32(), (0.0, 31.0), &mut q);
                put(out, &blocks::BlockQ5_1 { d, m, qh: fifth_bits(&q), qs: nibbles(&q) });
            });
        }
        _ => quantize(ty, rows.x, out).expect("whole blocks of a type that can be written"),
    }
}

fn put<B: bytemuck::Pod>(out: &mut Vec<u8>, block: &B) {
    out.extend_from_slice(bytemuck::bytes_of(block));
}

impl Rows<'_> {
    /// What an error in each weight counts. Without importance that is `plain`; with it, the larger of a row's weights
    /// count a little more: `importance · √(factor · mean of the squares + x²)`, with the mean of `unit` weights.
    fn weigh(&self, unit: usize, factor: f32, plain: impl Fn(&[f32]) -> Vec<f32>) -> Vec<f32> {
        let Some(importance) = self.importance else { return plain(self.x) };
        let mut w = Vec::with_capacity(self.x.len());
        for row in self.x.chunks_exact(self.columns) {
            for (x, importance) in row.chunks_exact(unit).zip(importance.chunks_exact(unit)) {
                let mean = factor * sum_of_squares(x) / unit as f32;
                w.extend(x.iter().zip(importance).map(|(x, importance)| importance * (mean + x * x).sqrt()));
            }
        }
        w
    }
}

fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x)
}

fn squares(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| x * x).collect()
}

/// The size of each, and that of its group of 32 on top.
fn spread(x: &[f32]) -> Vec<f32> {
    let groups = x.chunks_exact(32);
    groups
        .flat_map(|x| {
            let size = (sum_of_squares(x) / 32.0).sqrt();
            x.iter().map(move |x| size + x.abs())
        })
        .collect()
}

/// The nearest half that is finite.
fn half(x: f32) -> F16 {
    let most = half::f16::MAX.to_f32();
    F16::from_f32(x.clamp(-most, most))
}

/// The nearest whole number within bounds, as what lies in the lowest bits.
#[inline(always)]
fn whole(x: f32, (low, high): (f32, f32)) -> u8 {
    (x.clamp(low, high) + ROUND).to_bits() as u8
}

/// `(x + min) / d` as whole numbers, counted from the lowest; all zero where `d` is.
fn levels(x: &[f32], d: f32, min: f32, (low, high): (f32, f32), q: &mut [u8]) {
    if d == 0.0 {
        return;
    }
    for (q, x) in q.iter_mut().zip(x) {
        *q = whole((x + min) / d, (low, high)).wrapping_sub(low as i8 as u8);
    }
}

/// The numbers of the levels of [`KVALUES`] that are nearest to `x / d`.
fn nearest(x: &[f32], d: f32, q: &mut [u8]) {
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    for (q, x) in q.iter_mut().zip(x) {
        let at = x * inverse;
        *q = KVALUES
            .windows(2)
            .map(|pair| u8::from(at >= (f32::from(pair[0]) + f32::from(pair[1])) / 2.0))
            .sum();
    }
}

fn q3_k(d: F16, scales: &[i8; 16], x: &[f32]) -> blocks::BlockQ3K {
    let mut q = [0; BLOCK];
    for (sub, (q, x)) in q.chunks_exact_mut(16).zip(x.chunks_exact(16)).enumerate() {
        levels(x, d.to_f32() * f32::from(scales[sub]), 0.0, (-4.0, 3.0), q);
    }
    blocks::BlockQ3K::pack(d, &scales.map(|scale| (scale + 32) as u8), &q)
}

/// Calls with scale, minimum and weights of each block of 32, with no scales above those.
fn for_blocks(isa: Isa, rows: Rows, w: &[f32], how: impl Search, mut each: impl FnMut(f32, f32, &[f32])) {
    const GROUPS: usize = 128;
    let (mut scales, mut mins) = ([0.0; GROUPS], [0.0; GROUPS]);
    for (x, w) in rows.x.chunks(32 * GROUPS).zip(w.chunks(32 * GROUPS)) {
        let n = x.len() / 32;
        let (scales, mins) = (&mut scales[..n], &mut mins[..n]);
        isa.dispatch(SearchAll::<_, 32> { how, x, w, scales, mins });
        for (i, x) in x.chunks_exact(32).enumerate() {
            each(scales[i], mins[i], x);
        }
    }
}

/// `SUBS` groups of `N` in a block, each with a scale and a minimum that are multiples, up to `most`, of the block's two.
fn affine<const N: usize, const SUBS: usize>(
    isa: Isa,
    rows: Rows,
    w: &[f32],
    (how, most): (Affine, f32),
    mut each: impl FnMut(F16, F16, &[u8; SUBS], &[u8; SUBS], &[u8; BLOCK]),
) {
    for (x, w) in rows.x.chunks(BLOCK * STRIP).zip(w.chunks(BLOCK * STRIP)) {
        let (mut scales, mut mins) = (vec![0.0; x.len() / N], vec![0.0; x.len() / N]);
        isa.dispatch(SearchAll::<_, N> { how, x, w, scales: &mut scales, mins: &mut mins });
        let steps = |values: &[f32]| match rows.importance {
            Some(_) => searched::<_, SUBS>(isa, Positive { top: most }, values, &sums::<N>(w)),
            None => values.chunks_exact(SUBS).map(|values| farthest(values) / most).collect(),
        };
        let (ds, dmins) = (steps(&scales), steps(&mins));
        for (block, x) in x.chunks_exact(BLOCK).enumerate() {
            let subs = block * SUBS..(block + 1) * SUBS;
            let (d, dmin) = (half(ds[block]), half(dmins[block]));
            let multiples = |values: &[f32], d: F16| -> [u8; SUBS] {
                let mut q = [0; SUBS];
                levels(values, d.to_f32(), 0.0, (0.0, most), &mut q);
                q
            };
            let (scale, min) = (multiples(&scales[subs.clone()], d), multiples(&mins[subs], dmin));
            let mut q = [0; BLOCK];
            for (sub, (q, x)) in q.chunks_exact_mut(N).zip(x.chunks_exact(N)).enumerate() {
                let (step, min) = (d.to_f32() * f32::from(scale[sub]), dmin.to_f32() * f32::from(min[sub]));
                levels(x, step, min, (0.0, how.top), q);
            }
            each(d, dmin, &scale, &min, &q);
        }
    }
}

/// `SUBS` groups of `N` in a block, each with a scale that is a multiple, `low` to `high`, of the block's.
fn symmetric<const N: usize, const SUBS: usize, How: Search>(
    isa: Isa,
    rows: Rows,
    w: &[f32],
    (how, low, high): (How, f32, f32),
    mut each: impl FnMut(F16, &[i8; SUBS], &[f32]),
) {
    for (x, w) in rows.x.chunks(BLOCK * STRIP).zip(w.chunks(BLOCK * STRIP)) {
        let scales = searched::<_, N>(isa, how, x, w);
        let ds: Vec<f32> = match rows.importance {
            Some(_) => searched::<_, SUBS>(isa, Symmetric { most: -low }, &scales, &sums::<N>(w)),
            None => scales.chunks_exact(SUBS).map(|scales| farthest(scales) / low).collect(),
        };
        for ((x, scales), d) in x.chunks_exact(BLOCK).zip(scales.chunks_exact(SUBS)).zip(ds) {
            let d = half(d);
            let mut multiples = [0; SUBS];
            if d.to_f32() != 0.0 {
                multiples = std::array::from_fn(|sub| whole(scales[sub] / d.to_f32(), (low, high)) as i8);
            }
            each(d, &multiples, x);
        }
    }
}

/// The scales that a search finds for groups of `N`.
fn searched<How: Search, const N: usize>(isa: Isa, how: How, x: &[f32], w: &[f32]) -> Vec<f32> {
    let mut scales = vec![0.0; x.len() / N];
    isa.dispatch(SearchAll::<_, N> { how, x, w, scales: &mut scales, mins: &mut [] });
    scales
}

/// What all weights of a group count together.
fn sums<const N: usize>(w: &[f32]) -> Vec<f32> {
    w.chunks_exact(N).map(|w| w.iter().sum()).collect()
}

/// The value that is farthest from zero, with its sign.
fn farthest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |far: f32, &x| if x.abs() > far.abs() { x } else { far })
}
