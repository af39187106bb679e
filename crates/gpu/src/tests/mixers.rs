//! Convolutions and scans against f64, over sequences that are cut into passes at any row, beside each other, and gone
//! through again.

use super::{
    super::{
        harness::{Dispatch, Random, Scratch, bind, numbers, run, storage},
        layout::BufLayout,
        ops::mixers::{MixerLayouts, convolve_params, scan_params},
        pipelines::{Kernel, Pipelines},
        states::{ScanShape, Slab, pass_words, replay_words},
        tuning::Tuning,
    },
    Gpu, bits, gpu,
};
use crate::{
    kv::{Replay, ReplayStep, StateRun, StateStep},
    plan::{Buf, Conv, MixerSpec, Scan, ScanKind, WeightId},
};

/// Rows of a text.
const ROWS: usize = 21;
const SLABS: usize = 6;

/// A mixer as models have it, and one text for each of two sequences.
struct Case {
    spec: MixerSpec,
    taps: Vec<f32>,
    bias: Vec<f32>,
    step_bias: Vec<f32>,
    decay: Vec<f32>,
    through: Vec<f32>,
    /// By text: `[row, channels]`, `[row, heads]`.
    inputs: [Vec<f32>; 2],
    steps: [Vec<f32>; 2],
    betas: [Vec<f32>; 2],
}

/// What comes out of a text's rows: of the convolution, and of the scan.
type Rows<T> = (Vec<T>, Vec<T>);

impl Case {
    fn new(spec: MixerSpec) -> Self {
        let mut random = Random::new(spec.state_len() as u64);
        let heads = spec.scan.map_or(1, |scan| scan.n_head);
        let channels = spec.conv.channels;
        let mut both = |width: usize| [0, 1].map(|_| random.floats(ROWS * width));
        let (inputs, steps, betas) = (both(channels), both(heads), both(heads));
        Case {
            spec,
            inputs,
            steps,
            betas,
            taps: random.floats(spec.conv.kernel * channels),
            bias: random.floats(channels),
            step_bias: random.floats(heads),
            // A state fades.
            decay: random.floats(heads).iter().map(|x| x - 1.1).collect(),
            through: random.floats(heads),
        }
    }

    /// A text by the definition, in f64.
    fn exact(&self, text: usize) -> Rows<f64> {
        let Conv { channels, kernel, silu, .. } = self.spec.conv;
        let input = |row: isize, c: usize| match usize::try_from(row) {
            Ok(row) => f64::from(self.inputs[text][row * channels + c]),
            Err(_) => 0.0,
        };
        let mut convolved = Vec::new();
        for (row, c) in (0..ROWS).flat_map(|row| (0..channels).map(move |c| (row, c))) {
            let tap = |j: usize| {
                f64::from(self.taps[j * channels + c]) * input((row + j) as isize + 1 - kernel as isize, c)
            };
            let sum = (0..kernel).map(tap).sum::<f64>() + f64::from(self.bias[c]);
            convolved.push(if silu { sum / (1.0 + (-sum).exp()) } else { sum });
        }
        let mut out = Vec::new();
        let Some(scan) = self.spec.scan else { return (convolved, out) };
        let Scan { n_head, rows, columns, .. } = scan;
        let mut states = vec![vec![0.0; rows * columns]; n_head];
        for (row, x) in convolved.chunks_exact(channels).enumerate() {
            for (head, state) in states.iter_mut().enumerate() {
                let at = scan.columns_of(head);
                let (mut q, mut k) = (x[at.q..][..rows].to_vec(), x[at.k..][..rows].to_vec());
                let v = &x[at.v..][..columns];
                let of = |x: &[f32]| f64::from(x[row * n_head + head]);
                let size = (of(&self.steps[text]) + f64::from(self.step_bias[head])).exp().ln_1p();
                let keep = (size * f64::from(self.decay[head])).exp();
                state.iter_mut().for_each(|s| *s *= keep);
                if let ScanKind::GatedDelta { eps, .. } = scan.kind {
                    for x in [&mut q, &mut k] {
                        let length = x.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::from(eps));
                        x.iter_mut().for_each(|x| *x /= length);
                    }
                }
                for c in 0..columns {
                    let known: f64 = (0..rows).map(|r| state[r * columns + c] * k[r]).sum();
                    let written = match scan.kind {
                        ScanKind::GatedDelta { .. } => {
                            (v[c] - known) / (1.0 + (-of(&self.betas[text])).exp())
                        }
                        ScanKind::Mamba2 { .. } => size * v[c],
                    };
                    (0..rows).for_each(|r| state[r * columns + c] += k[r] * written);
                    let read: f64 = (0..rows).map(|r| state[r * columns + c] * q[r]).sum();
                    out.push(match scan.kind {
                        ScanKind::GatedDelta { .. } => read / (rows as f64).sqrt(),
                        ScanKind::Mamba2 { .. } => read + f64::from(self.through[head]) * v[c],
                    });
                }
            }
        }
        (convolved, out)
    }
}

/// A mixer's states on a device.
struct Device<'a> {
    gpu: &'a Gpu,
    pipelines: Pipelines,
    case: &'a Case,
    slabs: Scratch<'a>,
    taps: Scratch<'a>,
    of_heads: Scratch<'a>,
}

/// Some rows of a text.
#[derive(Clone)]
struct Piece {
    text: usize,
    rows: std::ops::Range<usize>,
    from: Option<u32>,
    to: u32,
    replayed_from: Option<usize>,
}

impl<'a> Device<'a> {
    fn new(gpu: &'a Gpu, case: &'a Case) -> Self {
        let of_heads = [&case.step_bias[..], &case.decay, &case.through].concat();
        Device {
            gpu,
            pipelines: Pipelines::new(gpu),
            case,
            // What nobody has written is not read.
            slabs: numbers(gpu, &vec![f32::NAN; SLABS * Slab::of(&case.spec).len]).unwrap(),
            taps: numbers(gpu, &[&case.taps[..], &case.bias].concat()).unwrap(),
            of_heads: numbers(gpu, &of_heads).unwrap(),
        }
    }

    /// Places in rows that have something before and behind them.
    fn layouts(&self) -> MixerLayouts {
        let MixerSpec { conv, scan } = &self.case.spec;
        let heads = scan.map_or(1, |scan| scan.n_head);
        let at_column = |column, width: usize| BufLayout {
            buffer: 0,
            column,
            stride: (column + width + 5) / 4 * 4 + 4,
            width,
        };
        MixerLayouts {
            src: at_column(3, conv.channels),
            dst: at_column(8, conv.channels),
            step: at_column(2, heads),
            beta: at_column(1, heads),
            out: at_column(0, scan.map_or(1, |scan| scan.n_head * scan.columns)),
        }
    }

    fn dispatches(&self, words: &[u32], buffers: [&Scratch; 5], runs: usize, again: bool) -> Vec<Dispatch> {
        let MixerSpec { conv, scan } = &self.case.spec;
        let (layouts, [src, dst, step, beta, out]) = (self.layouts(), buffers);
        let words = storage(self.gpu, bytemuck::cast_slice(words)).unwrap();
        let params = convolve_params(1, &self.case.spec, &layouts);
        let buffers = [&words, src, &self.taps, &self.slabs, dst].map(|scratch| &scratch.buffer);
        let bound =
            bind(self.gpu, &self.pipelines, Kernel::Convolve { again: false }, &params, &buffers).unwrap();
        let groups = [conv.channels.div_ceil(32) as u32, runs as u32, 1];
        let mut steps = vec![(Kernel::Convolve { again }, bound, groups)];
        if let Some(scan) = scan {
            let params = scan_params(1, &self.case.spec, scan, &layouts);
            let buffers =
                [&words, dst, step, beta, &self.of_heads, &self.slabs, out].map(|scratch| &scratch.buffer);
            let ScanShape { lanes, groups } = ScanShape::of(scan);
            let gated_delta = matches!(scan.kind, ScanKind::GatedDelta { .. });
            let kernel = Kernel::Scan { gated_delta, lanes: lanes as u32, again };
            let bound = bind(self.gpu, &self.pipelines, kernel, &params, &buffers).unwrap();
            steps.push((kernel, bound, [(scan.n_head * groups) as u32, runs as u32, 1]));
        }
        steps
    }

    /// One pass, in which the rows of the pieces take turns; what comes out of each.
    fn pass(&mut self, pieces: &[Piece]) -> Vec<Rows<f32>> {
        let mut rows: Vec<(usize, usize)> = Vec::new();
        let longest = pieces.iter().map(|piece| piece.rows.len()).max().unwrap();
        for n in 0..longest {
            let with = pieces.iter().enumerate().filter(|(_, piece)| n < piece.rows.len());
            rows.extend(with.map(|(i, _)| (i, n)));
        }
        let runs: Vec<StateRun> = pieces
            .iter()
            .enumerate()
            .map(|(i, piece)| StateRun {
                rows: (0..rows.len()).filter(|&row| rows[row].0 == i).collect(),
                steps: vec![None, Some(StateStep { from: piece.from, to: piece.to })],
                replayed_from: piece.replayed_from,
            })
            .collect();
        let layouts = self.layouts();
        let made = |layout: BufLayout, of: &dyn Fn(usize) -> &'a [f32]| {
            let mut all = vec![99.0; rows.len() * layout.stride];
            for (row, &(i, n)) in rows.iter().enumerate() {
                let at = pieces[i].rows.start + n;
                let numbers = &of(pieces[i].text)[at * layout.width..][..layout.width];
                all[row * layout.stride + layout.column..][..layout.width].copy_from_slice(numbers);
            }
            numbers(self.gpu, &all).unwrap()
        };
        let case = self.case;
        let src = made(layouts.src, &|text| &case.inputs[text]);
        let step = made(layouts.step, &|text| &case.steps[text]);
        let beta = made(layouts.beta, &|text| &case.betas[text]);
        let [dst, out] =
            [layouts.dst, layouts.out].map(|p| numbers(self.gpu, &vec![7.0; rows.len() * p.stride]).unwrap());
        let words = pass_words(2, &runs);
        let steps = self.dispatches(&words, [&src, &dst, &step, &beta, &out], runs.len(), false);
        let convolved =
            run(self.gpu, &mut self.pipelines, &steps, &dst.buffer, rows.len() * layouts.dst.stride).unwrap();
        let scanned =
            run(self.gpu, &mut self.pipelines, &[], &out.buffer, rows.len() * layouts.out.stride).unwrap();
        let of = |run: &StateRun, all: &[f32], layout: BufLayout| -> Vec<f32> {
            let row = |&row: &usize| &all[row * layout.stride + layout.column..][..layout.width];
            run.rows.iter().flat_map(row).copied().collect()
        };
        let rows_of = |run| (of(run, &convolved, layouts.dst), of(run, &scanned, layouts.out));
        runs.iter().map(rows_of).collect()
    }

    fn replay(&mut self, from: Option<u32>, inputs: u32, to: u32, rows: usize) {
        let replay = Replay { layers: vec![None, Some(ReplayStep { from, inputs, to })], rows };
        let layouts = self.layouts();
        let scratch = |layout: BufLayout| numbers(self.gpu, &vec![99.0; rows * layout.stride]).unwrap();
        let buffers = [layouts.src, layouts.dst, layouts.step, layouts.beta, layouts.out].map(scratch);
        let steps = self.dispatches(&replay_words(&replay), buffers.each_ref(), 1, true);
        run(self.gpu, &mut self.pipelines, &steps, &buffers[1].buffer, 1).unwrap();
    }
}

fn short_conv(channels: usize, kernel: usize, silu: bool) -> Conv {
    Conv { src: Buf::Q, dst: Buf::K, channels, kernel, weight: WeightId(0), bias: None, silu }
}

fn scan(
    kind: ScanKind,
    (n_head, n_key_head): (usize, usize),
    (rows, columns): (usize, usize),
    repeats: bool,
) -> MixerSpec {
    let channels = n_head * columns + 2 * n_key_head * rows;
    let (step_bias, decay) = (WeightId(0), WeightId(0));
    MixerSpec {
        conv: short_conv(channels, 4, true),
        scan: Some(Scan {
            kind,
            n_head,
            rows,
            columns,
            n_key_head,
            repeats,
            step: Buf::H,
            step_bias,
            decay,
            out: Buf::A,
        }),
    }
}

fn cases() -> Vec<Case> {
    let delta = ScanKind::GatedDelta { beta: Buf::G, eps: 1e-6 };
    let mamba = ScanKind::Mamba2 { through: WeightId(0) };
    let specs = [
        MixerSpec { conv: short_conv(70, 3, false), scan: None },
        MixerSpec { conv: short_conv(40, 1, true), scan: None },
        scan(delta, (4, 2), (16, 16), true),
        scan(delta, (4, 2), (128, 20), false),
        scan(mamba, (6, 2), (20, 12), false),
        scan(mamba, (2, 1), (256, 64), false),
    ];
    specs.into_iter().map(Case::new).collect()
}

/// Rounding through some hundred operations; a wrong one is off by hundredths.
fn check(got: &[f32], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let size = want.iter().fold(1.0f64, |size, x| size.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*got) - want).abs() <= 1e-5 * size, "{what}, {i}: {got}, {want}");
    }
}

fn piece(text: usize, rows: std::ops::Range<usize>, from: Option<u32>, to: u32) -> Piece {
    Piece { text, rows, from, to, replayed_from: None }
}

#[test]
fn states_go_on_from_row_to_row_however_a_text_is_cut() {
    let Some(mut gpu) = gpu("states_go_on_from_row_to_row_however_a_text_is_cut") else { return };
    for tuning in [Tuning::SOFTWARE, Tuning::HARDWARE] {
        gpu.tuning = tuning.within(&gpu.limits);
        for case in &cases() {
            let mut device = Device::new(&gpu, case);
            let what = format!("{:?}", case.spec);
            let exact = [0, 1].map(|text| case.exact(text));
            let whole = device.pass(&[piece(0, 0..ROWS, None, 0), piece(1, 0..ROWS, None, 1)]);
            for (whole, exact) in whole.iter().zip(&exact) {
                check(&whole.0, &exact.0, &what);
                if case.spec.scan.is_some() {
                    check(&whole.1, &exact.1, &what);
                }
            }
            let widths = [case.spec.conv.channels, whole[0].1.len() / ROWS];
            let same = |got: &Rows<f32>, text: usize, rows: std::ops::Range<usize>, what: &str| {
                let part = |all: &[f32], width| bits(&all[rows.start * width..rows.end * width]);
                let (convolved, scanned) = &whole[text];
                assert!(bits(&got.0) == part(convolved, widths[0]), "{what}: convolved {rows:?}");
                // Without a scan nothing is put out.
                if case.spec.scan.is_some() {
                    assert!(bits(&got.1) == part(scanned, widths[1]), "{what}: scanned {rows:?}");
                }
            };
            // Another text's state in the same slab; and one that goes on in layout while the other moves.
            let first = device.pass(&[piece(0, 0..2, None, 2), piece(1, 0..7, None, 3)]);
            same(&first[0], 0, 0..2, &what);
            same(&first[1], 1, 0..7, &what);
            let kept = Piece { replayed_from: Some(0), ..piece(0, 2..9, Some(2), 4) };
            let second = device.pass(&[kept, piece(1, 7..8, Some(3), 3)]);
            same(&second[0], 0, 2..9, &what);
            same(&second[1], 1, 7..8, &what);
            let more = Piece { replayed_from: Some(7), ..piece(0, 9..12, Some(4), 4) };
            same(&device.pass(&[more])[0], 0, 9..12, &what);
            // Back to the row behind the ninth, in another slab and then where the rows are; and from there to an earlier one.
            for (to, rows) in [(5, 8), (4, 9), (4, 3)] {
                device.replay(Some(2), 4, to, rows);
                let next = device.pass(&[piece(0, 2 + rows..15, Some(to), 0)]);
                same(&next[0], 0, 2 + rows..15, &format!("{what}, after {rows} again"));
            }
            // The slab that the rows were copied to has them, too.
            device.replay(Some(2), 4, 5, 3);
            device.replay(Some(2), 5, 1, 2);
            same(&device.pass(&[piece(0, 4..9, Some(1), 1)])[0], 0, 4..9, &what);
            // In the layout of the state before.
            device.replay(Some(2), 4, 2, 4);
            same(&device.pass(&[piece(0, 6..10, Some(2), 2)])[0], 0, 6..10, &what);
            // A text of which all is gone through again.
            let kept = Piece { replayed_from: Some(0), ..piece(1, 0..5, None, 0) };
            device.pass(&[kept]);
            device.replay(None, 0, 0, 4);
            same(&device.pass(&[piece(1, 4..ROWS, Some(0), 0)])[0], 1, 4..ROWS, &what);
        }
    }
}
