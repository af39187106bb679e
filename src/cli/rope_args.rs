//! The flags that change how a model is told positions, in llama.cpp's words.

use clap::{Args, ValueEnum};

use crate::{RopeChange, RopeScaling};

#[derive(Args, Clone, Debug, Default)]
pub struct RopeArgs {
    /// How positions are stretched for longer texts: none, linear or yarn [default: as the model's file says]
    #[arg(long, value_name = "TYPE", value_enum)]
    rope_scaling: Option<Scaling>,
    /// How many times the context is stretched [default: as the model's file says]
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "rope_freq_scale")]
    rope_scale: Option<f32>,
    /// The base of the rotary frequencies; 0 for the file's
    #[arg(long, value_name = "N", value_parser = from_zero)]
    rope_freq_base: Option<f32>,
    /// The same as --rope-scale 1/N; 0 for the file's
    #[arg(long, value_name = "N", value_parser = from_zero)]
    rope_freq_scale: Option<f32>,
    /// The context that the model was trained for before it was stretched; 0 for the file's
    #[arg(long, value_name = "N")]
    yarn_orig_ctx: Option<u32>,
    /// How much of fast frequencies YaRN leaves as they are; 0 for linear scaling, -1 for the file's
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    yarn_ext_factor: Option<f32>,
    /// What cosines and sines are multiplied with where YaRN does not say; -1 for the file's
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    yarn_attn_factor: Option<f32>,
    /// Turns over the trained context below which YaRN stretches in full; -1 for the file's
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    yarn_beta_slow: Option<f32>,
    /// Turns over the trained context above which YaRN does not stretch; -1 for the file's
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    yarn_beta_fast: Option<f32>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Scaling {
    None,
    Linear,
    Yarn,
}

fn number(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|x: &f32| x.is_finite()).ok_or_else(|| "a number is needed".into())
}

fn from_zero(text: &str) -> Result<f32, String> {
    number(text).and_then(|x| if x >= 0.0 { Ok(x) } else { Err("a number from 0 on is needed".into()) })
}

fn positive(text: &str) -> Result<f32, String> {
    number(text).and_then(|x| if x > 0.0 { Ok(x) } else { Err("a number above 0 is needed".into()) })
}

impl RopeArgs {
    pub fn change(&self) -> RopeChange {
        let given = |x: Option<f32>| x.filter(|&x| x != 0.0);
        let not_negative = |x: Option<f32>| x.filter(|&x| x >= 0.0);
        RopeChange {
            scaling: self.rope_scaling.map(|scaling| match scaling {
                Scaling::None => RopeScaling::None,
                Scaling::Linear => RopeScaling::Linear,
                Scaling::Yarn => RopeScaling::Yarn,
            }),
            freq_base: given(self.rope_freq_base),
            freq_scale: given(self.rope_freq_scale).or(self.rope_scale.map(|scale| 1.0 / scale)),
            orig_ctx: self.yarn_orig_ctx.filter(|&ctx| ctx > 0),
            ext_factor: not_negative(self.yarn_ext_factor),
            attn_factor: not_negative(self.yarn_attn_factor),
            beta_slow: not_negative(self.yarn_beta_slow),
            beta_fast: not_negative(self.yarn_beta_fast),
        }
    }
}
