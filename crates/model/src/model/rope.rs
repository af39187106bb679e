//! Rotary frequencies from metadata: plain, linear scaling, YaRN, and the per-pair factors of Llama 3.x and Phi-3.

use std::f64::consts::PI;

use super::Builder;
use crate::{
    Error, Result,
    plan::{Rope, RopePairs},
    quoted::Quoted,
};

/// How positions are stretched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies alike.
    Linear,
    /// Slow frequencies more than fast ones.
    Yarn,
}

/// What is to hold of a model's rotations in place of what its file says; `None` is as the file says. As llama.cpp's settings of
/// these names.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RopeChange {
    /// How positions are stretched.
    pub scaling: Option<RopeScaling>,
    /// The base of the frequencies.
    pub freq_base: Option<f32>,
    /// What frequencies are multiplied with: 0.25 for four times the context.
    pub freq_scale: Option<f32>,
    /// Of YaRN: the context that the model was trained for before it was stretched.
    pub orig_ctx: Option<u32>,
    /// Of YaRN: how much of the fast frequencies is left as it is; 0 is linear scaling.
    pub ext_factor: Option<f32>,
    /// What cosines and sines are multiplied with where YaRN does not say.
    pub attn_factor: Option<f32>,
    /// Of YaRN: turns over the trained context below which a frequency is stretched in full.
    pub beta_slow: Option<f32>,
    /// Of YaRN: turns over the trained context above which a frequency is not stretched.
    pub beta_fast: Option<f32>,
}

impl RopeChange {
    /// In a line; `None` where nothing is changed.
    pub fn described(&self) -> Option<String> {
        (*self != RopeChange::default()).then(|| format!("{self:?}"))
    }

    pub(super) fn check(&self) -> Result<()> {
        let positive = |x: f32| x.is_finite() && x > 0.0;
        let from_zero = |x: f32| x.is_finite() && x >= 0.0;
        let all = [
            ("rope_freq_base", self.freq_base.filter(|&x| !positive(x))),
            ("rope_freq_scale", self.freq_scale.filter(|&x| !positive(x))),
            ("yarn_ext_factor", self.ext_factor.filter(|&x| !from_zero(x))),
            ("yarn_attn_factor", self.attn_factor.filter(|&x| !from_zero(x))),
            ("yarn_beta_slow", self.beta_slow.filter(|&x| !positive(x))),
            ("yarn_beta_fast", self.beta_fast.filter(|&x| !positive(x))),
        ];
        match all.into_iter().find_map(|(name, wrong)| Some((name, wrong?))) {
            Some((name, wrong)) => Err(Error::Usage(format!(
                "`{name}` {wrong}: a positive number is needed, or none for the file's"
            ))),
            None => Ok(()),
        }
    }
}

/// How far positions are stretched, by the file and by what is changed.
pub struct Stretch {
    kind: RopeScaling,
    /// How many times as long a text may be.
    pub factor: f64,
    /// The same by the file alone: what holds of rotations that cannot be changed.
    by_file: f64,
    /// How much of YaRN there is; 0: none.
    pub ext: f64,
}

impl Stretch {
    pub fn read(b: &Builder) -> Result<Self> {
        let change = b.rope_change;
        let of_file = match b.str("rope.scaling.type")?.unwrap_or("linear") {
            "none" => RopeScaling::None,
            "linear" | "longrope" => RopeScaling::Linear,
            "yarn" => RopeScaling::Yarn,
            other => {
                return Err(b.error(&format!(
                    "rope.scaling.type {} is not supported; supported are none, linear, longrope, yarn",
                    Quoted(other)
                )));
            }
        };
        // The older key for linear scaling stands where there is no newer one.
        let factor = match b.f32("rope.scaling.factor")? {
            Some(f) => f,
            None => b.f32("rope.scale_linear")?.unwrap_or(1.0),
        };
        let factor = f64::from(if factor == 0.0 { 1.0 } else { factor });
        if !(factor.is_finite() && factor > 0.0) {
            return Err(b.error(&format!("rope.scaling.factor is {factor}; it must be a positive number")));
        }
        let kind = change.scaling.unwrap_or(of_file);
        let wanted = change.freq_scale.map_or(factor, |scale| 1.0 / f64::from(scale));
        let in_full = if kind == RopeScaling::Yarn { 1.0 } else { 0.0 };
        let ext = change.ext_factor.or(b.f32("rope.scaling.yarn_ext_factor")?.filter(|&ext| ext >= 0.0));
        Ok(Stretch {
            kind,
            factor: if kind == RopeScaling::None { 1.0 } else { wanted },
            by_file: if of_file == RopeScaling::None { 1.0 } else { factor },
            ext: ext.map_or(in_full, f64::from),
        })
    }
}

/// The context that the model can be taken to be trained for: YaRN by other numbers than the file's makes it another one.
pub fn trained_context(b: &Builder) -> Result<u32> {
    let stretch = Stretch::read(b)?;
    let is_changed = b.rope_change.freq_scale.is_some() && stretch.factor != stretch.by_file;
    match stretch.kind == RopeScaling::Yarn && is_changed {
        true => Ok((f64::from(original_context(b)?) * stretch.factor) as u32),
        false => Ok(b.n_ctx_train()),
    }
}

fn original_context(b: &Builder) -> Result<u32> {
    let of_file = b.u32("rope.scaling.original_context_length")?.or(b.u32("context_length")?);
    Ok(b.rope_change.orig_ctx.or(of_file).unwrap_or(1))
}

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
    // As in llama.cpp, what has a key of its own is as the file says.
    let is_kept = source.base != "rope.freq_base";
    let change = if is_kept { RopeChange::default() } else { b.rope_change };
    let mut base = f64::from(change.freq_base.unwrap_or(base));
    if !(base.is_finite() && base > 0.0) {
        return Err(b.error(&format!("{} is {base}; it must be a positive number", source.base)));
    }
    if !source.stretched && !is_kept {
        let freqs = (0..n_rot / 2).map(|i| base.powf(-2.0 * i as f64 / n_rot as f64)).collect();
        return Ok(Rope { pairs, freqs, magnitude: 1.0, beyond: None });
    }
    let alpha =
        b.positive_or_none("rope.scaling.alpha")?.filter(|_| source.stretched && change.freq_base.is_none());
    if let Some(alpha) = alpha {
        base *= f64::from(alpha).powf(head_dim as f64 / (head_dim as f64 - 2.0).max(1.0));
    }
    let (factors, beyond) = match source.stretched {
        true => factors(b, n_rot / 2)?,
        false => (None, None),
    };
    let stretch = Stretch::read(b)?;
    let factor = match source.stretched {
        true if is_kept => stretch.by_file,
        true => stretch.factor,
        false => 1.0,
    };
    let attn_factor = f64::from(b.positive("rope.scaling.attn_factor")?.unwrap_or(1.0));

    // What becomes of pair `i`'s frequency.
    let (stretched, magnitude): (Box<dyn Fn(usize, f64) -> f64>, f64) = match stretch.ext {
        0.0 => {
            let given = b.rope_change.attn_factor.or(b.f32("rope.scaling.yarn_attn_factor")?);
            let given = f64::from(given.filter(|&factor| factor >= 0.0).unwrap_or(1.0));
            (Box::new(move |_, freq| freq / factor), given * attn_factor)
        }
        ext => {
            let trained = original_context(b)?;
            let turns = |change: Option<f32>, key: &str, otherwise: f32| -> Result<f64> {
                Ok(f64::from(change.or(b.positive(key)?).unwrap_or(otherwise)))
            };
            let fast = turns(b.rope_change.beta_fast, "rope.scaling.yarn_beta_fast", 32.0)?;
            let slow = turns(b.rope_change.beta_slow, "rope.scaling.yarn_beta_slow", 1.0)?;
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
            // Cosines and sines grow with the stretching, less what the multiplier says is made up for elsewhere. It is
            // reckoned for what can be changed, and holds of the rest.
            let log = f64::from(b.f32("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0));
            let grown = |times: f64| 1.0 + times * 0.1 * stretch.factor.max(1.0).ln();
            let plain = |factor: f64| 1.0 + 0.1 * factor.ln();
            let rest = if is_kept { plain(factor) / plain(stretch.factor) } else { 1.0 };
            (Box::new(stretched), attn_factor * (grown(1.0) / grown(log)) * rest)
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

fn factors(b: &mut Builder, pairs: usize) -> Result<Factors> {
    match b.optional_f32s("rope_freqs.weight", pairs)? {
        None => short_and_long(b, pairs),
        factors => Ok((factors, None)),
    }
}

/// Models for long contexts carry two sets of factors: for contexts up to `rope.scaling.original_context_length`, and for
/// longer ones.
fn short_and_long(b: &mut Builder, pairs: usize) -> Result<Factors> {
    let original = b.u32("rope.scaling.original_context_length")?.unwrap_or(b.n_ctx_train());
    let short = b.optional_f32s("rope_factors_short.weight", pairs)?;
    let long = b.optional_f32s("rope_factors_long.weight", pairs)?;
    Ok((short, long.map(|long| (original as usize, long))))
}
