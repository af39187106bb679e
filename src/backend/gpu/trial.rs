//! A short trial of the variants that a device offers. One is used if it gives what the plain kernels give, to what
//! rounding allows, a row has the same bits in every regime, and it is faster.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{
    cache::Shelf,
    device::{Found, Gpu},
    formats::{BLOCK, Format},
    lab::{Dispatch, How, Matrix, Random, Room, bind, blocks, numbers, plain, room, run, storage, submit},
    params::{AttendParams, NormParams},
    pipelines::{Family, Kernel, Pipelines},
    variants::{Arith, Variants},
    work::{CHUNK, Stored},
};
use crate::{
    Error, Result,
    context::KvType,
    quant::{GgmlType, dequantize},
};

/// Half a unit in the last place of 1.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// Less than this is not worth other bits.
const WORTH: f64 = 1.05;
/// No regime may lose more.
const LEAST: f64 = 0.95;

/// How long a kernel is timed, and how often.
const TIMED: Duration = Duration::from_millis(5);
const TIMES: usize = 3;

/// Weights in a row of the matrices that are tried.
const K: usize = 4096;

/// How one variant did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub variant: String,
    /// Plain time over its time, for each thing that was timed.
    pub faster: Vec<(String, f64)>,
    /// What it got wrong.
    pub fault: Option<String>,
    pub used: bool,
}

/// How a trial ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub scores: Vec<Score>,
}

const OUTCOME: &str = "trial";

impl Outcome {
    /// What was found out in an earlier run.
    pub fn recall(shelf: &Shelf) -> Option<Self> {
        shelf.value(OUTCOME)
    }

    pub fn keep(&self, shelf: &Shelf) -> Result<()> {
        shelf.keep_value(OUTCOME, self)
    }

    /// What is used of what was tried.
    fn decided(mut scores: Vec<Score>) -> Self {
        scores.iter_mut().for_each(|score| score.used = score.is_worth_it());
        // Two ways to multiply: the faster one.
        let names = ARITHS.map(|v| v.to_string());
        let best = scores.iter().filter(|s| s.used && names.contains(&s.variant));
        let best = best.max_by(|a, b| a.mean().total_cmp(&b.mean())).map(|s| s.variant.clone());
        for score in scores.iter_mut().filter(|s| names.contains(&s.variant)) {
            score.used = best.as_ref() == Some(&score.variant);
        }
        Outcome { scores }
    }

    pub fn chosen(&self) -> Variants {
        let used = |variant: Variants| self.scores.iter().any(|s| s.used && s.variant == variant.to_string());
        Variants {
            arith: ARITHS.into_iter().find(|&v| used(v)).unwrap_or_default().arith,
            subgroups: used(SUBGROUPS),
            coop: false,
        }
    }
}

impl Score {
    /// The mean of the ratios, as ratios have one.
    fn mean(&self) -> f64 {
        (self.faster.iter().map(|(_, r)| r.ln()).sum::<f64>() / self.faster.len().max(1) as f64).exp()
    }

    fn is_worth_it(&self) -> bool {
        self.fault.is_none() && self.mean() >= WORTH && self.faster.iter().all(|&(_, r)| r >= LEAST)
    }

    /// In words.
    pub fn describe(&self) -> String {
        let ratios: Vec<_> = self.faster.iter().map(|(what, r)| format!("{what} {r:.2}")).collect();
        let verdict = match (&self.fault, self.used) {
            (Some(fault), _) => format!("wrong ({fault}), not used"),
            (None, true) => "used".into(),
            (None, false) => "not used".into(),
        };
        match ratios.is_empty() {
            true => format!("{}: {verdict}", self.variant),
            false => format!("{}: times as fast as plain: {}; {verdict}", self.variant, ratios.join(", ")),
        }
    }
}

const SUBGROUPS: Variants = Variants { subgroups: true, ..Variants::PLAIN };
const ARITHS: [Variants; 2] =
    [Variants { arith: Arith::Int8, ..Variants::PLAIN }, Variants { arith: Arith::Half, ..Variants::PLAIN }];

/// A NaN is more than anything.
fn is_more(off: f64, limit: f64) -> bool {
    off.is_nan() || off > limit
}

/// Tries what the device offers.
pub fn try_all(gpu: &Gpu, found: &Found) -> Result<Outcome> {
    let offered = |variants: &Variants| variants.check(found).is_ok();
    let mut scores = Vec::new();
    if offered(&SUBGROUPS) {
        scores.push(try_subgroups(gpu)?);
    }
    let mut plain = Pipelines::with(gpu, Variants::PLAIN);
    for variants in ARITHS.into_iter().filter(offered) {
        scores.push(try_arith(gpu, variants, &mut plain)?);
    }
    Ok(Outcome::decided(scores))
}

/// Cooperative matrices are an experiment of wgpu's: even asked for by name they must prove themselves.
pub fn vouch(gpu: &Gpu, variants: Variants) -> Result<()> {
    if !variants.coop {
        return Ok(());
    }
    let (mut plain, mut pipelines) = (Pipelines::with(gpu, Variants::PLAIN), Pipelines::with(gpu, variants));
    for ty in [GgmlType::Q4_0, GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::Q6_K] {
        if let Some(fault) = compare_products(gpu, ty, variants.arith, &mut plain, &mut pipelines)? {
            return Err(Error::Device(format!(
                "{}: --gpu-variant coop: its cooperative matrices are wrong ({fault}); dot4 gives the same bits",
                gpu.info.name
            )));
        }
    }
    Ok(())
}

/// Seconds of one run of these kernels, as a pass has them: many in a submission. The least of a few measurements.
fn seconds(gpu: &Gpu, pipelines: &mut Pipelines, what: &[Dispatch]) -> Result<f64> {
    let mut time = |count: usize| -> Result<f64> {
        let started = Instant::now();
        submit(gpu, pipelines, what, count)?;
        Ok(started.elapsed().as_secs_f64())
    };
    // Compiles, and wakes the device.
    time(1)?;
    let mut least = time(1)?;
    let count = (TIMED.as_secs_f64() / least).clamp(1.0, 100.0) as usize;
    // A device that takes long for one run is measured well enough by two.
    for _ in 0..if count > 1 { TIMES } else { 1 } {
        least = least.min(time(count)? / count as f64);
    }
    Ok(least)
}

/// Regimes that are tried: columns, and what the ratio is called.
const REGIMES: [(usize, &str); 3] = [(1, "1 row"), (4, "4 rows"), (64, "64 rows")];

fn how(columns: usize, arith: Arith) -> How<'static> {
    How { arith, ..plain(columns, columns > 8) }
}

fn try_arith(gpu: &Gpu, variants: Variants, plain: &mut Pipelines) -> Result<Score> {
    let mut pipelines = Pipelines::with(gpu, variants);
    let mut score = Score { variant: variants.to_string(), faster: Vec::new(), fault: None, used: false };
    for ty in [GgmlType::Q4_0, GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::Q6_K] {
        score.fault = compare_products(gpu, ty, variants.arith, plain, &mut pipelines)?;
        if score.fault.is_some() {
            return Ok(score);
        }
    }
    let matrix = big_matrix(gpu, Format::Q4_0)?;
    let x = Random::new(1).floats(64 * K);
    let (x, y) = (matrix.input(gpu, &x, 64)?, room(gpu, (4 * 64 * matrix.rows) as u64)?);
    let quantized = matrix.quantized(gpu, variants.arith, 64)?;
    let none = numbers(gpu, &[0.0])?;
    for (columns, name) in REGIMES {
        let base = [matrix.multiply(gpu, plain, &x, &y, &none, &how(columns, Arith::Float))?];
        let how = how(columns, variants.arith);
        let tried = [
            matrix.quantize(gpu, &pipelines, &x, &quantized, &how)?,
            matrix.multiply(gpu, &pipelines, &quantized, &y, &none, &how)?,
        ];
        let ratio = seconds(gpu, plain, &base)? / seconds(gpu, &mut pipelines, &tried)?;
        score.faster.push((name.into(), ratio));
    }
    Ok(score)
}

/// One that no cache of the device holds, within what may be taken; what is in it does not matter. Processors that
/// play a GPU get a small one.
fn big_matrix(gpu: &Gpu, format: Format) -> Result<Matrix<'_>> {
    let most = if gpu.info.device_type == wgpu::DeviceType::Cpu { 1 << 20 } else { 128 << 20 };
    let most = most.min(gpu.left() / 4).min(gpu.binding_bytes());
    let rows = (most as usize / format.bytes(K / BLOCK)).clamp(64, 60_000) / 64 * 64;
    Matrix::empty(gpu, format, rows, K / BLOCK)
}

/// What differs more than rounding explains between a variant and the plain kernels, or between its own regimes.
fn compare_products(
    gpu: &Gpu,
    ty: GgmlType,
    arith: Arith,
    plain: &mut Pipelines,
    pipelines: &mut Pipelines,
) -> Result<Option<String>> {
    const ROWS: usize = 66;
    const COLUMNS: usize = 64;
    let mut random = Random::new(ty as u64);
    let bytes = blocks(&mut random, ty, ROWS * K / ty.block_len());
    let matrix = Matrix::new(gpu, ty, &bytes, ROWS, K)?;
    let x = random.floats(COLUMNS * K);
    let base = matrix.product(gpu, plain, &x, &how(COLUMNS, Arith::Float))?;
    let tried = matrix.product(gpu, pipelines, &x, &how(COLUMNS, arith))?;
    let mut w = vec![0.0; ROWS * K];
    dequantize(ty, &bytes, &mut w);
    // A row of weights is rounded to a step, which is a 254th or a 4096th of the largest of its block, here at most
    // 1; sums err at random, so six times what they err on the average is never seen.
    let step = if arith == Arith::Int8 { 1.0 / 254.0 } else { 1.0 / 512.0 };
    for (i, (a, b)) in base.iter().zip(&tried).enumerate() {
        let row = &w[i % ROWS * K..][..K];
        let size = row.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>().sqrt();
        let off = f64::from((a - b).abs());
        if is_more(off, 6.0 * step * size) {
            return Ok(Some(format!("{ty}: {b} for {a}")));
        }
    }
    for columns in [1, 4] {
        let few = matrix.product(gpu, pipelines, &x[..columns * K], &how(columns, arith))?;
        let same = few.iter().zip(&tried).all(|(a, b)| a.to_bits() == b.to_bits());
        if !same {
            return Ok(Some(format!("{ty}: other bits in a batch of {columns}")));
        }
    }
    Ok(None)
}

fn try_subgroups(gpu: &Gpu) -> Result<Score> {
    let mut score = Score { variant: SUBGROUPS.to_string(), faster: Vec::new(), fault: None, used: false };
    let (mut plain, mut pipelines) = (Pipelines::with(gpu, Variants::PLAIN), Pipelines::with(gpu, SUBGROUPS));
    for scene in [norm_scene(gpu)?, attention_scene(gpu)?] {
        let base = scene.run(gpu, &mut plain)?;
        let tried = scene.run(gpu, &mut pipelines)?;
        let largest = base.iter().fold(0.0f64, |m, &x| m.max(f64::from(x).abs()));
        let off = base.iter().zip(&tried).map(|(a, b)| f64::from((a - b).abs()));
        if off.into_iter().any(|off| is_more(off, scene.rounding * largest)) {
            score.fault = Some(format!("{} differs", scene.name));
            return Ok(score);
        }
        let steps = scene.steps(gpu, &plain)?;
        let base = seconds(gpu, &mut plain, &steps)?;
        let steps = scene.steps(gpu, &pipelines)?;
        score.faster.push((scene.name.into(), base / seconds(gpu, &mut pipelines, &steps)?));
    }
    Ok(score)
}

/// A step that is made of what it binds.
type Steps<'a> = Box<dyn Fn(&Gpu, &Pipelines) -> Result<Vec<Dispatch>> + 'a>;

/// Kernels with sums over workgroups, and data for them.
struct Scene<'a> {
    name: &'static str,
    steps: Steps<'a>,
    out: wgpu::Buffer,
    len: usize,
    /// What two orders of the same sums may differ by, to the largest result.
    rounding: f64,
}

impl Scene<'_> {
    fn steps(&self, gpu: &Gpu, pipelines: &Pipelines) -> Result<Vec<Dispatch>> {
        (self.steps)(gpu, pipelines)
    }

    fn run(&self, gpu: &Gpu, pipelines: &mut Pipelines) -> Result<Vec<f32>> {
        let steps = self.steps(gpu, pipelines)?;
        run(gpu, pipelines, &steps, &self.out, self.len)
    }
}

fn norm_scene(gpu: &Gpu) -> Result<Scene<'_>> {
    let mut random = Random::new(2);
    let rows = storage(gpu, &[0; 16])?;
    let [weight, x, h] = [random.floats(K), random.floats(K), vec![0.0; K]].map(|x| numbers(gpu, &x));
    let (weight, x, h) = (weight?, x?, h?);
    let params = NormParams { dim: K as u32, stride: (K / 4) as u32, eps: 1e-5, listed: 0, list_at: 0 };
    let out = h.buffer.clone();
    let steps: Steps = Box::new(move |gpu, pipelines| {
        let buffers = [&rows, &weight, &x, &h].map(|b: &Room| &b.buffer);
        Ok(vec![(
            Kernel::Norm(Arith::Float),
            bind(gpu, pipelines, Family::Norm, &params, &buffers)?,
            [1, 1, 1],
        )])
    });
    Ok(Scene { name: "norm", steps, out, len: K, rounding: (K as f64 / 8.0 + 16.0) * U })
}

fn attention_scene(gpu: &Gpu) -> Result<Scene<'_>> {
    const HEADS: usize = 8;
    const KV_HEADS: usize = 2;
    const DIM: usize = 128;
    const CELLS: usize = 700;
    let chunks = CELLS.div_ceil(CHUNK);
    let mut random = Random::new(3);
    // A view, its span (all cells), and no more.
    let rows = storage(gpu, bytemuck::cast_slice(&[0u32, 0, CELLS as u32]))?;
    let list: Vec<u32> = (0..CELLS as u32).collect();
    let list = storage(gpu, bytemuck::cast_slice(&list))?;
    let q = numbers(gpu, &random.floats(HEADS * DIM))?;
    let mut halves = || -> Vec<u16> {
        (0..KV_HEADS * CELLS * DIM).map(|_| half::f16::from_f32(random.float()).to_bits()).collect()
    };
    let keys = storage(gpu, bytemuck::cast_slice(&halves()))?;
    let values = storage(gpu, bytemuck::cast_slice(&halves()))?;
    let parts = room(gpu, (4 * HEADS * chunks * (DIM + 2)) as u64)?;
    let result = room(gpu, (4 * HEADS * DIM) as u64)?;
    let out = result.buffer.clone();
    let stored = Stored { keys: KvType::F16, values: KvType::F16 };
    let params = AttendParams {
        heads: HEADS as u32,
        group: (HEADS / KV_HEADS) as u32,
        head_dim: DIM as u32,
        head_stride: DIM as u32,
        cells: CELLS as u32,
        key_words: (DIM / 2) as u32,
        value_words: (DIM / 2) as u32,
        scale: (DIM as f32).sqrt().recip(),
        out_stride: (HEADS * DIM) as u32,
        view_at: 0,
        spans_at: 1,
        view_rows: 1,
        most_chunks: chunks as u32,
    };
    let steps: Steps = Box::new(move |gpu, pipelines| {
        let buffers = [&rows, &list, &q, &keys, &values, &parts].map(|b: &Room| &b.buffer);
        let attend = bind(gpu, pipelines, Family::Attend, &params, &buffers)?;
        let buffers = [&rows, &parts, &result].map(|b: &Room| &b.buffer);
        let join = bind(gpu, pipelines, Family::AttendJoin, &params, &buffers)?;
        Ok(vec![
            (
                Kernel::Attend { split: true, shared: false, stored, arith: Arith::Float },
                attend,
                [HEADS as u32, chunks as u32, 1],
            ),
            (Kernel::AttendJoin(Arith::Float), join, [HEADS as u32, 1, 1]),
        ])
    });
    // Scores are made alike; only sums of up to 256 weights are added in another order.
    Ok(Scene { name: "attention", steps, out, len: HEADS * DIM, rounding: 4.0 * CHUNK as f64 * U })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(variant: &str, faster: &[f64], fault: Option<&str>) -> Score {
        let faster = faster.iter().map(|&r| ("it".to_string(), r)).collect();
        Score { variant: variant.into(), faster, fault: fault.map(Into::into), used: false }
    }

    fn chosen(scores: &[Score]) -> String {
        Outcome::decided(scores.to_vec()).chosen().to_string()
    }

    #[test]
    fn what_is_right_and_faster_is_used() {
        let dot4 = |faster: &[f64]| score("dot4", faster, None);
        assert_eq!(chosen(&[]), "plain");
        assert_eq!(chosen(&[dot4(&[1.2, 1.1, 1.3])]), "dot4");
        // Not worth other bits; slower somewhere; wrong.
        assert_eq!(chosen(&[dot4(&[1.0, 1.1, 1.0])]), "plain");
        assert_eq!(chosen(&[dot4(&[0.9, 3.0, 3.0])]), "plain");
        assert_eq!(chosen(&[score("dot4", &[2.0, 2.0, 2.0], Some("other bits"))]), "plain");
        // The faster of two ways to multiply; sums over workgroups are another matter.
        let f16 = |r: f64| score("f16", &[r, r, r], None);
        assert_eq!(chosen(&[f16(1.5), dot4(&[1.4, 1.4, 1.4])]), "f16");
        assert_eq!(
            chosen(&[f16(1.3), dot4(&[1.4, 1.4, 1.4]), score("subgroups", &[1.5, 1.0], None)]),
            "dot4,subgroups"
        );
    }
}
