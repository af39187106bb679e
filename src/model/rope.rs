//! Rotary frequencies from metadata: plain, linear scaling, YaRN, and the per-pair factors of Llama 3.x.

use std::f64::consts::PI;

use super::Builder;
use crate::{
    Result,
    plan::{Rope, RopePairs},
    quoted::Quoted,
};

pub fn read(b: &mut Builder, pairs: RopePairs) -> Result<Rope> {
    let head_dim = b.dims.head_dim;
    let n_rot = b.u32("rope.dimension_count")?.map_or(head_dim, |n| n as usize);
    if n_rot == 0 || n_rot % 2 != 0 || n_rot > head_dim {
        return Err(
            b.error(&format!("rope.dimension_count is {n_rot}; it must be even and at most {head_dim}"))
        );
    }
    let base = f64::from(b.f32("rope.freq_base")?.unwrap_or(10_000.0));
    if !(base.is_finite() && base > 0.0) {
        return Err(b.error(&format!("rope.freq_base is {base}; it must be a positive number")));
    }
    let factors = b.optional_f32s("rope_freqs.weight", n_rot / 2)?;
    let kind = b.str("rope.scaling.type")?.unwrap_or("linear");
    // The older key for linear scaling stands where there is no newer one.
    let factor = match b.f32("rope.scaling.factor")? {
        Some(f) => f,
        None => b.f32("rope.scale_linear")?.unwrap_or(1.0),
    };
    let factor = f64::from(if factor == 0.0 { 1.0 } else { factor });
    if !(factor.is_finite() && factor > 0.0) {
        return Err(b.error(&format!("rope.scaling.factor is {factor}; it must be a positive number")));
    }
    let attn_factor = f64::from(b.positive("rope.scaling.attn_factor")?.unwrap_or(1.0));

    let plain = |i: usize| {
        let theta = base.powf(-2.0 * i as f64 / n_rot as f64);
        theta / factors.as_ref().map_or(1.0, |f| f64::from(f[i]))
    };
    let (freqs, magnitude): (Vec<f64>, f64) = match kind {
        "none" => ((0..n_rot / 2).map(plain).collect(), attn_factor),
        "linear" => ((0..n_rot / 2).map(|i| plain(i) / factor).collect(), attn_factor),
        "yarn" => {
            let trained =
                b.u32("rope.scaling.original_context_length")?.or(b.u32("context_length")?).unwrap_or(1);
            let fast = f64::from(b.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0));
            let slow = f64::from(b.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0));
            let ext = f64::from(b.f32("rope.scaling.yarn_ext_factor")?.unwrap_or(1.0));
            // The pair that turns `turns` times over the trained context.
            let pair_of = |turns: f64| {
                n_rot as f64 * (f64::from(trained) / (turns * 2.0 * PI)).ln() / (2.0 * base.ln())
            };
            let low = pair_of(fast).floor().max(0.0);
            let high = pair_of(slow).ceil().min(n_rot as f64 - 1.0);
            let freqs = (0..n_rot / 2)
                .map(|i| {
                    let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    let keep = ramp * ext;
                    plain(i) * ((1.0 - keep) / factor + keep)
                })
                .collect();
            (freqs, attn_factor * if ext != 0.0 { 1.0 + 0.1 * factor.ln() } else { 1.0 })
        }
        other => {
            return Err(b.error(&format!(
                "rope.scaling.type {} is not supported; supported are none, linear, yarn",
                Quoted(other)
            )));
        }
    };
    if !(freqs.iter().all(|f| f.is_finite()) && magnitude.is_finite()) {
        return Err(b.error(
            "its rotary frequencies are not finite: rope_freqs.weight, rope.freq_base or rope.scaling.* is damaged",
        ));
    }
    Ok(Rope { pairs, freqs, magnitude: magnitude as f32 })
}
