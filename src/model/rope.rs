//! Rotary frequencies from metadata: plain, linear scaling, YaRN, and the per-pair factors of Llama 3.x and Phi-3.

use std::f64::consts::PI;

use super::Builder;
use crate::{
    Result,
    plan::{Rope, RopePairs},
    quoted::Quoted,
};

/// Which of a file's rotations.
#[derive(Clone, Copy)]
pub struct Source {
    pub pairs: RopePairs,
    pub head_dim: usize,
    /// The keys of how much of a head turns, and of the base.
    pub dimensions: &'static str,
    pub base: &'static str,
    /// The base where there is no such key; without it that of `rope.freq_base`.
    pub base_else: Option<f32>,
    /// Stretched as `rope.scaling.*` and `rope_freqs.weight` say.
    pub stretched: bool,
}

impl Source {
    pub fn new(pairs: RopePairs, head_dim: usize) -> Self {
        let (dimensions, base) = ("rope.dimension_count", "rope.freq_base");
        Source { pairs, head_dim, dimensions, base, base_else: None, stretched: true }
    }
}

pub fn read(b: &mut Builder, source: &Source) -> Result<Rope> {
    let Source { pairs, head_dim, .. } = *source;
    let n_rot = b.u32(source.dimensions)?.map_or(head_dim, |n| n as usize);
    if n_rot == 0 || n_rot % 2 != 0 || n_rot > head_dim {
        return Err(b.wrong(source.dimensions, n_rot, &format!("even and at most {head_dim}")));
    }
    let base = match b.f32(source.base)?.or(source.base_else) {
        None => b.f32("rope.freq_base")?.unwrap_or(10_000.0),
        Some(base) => base,
    };
    let mut base = f64::from(base);
    if !(base.is_finite() && base > 0.0) {
        return Err(b.error(&format!("{} is {base}; it must be a positive number", source.base)));
    }
    if !source.stretched {
        let freqs = (0..n_rot / 2).map(|i| base.powf(-2.0 * i as f64 / n_rot as f64)).collect();
        return Ok(Rope { pairs, freqs, magnitude: 1.0 });
    }
    if let Some(alpha) = b.positive_or_none("rope.scaling.alpha")? {
        base *= f64::from(alpha).powf(head_dim as f64 / (head_dim as f64 - 2.0).max(1.0));
    }
    let factors = match b.optional_f32s("rope_freqs.weight", n_rot / 2)? {
        None => long_or_short(b, n_rot / 2)?,
        factors => factors,
    };
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
        "linear" | "longrope" => ((0..n_rot / 2).map(|i| plain(i) / factor).collect(), attn_factor),
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
            // Cosines and sines grow with the stretching, less what the multiplier says is made up for elsewhere.
            let log = f64::from(b.f32("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0));
            let grown = |times: f64| 1.0 + times * 0.1 * factor.max(1.0).ln();
            (freqs, attn_factor * if ext != 0.0 { grown(1.0) / grown(log) } else { 1.0 })
        }
        other => {
            return Err(b.error(&format!(
                "rope.scaling.type {} is not supported; supported are none, linear, longrope, yarn",
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

/// Models for long contexts carry two sets of factors, one for contexts up to `rope.scaling.original_context_length` and one
/// for longer ones. A plan is made before it is known how long a context will be, and keys that are cached already cannot
/// turn again: so the set is the one for as long a context as the model was trained for.
fn long_or_short(b: &mut Builder, pairs: usize) -> Result<Option<Vec<f32>>> {
    let original = b.u32("rope.scaling.original_context_length")?;
    let is_long = original.is_some_and(|original| b.n_ctx_train() > original);
    let mut names = ["rope_factors_short.weight", "rope_factors_long.weight"];
    if is_long {
        names.reverse();
    }
    let [used, other] = names;
    b.leave_out(other);
    b.optional_f32s(used, pairs)
}
