//! The sampler's flags, named as in llama.cpp.

use clap::Args;

use crate::{Error, Result, sampler::SamplerConfig};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplerArgs {
    /// Temperature; 0 is greedy
    #[arg(
        long,
        alias = "temperature",
        value_name = "T",
        default_value_t = 0.8,
        allow_negative_numbers = true
    )]
    temp: f32,
    /// Sample from the K likeliest tokens; 0 turns it off
    #[arg(long, value_name = "K", default_value_t = 40, allow_negative_numbers = true)]
    top_k: i64,
    /// Sample from the fewest tokens that hold P together; 1 turns it off
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_negative_numbers = true)]
    top_p: f32,
    /// Leave out tokens less likely than P times the likeliest; 0 turns it off
    #[arg(long, value_name = "P", default_value_t = 0.05, allow_negative_numbers = true)]
    min_p: f32,
    /// Locally typical sampling with mass P; 1 turns it off
    #[arg(long, alias = "typical-p", value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    typical: f32,
    /// Divide (if negative, multiply) the logits of recent tokens by X; 1 turns it off
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// How many of the last tokens the penalties look at; 0: none, -1: all
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true)]
    repeat_last_n: i64,
    /// Subtract X from the logit of a recent token, once
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtract X from the logit of a recent token, for each time it occurs
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Change a token's logit, as in 15043+1 or 15043-1; -inf forbids it (repeatable)
    #[arg(short = 'l', long, value_name = "ID(+/-)X", value_parser = parse_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers, which are llama.cpp's; -1 draws one and reports it
    #[arg(short = 's', long, value_name = "SEED", default_value_t = -1, allow_negative_numbers = true)]
    seed: i64,
}

impl SamplerArgs {
    pub fn config(&self) -> Result<SamplerConfig> {
        if self.repeat_last_n < -1 {
            let n = self.repeat_last_n;
            return Err(Error::Usage(format!(
                "--repeat-last-n {n}: -1 (all) is the lowest value, 0 is none"
            )));
        }
        let seed = match u32::try_from(self.seed) {
            // llama.cpp's word for a random one; there -1 is the same number.
            Ok(u32::MAX) => None,
            Ok(seed) => Some(seed),
            Err(_) if self.seed == -1 => None,
            Err(_) => {
                let range = "0 to 4294967294 is the range, -1 draws one";
                return Err(Error::Usage(format!("--seed {}: {range}", self.seed)));
            }
        };
        let config = SamplerConfig {
            temp: self.temp,
            // llama.cpp takes every k below 1 as "all".
            top_k: usize::try_from(self.top_k).unwrap_or(0),
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical,
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repeat_last_n: usize::try_from(self.repeat_last_n).unwrap_or(usize::MAX),
            logit_bias: self.logit_bias.clone(),
            seed,
        };
        config.validate()?;
        Ok(config)
    }
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let sign = text.find(['+', '-']).ok_or("write the token's id, a sign and a number, as in 15043+1.5")?;
    let (id, bias) = text.split_at(sign);
    let id = id.trim().parse().map_err(|_| format!("`{id}` is not a token id"))?;
    match bias.trim().parse::<f32>() {
        Ok(bias) if !bias.is_nan() => Ok((id, bias)),
        _ => Err(format!("`{bias}` is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;
    use crate::cli::failure;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        sampler: SamplerArgs,
    }

    fn config(args: &str) -> Result<SamplerConfig> {
        let matches =
            Cli::command().try_get_matches_from(std::iter::once("x").chain(args.split_whitespace()));
        Cli::from_arg_matches(&matches.unwrap_or_else(|e| panic!("{args}: {e}"))).unwrap().sampler.config()
    }

    #[test]
    fn without_flags_the_defaults_are_the_librarys() {
        assert_eq!(config("").unwrap(), SamplerConfig::default());
    }

    #[test]
    fn every_flag_reaches_its_field() {
        let flags = "--temp 0.5 --top-k 5 --top-p 0.25 --min-p 0.125 --typical 0.75 --repeat-penalty 1.5 \
            --repeat-last-n 32 --presence-penalty -0.5 --frequency-penalty 0.0625 --logit-bias 7+2.5 \
            --logit-bias 8-inf --logit-bias 9-1e1 -s 42";
        let expected = SamplerConfig {
            temp: 0.5,
            top_k: 5,
            top_p: 0.25,
            min_p: 0.125,
            typical_p: 0.75,
            repeat_penalty: 1.5,
            frequency_penalty: 0.0625,
            presence_penalty: -0.5,
            repeat_last_n: 32,
            logit_bias: vec![(7, 2.5), (8, f32::NEG_INFINITY), (9, -10.0)],
            seed: Some(42),
        };
        assert_eq!(config(flags).unwrap(), expected);
    }

    #[test]
    fn llama_cpps_special_values_are_understood() {
        let special = config("--temp -1 --top-k -1 --repeat-last-n -1 --seed -1").unwrap();
        assert!(special.is_greedy());
        assert_eq!((special.top_k, special.repeat_last_n, special.seed), (0, usize::MAX, None));
        assert_eq!(config("-s 4294967295").unwrap().seed, None);
        assert_eq!(config("-s 4294967294").unwrap().seed, Some(u32::MAX - 1));
    }

    #[test]
    fn values_out_of_range_name_their_flag() {
        for (args, flag) in [
            ("--temp nan", "--temp"),
            ("--temp inf", "--temp"),
            ("--top-p 1.01", "--top-p"),
            ("--top-p -0.1", "--top-p"),
            ("--min-p 2", "--min-p"),
            ("--typical nan", "--typical"),
            ("--repeat-penalty 0", "--repeat-penalty"),
            ("--repeat-last-n -2", "--repeat-last-n"),
            ("--presence-penalty inf", "--presence-penalty"),
            ("--frequency-penalty nan", "--frequency-penalty"),
            ("--seed -2", "--seed"),
            ("--seed 4294967296", "--seed"),
        ] {
            let error = config(args).unwrap_err();
            assert!(
                matches!(error, Error::Usage(_)) && failure::message(&error).starts_with(flag),
                "{args}: {error}"
            );
        }
    }

    #[test]
    fn a_malformed_bias_is_refused() {
        for text in ["7", "+1", "x+1", "7+", "7+x", "7+nan", "99999999999+1", "-1+2", ""] {
            assert!(parse_bias(text).is_err(), "{text}");
        }
    }
}
