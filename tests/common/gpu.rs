//! The adapter that the GPU tests run on: a hardware one, else the first there is; and how models on it are compared.

use std::sync::Arc;

use spec_run::{
    Context, ContextConfig, Model,
    context::{Device, KvType},
    internals::gpu::{AdapterChoice, Found, adapters, choose},
    quant::GgmlType,
};

use super::{context, retyped};

/// The name to give as a device. Without any adapter the test says so and ends, unless
/// `SPEC_RUN_REQUIRE_FIXTURES` asks that it fail.
pub fn device(test: &str) -> Option<String> {
    let name = choose(&AdapterChoice::Any).or_else(|_| choose(&AdapterChoice::Named("0".into())));
    match name {
        Ok(found) => Some(found.info.name),
        Err(e) => {
            assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{test}: {e}");
            eprintln!("SKIPPED {test}: {e}");
            None
        }
    }
}

pub fn found(test: &str) -> Option<Found> {
    let name = device(test)?;
    adapters().into_iter().find(|f| f.info.name == name)
}

pub fn on(device: &str, model: &Arc<Model>, edit: impl FnOnce(&mut ContextConfig)) -> Context {
    context(model, |c| {
        c.device = Device::Named(device.into());
        edit(c);
    })
}

pub fn f32_cache(c: &mut ContextConfig) {
    (c.key_type, c.value_type) = (KvType::F32, KvType::F32);
}

pub fn floats(rows: &[Vec<u32>]) -> Vec<Vec<f32>> {
    rows.iter().map(|row| row.iter().map(|&x| f32::from_bits(x)).collect()).collect()
}

/// Root mean square difference over root mean square of the reference, both less their means.
pub fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    let centred = |x: &[f32]| {
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
        x.iter().map(|&x| f64::from(x) - mean).collect::<Vec<_>>()
    };
    let (got, want) = (centred(got), centred(want));
    let off: f64 = std::iter::zip(&got, &want).map(|(a, b)| (a - b).powi(2)).sum();
    (off / want.iter().map(|x| x * x).sum::<f64>()).sqrt()
}

/// The same model with every weight as the f32 that it stands for: then the CPU too computes in floats, and
/// nothing but rounding lies between it and the GPU.
pub fn in_floats(model: &Model) -> Arc<Model> {
    retyped(model, |_| GgmlType::F32)
}

/// Rounding grows through the layers: 2^-24 for an operation, some 10^3 terms in a sum that err at random, 16
/// layers that hand on what they are given. Measured: up to 6e-7; wrong weights or order give 10^-2 and more.
pub const ROUNDING: f64 = 1e-5;
