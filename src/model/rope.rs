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
        return Ok(Rope { pairs, freqs, magnitude: 1.0, beyond: None });
    }
    if let Some(alpha) = b.positive_or_none("rope.scaling.alpha")? {
        base *= f64::from(alpha).powf(head_dim as f64 / (head_dim as f64 - 2.0).max(1.0));
    }
    let (factors, beyond) = match b.optional_f32s("rope_freqs.weight", n_rot / 2)? {
        None => short_and_long(b, n_rot / 2)?,
        factors => (factors, None),
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

    // What becomes of pair `i`'s frequency.
    let (stretched, magnitude): (Box<dyn Fn(usize, f64) -> f64>, f64) = match kind {
        "none" => (Box::new(|_, freq| freq), attn_factor),
        "linear" | "longrope" => (Box::new(move |_, freq| freq / factor), attn_factor),
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
            let stretched = move |i: usize, freq: f64| {
                let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                let keep = ramp * ext;
                freq * ((1.0 - keep) / factor + keep)
            };
            // Cosines and sines grow with the stretching, less what the multiplier says is made up for elsewhere.
            let log = f64::from(b.f32("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0));
            let grown = |times: f64| 1.0 + times * 0.1 * factor.max(1.0).ln();
            (Box::new(stretched), attn_factor * if ext != 0.0 { grown(1.0) / grown(log) } else { 1.0 })
        }
        other => {
            return Err(b.error(&format!(
                "rope.scaling.type {} is not supported; supported are none, linear, longrope, yarn",
                Quoted(other)
            )));
        }
    };
    let freqs = |factors: Option<&[f32]>| -> Vec<f64> {
        let plain = |i: usize| {
            let freq = base.powf(-2.0 * i as f64 / n_rot as f64);
            freq / factors.map_or(1.0, |f| f64::from(f[i]))
        };
        (0..n_rot / 2).map(|i| stretched(i, plain(i))).collect()
    };
    let beyond = beyond.map(|(length, factors)| (length, freqs(Some(&factors))));
    let freqs = freqs(factors.as_deref());
    let all = freqs.iter().chain(beyond.iter().flat_map(|(_, freqs)| freqs));
    if !(all.into_iter().all(|f| f.is_finite()) && magnitude.is_finite()) {
        return Err(b.error(
            "its rotary frequencies are not finite: rope_freqs.weight, rope_factors_*, rope.freq_base or rope.scaling.* is damaged",
        ));
    }
    Ok(Rope { pairs, freqs, magnitude: magnitude as f32, beyond })
}

/// Factors for any context, and those of contexts beyond a length.
type Factors = (Option<Vec<f32>>, Option<(usize, Vec<f32>)>);

/// Models for long contexts carry two sets of factors: for contexts up to `rope.scaling.original_context_length`, and for
/// longer ones.
fn short_and_long(b: &mut Builder, pairs: usize) -> Result<Factors> {
    let original = b.u32("rope.scaling.original_context_length")?.unwrap_or(b.n_ctx_train());
    let short = b.optional_f32s("rope_factors_short.weight", pairs)?;
    let long = b.optional_f32s("rope_factors_long.weight", pairs)?;
    Ok((short, long.map(|long| (original as usize, long))))
}
