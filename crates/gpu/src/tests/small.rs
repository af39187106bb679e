//! Norms of every kind, activations, and what is added, multiplied, scaled and capped, against f64.

use super::{
    super::{
        device::Gpu,
        harness::{Random, bind, numbers, run, storage},
        params::{ActivateParams, AddParams, CapParams, MultiplyParams, NormGroupsParams, ScaleParams},
        pipelines::{Curve, Kernel, Pipelines, numbers_of},
    },
    TUNINGS, U, gpu,
};
use crate::plan::Activation;

/// A norm as models have it.
struct Norm {
    centred: bool,
    group: usize,
    groups: usize,
    /// Factors and summands for each group by itself.
    by_own: bool,
    adds: bool,
    /// Source and result lie in the same rows.
    inside: bool,
}

#[test]
fn norms_of_groups_are_right_to_rounding() {
    let test = "norms_of_groups_are_right_to_rounding";
    let Some(mut gpu) = gpu(test) else { return };
    for tuning in TUNINGS {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        let of = |centred, group, groups, by_own, adds, inside| Norm {
            centred,
            group,
            groups,
            by_own,
            adds,
            inside,
        };
        for norm in [
            of(false, 100, 1, false, false, false),
            of(true, 100, 1, false, false, false),
            of(true, 2048, 1, false, true, false),
            of(false, 24, 3, false, false, true),
            of(true, 20, 4, true, false, true),
            of(false, 64, 2, true, true, false),
        ] {
            check_norm(&gpu, &mut pipelines, &norm);
        }
    }
}

fn check_norm(gpu: &Gpu, pipelines: &mut Pipelines, norm: &Norm) {
    let Norm { group, groups, .. } = *norm;
    let (rows, width, eps) = (3, group * groups, 1e-5f32);
    // Rows begin in a column of their own, as beside others.
    let (first, stride) = (3, width + 5);
    let mut random = Random::new((group * groups) as u64);
    let src = random.floats(rows * stride);
    let before = if norm.inside { src.clone() } else { random.floats(rows * stride) };
    let factors = if norm.by_own { width } else { group };
    let affine = random.floats(2 * factors);
    let params = NormGroupsParams {
        len: group as u32,
        src_stride: stride as u32,
        src_first: first as u32,
        dst_stride: stride as u32,
        dst_first: first as u32,
        eps,
        step: if norm.by_own { group as u32 } else { 0 },
        summands_at: factors as u32,
        subtracts_mean: u32::from(norm.centred),
        adds: u32::from(norm.adds),
        listed: u32::from(!norm.inside),
        list_at: 1,
    };
    let list = if norm.inside { [0, 1, 2] } else { [2, 0, 1] };
    let listed = storage(gpu, bytemuck::cast_slice(&[9u32, list[0], list[1], list[2]])).unwrap();
    let (numbers_in, x, y) =
        (numbers(gpu, &affine).unwrap(), numbers(gpu, &src).unwrap(), numbers(gpu, &before).unwrap());
    let mut buffers = vec![&listed.buffer, &numbers_in.buffer, &x.buffer, &y.buffer];
    if norm.inside {
        buffers.remove(2);
    }
    let kernel = Kernel::NormGroups { inside: norm.inside };
    let bound = bind(gpu, pipelines, kernel, &params, &buffers).unwrap();
    let steps = [(kernel, bound, [groups as u32, rows as u32, 1])];
    let got = run(gpu, pipelines, &steps, &y.buffer, rows * stride).unwrap();
    for (i, &got) in got.iter().enumerate() {
        let (row, column) = (i / stride, i % stride);
        let Some(at) = column.checked_sub(first).filter(|&at| at < width) else {
            assert_eq!(got, before[i], "beside the rows");
            continue;
        };
        let begin = list[row] as usize * stride + first + at / group * group;
        let x: Vec<f64> = src[begin..begin + group].iter().map(|&x| f64::from(x)).collect();
        let mean = if norm.centred { x.iter().sum::<f64>() / group as f64 } else { 0.0 };
        let square = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / group as f64;
        let scale = 1.0 / (square + f64::from(eps)).sqrt();
        let of = if norm.by_own { at } else { at % group };
        let [factor, summand] = [affine[of], affine[factors + of]].map(f64::from);
        let add = if norm.adds { f64::from(before[i]) } else { 0.0 };
        let normed = (x[at % group] - mean) * scale * factor;
        // Half of the sum's roundings reach its root; WGSL divides within 2.5 units. The mean is off by its sum's.
        let size = (normed.abs() + (mean.abs() + 1.0) * scale * factor.abs()) + summand.abs() + add.abs();
        let limit = (group as f64 / 8.0 + 300.0) * U * size;
        let off = (f64::from(got) - (normed + summand + add)).abs();
        assert!(off <= limit, "groups of {group}, {i}: {got}, {}", normed + summand + add);
    }
}

const ACTIVATIONS: [Activation; 6] = [
    Activation::Silu,
    Activation::Gelu,
    Activation::ReluSquared,
    Activation::Sigmoid,
    Activation::ClampedSwiglu { alpha: 1.702, limit: 7.0 },
    Activation::Xielu { positive: 0.8, negative: 0.7, beta: 0.5, eps: -1e-6 },
];

/// What an activation lets through, by its formula.
fn activated(activation: Activation, x: f64, by: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()) * by,
        Activation::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            // 0.5 · (1 + tanh(u)), which would be zero far below zero.
            x / (1.0 + (-2.0 * inner).exp()) * by
        }
        Activation::ReluSquared => x.max(0.0).powi(2) * by,
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()) * by,
        Activation::ClampedSwiglu { alpha, limit } => {
            let (alpha, limit) = (f64::from(alpha), f64::from(limit));
            let gate = x.min(limit);
            gate / (1.0 + (-alpha * gate).exp()) * (by.clamp(-limit, limit) + 1.0)
        }
        Activation::Xielu { positive, negative, beta, eps } => {
            let [positive, negative, beta, eps] = [positive, negative, beta, eps].map(f64::from);
            let curve = if x > 0.0 { positive * x * x } else { negative * (x.min(eps).exp() - 1.0 - x) };
            (curve + beta * x) * by
        }
    }
}

/// From far below to far above zero, where exponentials leave the range of floats.
fn arguments() -> Vec<f32> {
    let mut x: Vec<f32> = (-80..=80).map(|i| i as f32 / 8.0).collect();
    x.extend([-1000.0, -120.0, -90.0, -30.0, -1e-3, 1e-3, 30.0, 90.0, 120.0]);
    x
}

/// An exponential of 3 + 2·|u| units, as WGSL allows, where u is what GELU makes of x or less and is itself off by some
/// units; of what is taken from another number, units of that.
fn near(got: f32, want: f64, x: f32, by: f64) -> bool {
    let x = f64::from(x);
    let reach = (1.8 * (x.abs() + 0.05 * x.abs().powi(3))).min(90.0);
    let size = want.abs() + if x.abs() < 4.0 { (1.0 + x.abs()) * by.abs() } else { 0.0 };
    (f64::from(got) - want).abs() <= (24.0 + 8.0 * reach) * 2.0 * U * size + 1e-30
}

#[test]
fn activations_are_those_of_their_formulas() {
    let Some(gpu) = gpu("activations_are_those_of_their_formulas") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let x = arguments();
    let ups = Random::new(31).floats(x.len());
    for activation in ACTIVATIONS {
        let (g, u) = (numbers(&gpu, &x).unwrap(), numbers(&gpu, &ups).unwrap());
        let params = ActivateParams { numbers: numbers_of(Some(activation)), count: x.len() as u32 };
        let bound =
            bind(&gpu, &pipelines, Kernel::Activate(activation.into()), &params, &[&u.buffer, &g.buffer])
                .unwrap();
        let steps = [(Kernel::Activate(activation.into()), bound, [x.len().div_ceil(64) as u32, 1, 1])];
        let got = run(&gpu, &mut pipelines, &steps, &g.buffer, x.len()).unwrap();
        for ((&got, &x), &up) in got.iter().zip(&x).zip(&ups) {
            let want = activated(activation, f64::from(x), f64::from(up));
            // The second factor may have one added to it.
            assert!(near(got, want, x, f64::from(up) + 1.0), "{activation:?} of {x}, {up}: {got}, {want}");
        }
    }
}

#[test]
fn rows_are_multiplied_added_and_scaled_where_they_lie() {
    let Some(gpu) = gpu("rows_are_multiplied_added_and_scaled_where_they_lie") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, width, stride, first) = (3usize, 70usize, 80usize, 4usize);
    let (other_stride, other_first) = (150usize, 61usize);
    let mut random = Random::new(32);
    let before = random.floats(rows * stride);
    let other = random.floats(rows * other_stride);
    let by = numbers(&gpu, &other).unwrap();
    let groups = [width.div_ceil(64) as u32, rows as u32, 1];
    let [width32, stride32, first32] = [width, stride, first].map(|x| x as u32);
    let [by_stride, by_first] = [other_stride, other_first].map(|x| x as u32);
    let mut check = |what: &str,
                     kernel: Kernel,
                     bound_of: &dyn Fn(&Pipelines, &wgpu::Buffer) -> _,
                     want: &dyn Fn(f64, f64, usize) -> f64| {
        let dst = numbers(&gpu, &before).unwrap();
        let bound = bound_of(&pipelines, &dst.buffer);
        let got = run(&gpu, &mut pipelines, &[(kernel, bound, groups)], &dst.buffer, before.len()).unwrap();
        for (i, &got) in got.iter().enumerate() {
            let (row, column) = (i / stride, i % stride);
            let Some(at) = column.checked_sub(first).filter(|&at| at < width) else {
                assert_eq!(got, before[i], "{what}: beside the rows");
                continue;
            };
            let by = f64::from(other[row * other_stride + other_first + at]);
            let want = want(f64::from(before[i]), by, row);
            assert!(
                (f64::from(got) - want).abs() <= 60.0 * U * (1.0 + want.abs()),
                "{what} {i}: {got}, {want}"
            );
        }
    };
    let f = Activation::Gelu;
    let kernel = Kernel::Multiply { f: f.into(), g: Curve::Sigmoid };
    check(
        "multiplied",
        kernel,
        &|pipelines, dst| {
            let params = MultiplyParams {
                width: width32,
                dst_stride: stride32,
                dst_first: first32,
                by_stride,
                by_first,
                ..MultiplyParams::default()
            };
            bind(&gpu, pipelines, kernel, &params, &[&by.buffer, dst]).unwrap()
        },
        &|x, by, _| activated(f, x, 1.0) * activated(Activation::Sigmoid, by, 1.0),
    );
    for gated in [false, true] {
        check(
            "added",
            Kernel::Add,
            &|pipelines, dst| {
                let params = AddParams {
                    width: width32,
                    src_stride: by_stride,
                    src_first: by_first,
                    dst_stride: stride32,
                    dst_first: first32,
                    scale: 0.25,
                    gated: u32::from(gated),
                    gate_stride: by_stride,
                    gate_first: 7,
                };
                bind(&gpu, pipelines, Kernel::Add, &params, &[&by.buffer, &by.buffer, dst]).unwrap()
            },
            &|x, by, row| {
                let gate = f64::from(other[row * other_stride + 7]);
                x + 0.25 * by * if gated { activated(Activation::Sigmoid, gate, 1.0) } else { 1.0 }
            },
        );
    }
    check(
        "scaled",
        Kernel::Scale,
        &|pipelines, dst| {
            let params = ScaleParams { width: width32, stride: stride32, first: first32, by: 3.5 };
            bind(&gpu, pipelines, Kernel::Scale, &params, &[dst]).unwrap()
        },
        &|x, _, _| 3.5 * x,
    );
}

#[test]
fn logits_are_scaled_and_capped() {
    let Some(gpu) = gpu("logits_are_scaled_and_capped") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let x: Vec<f32> = arguments().iter().map(|x| 10.0 * x).collect();
    for (scale, cap) in [(0.125f32, 0.0f32), (1.0, 30.0), (2.0, 15.0)] {
        let logits = numbers(&gpu, &x).unwrap();
        let params = CapParams { count: x.len() as u32, scale, cap };
        let bound = bind(&gpu, &pipelines, Kernel::Cap, &params, &[&logits.buffer]).unwrap();
        let steps = [(Kernel::Cap, bound, [x.len().div_ceil(64) as u32, 1, 1])];
        let got = run(&gpu, &mut pipelines, &steps, &logits.buffer, x.len()).unwrap();
        for (&got, &x) in got.iter().zip(&x) {
            let scaled = f64::from(x) * f64::from(scale);
            let want = if cap > 0.0 { f64::from(cap) * (scaled / f64::from(cap)).tanh() } else { scaled };
            // The cap is taken from twice itself.
            let limit = 16.0 * U * (want.abs() + 2.0 * f64::from(cap)) * (1.0 + scaled.abs().min(90.0));
            assert!((f64::from(got) - want).abs() <= limit, "{x} below {cap}: {got}, {want}");
        }
    }
}
