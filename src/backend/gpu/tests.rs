//! Kernels one by one against sums in f64, with the bounds checks of wgpu in the shaders (which programs run
//! without).

use super::{
    device::{Choice, Gpu, choose},
    formats::{BLOCK, Format, Streams, split_row},
    ops::{Bound, MatmulParams, NormParams},
    params::Params,
    pipelines::{Family, Kernel, Mode, Pipelines, Tuning},
    readback,
    record::Recorder,
    work::TILE_ROWS,
};
use crate::quant::{GgmlType, dequantize};

/// Half a unit in the last place of 1.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// A device with checked shaders. Without any adapter the test says so and ends, unless `SPEC_RUN_REQUIRE_FIXTURES`
/// asks that it fail.
pub fn gpu(test: &str) -> Option<Gpu> {
    match choose(&Choice::Any).or_else(|_| choose(&Choice::Named("llvmpipe".into()))) {
        Ok(found) => Some(Gpu::open(&found, 1 << 30, true).unwrap()),
        Err(e) => {
            assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{test}: {e}");
            eprintln!("SKIPPED {test}: {e}");
            None
        }
    }
}

pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// -1..1
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 2f32.powi(23) - 1.0
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// Where the halves of a block stand.
fn halves(ty: GgmlType) -> &'static [usize] {
    match ty {
        GgmlType::Q4_0 | GgmlType::IQ4_NL | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::IQ4_XS => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q2_K => &[80, 82],
        GgmlType::Q3_K => &[108],
        GgmlType::Q6_K => &[208],
        _ => &[],
    }
}

/// Random bits with scales of about 1/100, as in real models.
fn blocks(random: &mut Random, ty: GgmlType, n: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..n * ty.block_bytes()).map(|_| random.next() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in halves(ty) {
            let scale = half::f16::from_f32(0.01 * (random.float() + 2.0));
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        match ty {
            GgmlType::MXFP4 => block[0] = 118 + (random.next() % 4) as u8,
            GgmlType::F32 => block.copy_from_slice(&random.float().to_le_bytes()),
            GgmlType::F16 => block.copy_from_slice(&half::f16::from_f32(random.float()).to_le_bytes()),
            GgmlType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes()),
            _ => {}
        }
    }
    bytes
}

/// The most that a minimum of these blocks takes off a weight, which may cancel.
fn minimum(ty: GgmlType) -> f64 {
    match ty {
        GgmlType::Q4_1 | GgmlType::Q5_1 => 0.03,
        GgmlType::Q4_K | GgmlType::Q5_K => 0.03 * 63.0,
        GgmlType::Q2_K => 0.03 * 15.0,
        _ => 0.0,
    }
}

pub fn storage(gpu: &Gpu, bytes: &[u8]) -> wgpu::Buffer {
    use wgpu::BufferUsages as Usage;
    let usage = Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC;
    let buffer = gpu.buffer("test", bytes.len() as u64, usage).unwrap();
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(4), 0);
    gpu.queue.write_buffer(&buffer, 0, &padded);
    buffer
}

pub fn numbers(gpu: &Gpu, x: &[f32]) -> wgpu::Buffer {
    storage(gpu, bytemuck::cast_slice(x))
}

/// Runs one kernel and reads back `len` numbers of a buffer.
fn run(
    gpu: &Gpu,
    pipelines: &mut Pipelines,
    kernel: Kernel,
    bound: &Bound,
    groups: [u32; 3],
    (out, len): (&wgpu::Buffer, usize),
) -> Vec<f32> {
    use wgpu::BufferUsages as Usage;
    let bytes = 4 * len as u64;
    let readable = gpu.buffer("result", bytes, Usage::MAP_READ | Usage::COPY_DST).unwrap();
    let mut recorder = Recorder::new(gpu, pipelines, None);
    recorder.dispatch(kernel, bound, groups).unwrap();
    recorder.copy((out, 0), (&readable, 0), bytes);
    recorder.submit();
    let read = readback::read(gpu, &readable, bytes, bytemuck::pod_collect_to_vec::<u8, f32>).unwrap();
    gpu.check().unwrap();
    read
}

/// A matrix on the device.
struct Weights {
    format: Format,
    rows: usize,
    blocks: usize,
    streams: [wgpu::Buffer; 3],
}

impl Weights {
    fn new(gpu: &Gpu, ty: GgmlType, bytes: &[u8], rows: usize, k: usize) -> Self {
        let mut streams = Streams::default();
        bytes.chunks_exact(ty.row_bytes(k).unwrap()).for_each(|row| split_row(ty, row, &mut streams));
        let streams = streams.finish().map(|stream| storage(gpu, &stream));
        Weights { format: Format::of(ty).unwrap(), rows, blocks: k.div_ceil(BLOCK), streams }
    }

    /// `x`: [columns, k]. Returns `[columns, rows]`, or half as many rows for a gate.
    fn product(&self, gpu: &Gpu, pipelines: &mut Pipelines, x: &[f32], how: &How) -> Vec<f32> {
        let k = x.len() / how.columns;
        let padded: Vec<f32> = x
            .chunks_exact(k)
            .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, self.blocks * BLOCK - k)))
            .collect();
        let tiles = how.columns.next_multiple_of(TILE_ROWS);
        let mut all_rows = padded;
        all_rows.resize(tiles * self.blocks * BLOCK, 0.0);
        let outputs = if how.mode == Mode::Gate { self.rows / 2 } else { self.rows };
        let mut before = vec![0.0; tiles * outputs];
        if how.mode == Mode::Add {
            before.iter_mut().enumerate().for_each(|(i, y)| *y = start(i));
        }
        let (x, y) = (numbers(gpu, &all_rows), numbers(gpu, &before));
        let bias = numbers(gpu, how.bias.unwrap_or(&[0.0]));
        let mut params = Params::new(gpu, 1).unwrap();
        let slot = params.add(&MatmulParams {
            rows: self.rows as u32,
            blocks: self.blocks as u32,
            x_stride: (self.blocks * BLOCK / 4) as u32,
            y_stride: outputs as u32,
            y_first: 0,
            has_bias: u32::from(how.bias.is_some()),
        });
        params.flush(gpu);
        let [high, low, scales] = &self.streams;
        let bindings = [high, low, scales, &bias, &x, &y].map(|b| b.as_entire_buffer_binding());
        let group = pipelines.bind(gpu, Family::Matmul, params.buffer(), &bindings);
        let bound = Bound { group, params: slot };
        let lanes = gpu.tuning.lanes(self.blocks);
        let &How { mode, coarse, columns, .. } = how;
        let (kernel, groups) = if how.tile {
            let groups = [self.rows.div_ceil(64) as u32, (tiles / TILE_ROWS) as u32, 1];
            (Kernel::MatmulTile { format: self.format, mode, lanes, coarse }, groups)
        } else {
            let pairs = gpu.tuning.matmul / lanes;
            let columns = columns as u32;
            let kernel = Kernel::MatmulRows { format: self.format, mode, lanes, columns, coarse };
            (kernel, [(self.rows as u32).div_ceil(2 * pairs), 1, 1])
        };
        run(gpu, pipelines, kernel, &bound, groups, (&y, columns * outputs))
    }
}

/// What stands in an output before something is added to it.
fn start(i: usize) -> f32 {
    (i % 13) as f32 - 6.0
}

struct How<'a> {
    mode: Mode,
    columns: usize,
    tile: bool,
    coarse: bool,
    bias: Option<&'a [f32]>,
}

fn plain(columns: usize, tile: bool) -> How<'static> {
    How { mode: Mode::Store, columns, tile, coarse: false, bias: None }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn types() -> impl Iterator<Item = GgmlType> {
    GgmlType::ALL.iter().copied().filter(|ty| ty.readable())
}

/// Sum and sum of magnitudes of each output, in f64.
fn exact(ty: GgmlType, bytes: &[u8], rows: usize, k: usize, x: &[f32]) -> Vec<(f64, f64)> {
    let mut w = vec![0.0; rows * k];
    dequantize(ty, bytes, &mut w);
    let minimum = 2.0 * minimum(ty);
    let dot = |w: &[f32], x: &[f32]| {
        std::iter::zip(w, x).fold((0.0, 0.0), |(sum, size), (&w, &x)| {
            let (w, x) = (f64::from(w), f64::from(x));
            (sum + w * x, size + (w.abs() + minimum) * x.abs())
        })
    };
    x.chunks_exact(k).flat_map(|x| w.chunks_exact(k).map(move |w| dot(w, x)).collect::<Vec<_>>()).collect()
}

/// Roundings on the way of one product into a sum: its weight's (3), those of its lane, those of the lanes.
fn roundings(k: usize, lanes: u32) -> f64 {
    let blocks = k.div_ceil(BLOCK) as u32;
    f64::from(3 + blocks.div_ceil(lanes) * BLOCK as u32 + lanes)
}

#[test]
fn products_of_every_format_are_right_to_rounding() {
    let Some(gpu) = gpu("products_of_every_format_are_right_to_rounding") else { return };
    check_products(&gpu, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// What runs on a real GPU: more lanes to a row, more rows to a workgroup.
#[test]
fn products_are_right_in_wide_workgroups_too() {
    let Some(mut gpu) = gpu("products_are_right_in_wide_workgroups_too") else { return };
    gpu.tuning = Tuning::HARDWARE;
    check_products(&gpu, &[1, 4, 8]);
}

fn check_products(gpu: &Gpu, few: &[usize]) {
    let mut pipelines = Pipelines::new(gpu);
    const ROWS: usize = 67;
    for ty in types() {
        let ks: &[usize] = if ty.block_len() == 1 { &[1, 19, 100, 288] } else { &[256, 2304] };
        for &k in ks {
            let mut random = Random(ty as u64 + k as u64);
            let bytes = blocks(&mut random, ty, ROWS * k / ty.block_len());
            let weights = Weights::new(gpu, ty, &bytes, ROWS, k);
            let x = random.floats(70 * k);
            let expected = exact(ty, &bytes, ROWS, k, &x);
            let limit = roundings(k, gpu.tuning.lanes(k.div_ceil(BLOCK))) * U;
            let all = weights.product(gpu, &mut pipelines, &x, &plain(70, true));
            for (i, (&got, &(want, size))) in all.iter().zip(&expected).enumerate() {
                let off = (f64::from(got) - want).abs();
                assert!(
                    off <= limit * size,
                    "{ty} k {k}, column {}, row {}: {got}, {want}",
                    i / ROWS,
                    i % ROWS
                );
            }
            // The same bits in each regime, for any number of columns.
            for &columns in few {
                let got =
                    weights.product(gpu, &mut pipelines, &x[..columns * k], &plain(columns, columns > 8));
                assert!(bits(&got) == bits(&all[..columns * ROWS]), "{ty} k {k}, {columns} columns");
            }
        }
    }
}

#[test]
fn sums_are_added_biased_and_gated() {
    let Some(gpu) = gpu("sums_are_added_biased_and_gated") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, k) = (70, 768);
    let mut random = Random(5);
    for ty in [GgmlType::Q4_0, GgmlType::Q6_K] {
        let bytes = blocks(&mut random, ty, rows * k / ty.block_len());
        let weights = Weights::new(&gpu, ty, &bytes, rows, k);
        let bias = random.floats(rows);
        for (columns, tile) in [(1, false), (5, false), (33, true)] {
            let x: Vec<f32> = random.floats(columns * k).iter().map(|x| x / 16.0).collect();
            let sums = weights.product(&gpu, &mut pipelines, &x, &plain(columns, tile));
            let how = |mode| How { mode, bias: Some(&bias[..]), ..plain(columns, tile) };
            let added = weights.product(&gpu, &mut pipelines, &x, &how(Mode::Add));
            let want: Vec<f32> =
                sums.iter().enumerate().map(|(i, sum)| sum + bias[i % rows] + start(i)).collect();
            assert!(bits(&added) == bits(&want), "{ty}, {columns} columns, added");
            let gate = How { bias: None, ..how(Mode::Gate) };
            let gated = weights.product(&gpu, &mut pipelines, &x, &gate);
            for (got, pair) in gated.iter().zip(sums.as_chunks::<2>().0) {
                let (gate, up) = (f64::from(pair[0]), f64::from(pair[1]));
                let want = gate / (1.0 + (-gate).exp()) * up;
                // An exponential of 3 + 2·|x| units, as WGSL allows, and four operations.
                let limit = (8.0 + 2.0 * gate.abs()) * 2.0 * U * want.abs() + 1e-30;
                assert!((f64::from(*got) - want).abs() <= limit, "{ty}: {gate} {up}: {got}, {want}");
            }
        }
    }
}

/// The high plane alone stands for the middle of what the low bits could make it.
#[test]
fn coarse_products_use_the_middle_of_the_interval() {
    let Some(gpu) = gpu("coarse_products_use_the_middle_of_the_interval") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, k) = (66, 256);
    for ty in types().filter(|&ty| Format::of(ty).unwrap().has_planes()) {
        let mut random = Random(ty as u64);
        let bytes = blocks(&mut random, ty, rows * k / ty.block_len());
        let weights = Weights::new(&gpu, ty, &bytes, rows, k);
        // The mean over all settings of the low bits is that middle.
        let settings = 1u32 << (8 * weights.format.streams()[1].bytes / BLOCK);
        let mut mean = vec![0.0f64; rows];
        let x = random.floats(k);
        for setting in 0..settings {
            let mut streams = Streams::default();
            bytes.chunks_exact(ty.row_bytes(k).unwrap()).for_each(|row| split_row(ty, row, &mut streams));
            let bits_each = settings.ilog2();
            let byte = (0..8 / bits_each).fold(0u8, |byte, i| byte | (setting as u8) << (i * bits_each));
            streams.0[1].fill(byte);
            let set = Weights { streams: streams.finish().map(|s| storage(&gpu, &s)), ..weights.copy() };
            let got = set.product(&gpu, &mut pipelines, &x, &plain(1, false));
            mean.iter_mut().zip(&got).for_each(|(m, &y)| *m += f64::from(y) / f64::from(settings));
        }
        for (columns, tile) in [(1, false), (9, true)] {
            let how = How { coarse: true, ..plain(columns, tile) };
            let got = weights.product(&gpu, &mut pipelines, &x.repeat(columns), &how);
            let sizes = exact(ty, &bytes, rows, k, &x);
            for (i, got) in got.iter().enumerate() {
                let (want, (_, size)) = (mean[i % rows], sizes[i % rows]);
                // The low bits may be most of a small weight, so the size is that of the full range.
                let limit = 4.0 * roundings(k, 8) * U * (size + 64.0 * 0.03 * 127.0);
                assert!((f64::from(*got) - want).abs() <= limit, "{ty}, row {i}: {got}, {want}");
            }
        }
    }
}

impl Weights {
    fn copy(&self) -> Self {
        Weights { format: self.format, rows: self.rows, blocks: self.blocks, streams: self.streams.clone() }
    }
}

#[test]
fn norms_are_right_to_rounding() {
    let Some(gpu) = gpu("norms_are_right_to_rounding") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let mut random = Random(8);
    for dim in [4usize, 64, 100, 2048] {
        let stride = dim.next_multiple_of(BLOCK);
        let padded = |x: Vec<f32>| -> Vec<f32> {
            let rows = x.chunks_exact(dim);
            rows.flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, stride - dim))).collect()
        };
        let (x, weight, eps) = (random.floats(3 * dim), random.floats(dim), 1e-5f32);
        let h = numbers(&gpu, &vec![0.0; 3 * stride]);
        let mut params = Params::new(&gpu, 1).unwrap();
        let slot = params.add(&NormParams {
            dim: dim as u32,
            stride: (stride / 4) as u32,
            eps,
            listed: 1,
            list_at: 1,
        });
        params.flush(&gpu);
        // Rows 2 and 0, from a list that begins at word 1.
        let rows = storage(&gpu, bytemuck::cast_slice(&[9u32, 2, 0]));
        let (weights, rows_x) = (numbers(&gpu, &padded(weight.clone())), numbers(&gpu, &padded(x.clone())));
        let bindings = [&rows, &weights, &rows_x, &h].map(|b| b.as_entire_buffer_binding());
        let group = pipelines.bind(&gpu, Family::Norm, params.buffer(), &bindings);
        let bound = Bound { group, params: slot };
        let got = run(&gpu, &mut pipelines, Kernel::Norm, &bound, [2, 1, 1], (&h, 2 * stride));
        for (got, row) in got.chunks_exact(stride).zip([2, 0]) {
            let x = &x[row * dim..][..dim];
            let square: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / dim as f64;
            let scale = 1.0 / (square + f64::from(eps)).sqrt();
            assert!(got[dim..].iter().all(|&x| x == 0.0));
            for ((got, &x), &weight) in got.iter().zip(x).zip(&weight) {
                let want = f64::from(x) * scale * f64::from(weight);
                // Half of the sum's roundings reach its root; WGSL divides within 2.5 units.
                let limit = (dim as f64 / 8.0 + 300.0) * U * want.abs() + 1e-30;
                assert!((f64::from(*got) - want).abs() <= limit, "dim {dim}: {got}, {want}");
            }
        }
    }
}
