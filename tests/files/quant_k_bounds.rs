//! The quantizers of Q4_K, Q5_K and Q6_K have no reference bytes; what they promise is a bound on the error,
//! which is computed here from the values alone.

use spec_run::{
    quant::{GgmlType, dequantize, quantize},
    rng::Rng,
};

/// What rounding a step up to a half and float arithmetic may add to the exact bound.
const SLACK: f64 = 1.002;
const SMALLEST_HALF: f64 = 1.0 / (1 << 24) as f64;

fn round_trip(ty: GgmlType, x: &[f32]) -> Vec<f32> {
    let mut bytes = Vec::new();
    quantize(ty, x, &mut bytes).unwrap();
    let mut out = vec![0.0; x.len()];
    dequantize(ty, &bytes, &mut out);
    out
}

fn ends(x: &[f32]) -> (f64, f64) {
    x.iter().fold((0.0, f64::MIN), |(low, high), &x| (f64::min(low, x.into()), f64::max(high, x.into())))
}

/// A bound on the error of each value of one block.
fn bounds(ty: GgmlType, x: &[f32]) -> Vec<f64> {
    let rounded_up = |step: f64| step * SLACK + SMALLEST_HALF;
    let affine = |top: f64| {
        let subs: Vec<(f64, f64)> = x.chunks(32).map(ends).collect();
        let dmin = rounded_up(subs.iter().map(|(low, _)| -low).fold(0.0, f64::max) / 63.0);
        // The grid of a sub-block reaches from its lower end, at most `dmin` further down, to its upper end.
        let span = |(low, high): &(f64, f64)| (high - low + dmin).max(0.0) / top;
        let d = rounded_up(subs.iter().map(span).fold(0.0, f64::max) / 63.0);
        subs.iter().flat_map(|sub| [0.5 * (span(sub) + d) * SLACK; 32]).collect()
    };
    match ty {
        GgmlType::Q4_K => affine(15.0),
        GgmlType::Q5_K => affine(31.0),
        GgmlType::Q6_K => {
            let amax: Vec<f64> =
                x.chunks(16).map(|x| x.iter().fold(0.0, |a, x| f64::max(a, x.abs().into()))).collect();
            let d = rounded_up(amax.iter().copied().fold(0.0, f64::max) / (31.0 * 127.0));
            amax.iter().flat_map(|amax| [0.5 * (amax / 31.0 + d) * SLACK; 16]).collect()
        }
        other => unreachable!("{other}"),
    }
}

fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut rng = Rng::new(seed);
    move || (rng.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn blocks() -> Vec<(&'static str, Vec<f32>)> {
    let mut noise = noise(5);
    let mut block =
        |f: &mut dyn FnMut(usize, f32) -> f32| (0..256).map(|i| f(i, noise())).collect::<Vec<_>>();
    let mut blocks = vec![
        ("zeros", vec![0.0; 256]),
        ("a constant", vec![0.7; 256]),
        ("a negative constant", vec![-0.7; 256]),
        ("a ramp", block(&mut |i, _| i as f32 / 128.0 - 1.0)),
        ("an outlier", block(&mut |i, x| if i == 77 { 50.0 } else { x })),
        ("a negative outlier", block(&mut |i, x| if i == 200 { -50.0 } else { x })),
        ("sub-blocks of many sizes", block(&mut |i, x| x * 2f32.powi(-((i / 16) as i32)))),
        ("all positive", block(&mut |_, x| x + 3.0)),
        ("all negative", block(&mut |_, x| x - 3.0)),
        ("large", block(&mut |_, x| x * 1e6)),
    ];
    for exponent in [-2, -6, -9, -12, -16, -20] {
        let label = "noise of one size, down to steps below the smallest half";
        blocks.push((label, block(&mut |_, x| x * 2f32.powi(exponent))));
    }
    blocks
}

#[test]
fn errors_stay_within_the_bound() {
    for ty in [GgmlType::Q4_K, GgmlType::Q5_K, GgmlType::Q6_K] {
        for (label, x) in blocks() {
            let out = round_trip(ty, &x);
            for (i, ((x, out), bound)) in x.iter().zip(&out).zip(bounds(ty, &x)).enumerate() {
                let error = f64::from((x - out).abs());
                assert!(
                    error <= bound,
                    "{ty}, {label}, value {i}: {x} became {out}, {error:e} off, bound {bound:e}"
                );
            }
        }
    }
}

/// The bound would also let a coarser format pass where it is loose: more bits must mean less error.
#[test]
fn noise_keeps_the_precision_of_its_bits() {
    let mut noise = noise(9);
    let x: Vec<f32> = (0..64 * 256).map(|_| noise() * 0.05).collect();
    let relative = |ty| {
        let out = round_trip(ty, &x);
        let squares = |a: &mut dyn Iterator<Item = f32>| a.map(|x| f64::from(x * x)).sum::<f64>();
        let error = squares(&mut x.iter().zip(&out).map(|(a, b)| a - b));
        (error / squares(&mut x.iter().copied())).sqrt()
    };
    // Uniform values over a span of n steps: an error of 1/sqrt(12) steps against a size of n/sqrt(12).
    for (ty, steps) in [(GgmlType::Q4_K, 15.0), (GgmlType::Q5_K, 31.0), (GgmlType::Q6_K, 62.0)] {
        let error = relative(ty) * steps;
        assert!((0.85..1.10).contains(&error), "{ty}: {error}");
    }
}

#[test]
fn values_beyond_the_format_saturate() {
    for ty in [GgmlType::Q4_K, GgmlType::Q5_K, GgmlType::Q6_K] {
        let out = round_trip(ty, &[f32::MAX; 256]);
        assert!(out.iter().all(|x| x.is_finite() && *x > 1e7), "{ty}: {}", out[0]);
    }
}
