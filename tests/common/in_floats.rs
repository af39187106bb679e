//! What a model's numbers are without the rounding of weights' rows and of the cache, and how far others are off them.

use std::sync::Arc;

use spec_run::{ContextConfig, Model, context::KvType, quant::GgmlType};

use super::retyped;

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
