//! The sampler's flags, named as in llama.cpp.

use clap::Args;

use super::common;
use crate::{
    Error, Model, Result, Tokenizer,
    sampler::{Breakers, Dry, Mirostat, SamplerConfig, Stage},
};

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
    /// Against repetitions of several tokens (DRY): subtract X times base^(length - allowed length) from the logit of a
    /// token that would go on with one; 0 turns it off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    dry_multiplier: f32,
    /// The base of --dry-multiplier
    #[arg(long, value_name = "X", default_value_t = 1.75, allow_negative_numbers = true)]
    dry_base: f32,
    /// Repetitions shorter than N tokens are free
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true)]
    dry_allowed_length: i64,
    /// How many of the last tokens are searched for repetitions; 0: none, -1: all
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true)]
    dry_penalty_last_n: i64,
    /// What no repetition goes across, instead of \n, :, " and *; `none` for nothing (repeatable)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    dry_sequence_breaker: Vec<String>,
    /// Leave out tokens more than N standard deviations below the likeliest; 0 and below turns it off
    #[arg(long, alias = "top-nsigma", value_name = "N", default_value_t = -1.0, allow_negative_numbers = true)]
    top_n_sigma: f32,
    /// Now and then, with chance P, leave out all but the least of the likely tokens (XTC); 0 turns it off
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    xtc_probability: f32,
    /// What is likely for --xtc-probability; above 0.5 turns it off
    #[arg(long, value_name = "P", default_value_t = 0.1, allow_negative_numbers = true)]
    xtc_threshold: f32,
    /// Let the temperature go up and down by X with the entropy; 0 turns it off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    dynatemp_range: f32,
    /// How steeply --dynatemp-range follows the entropy
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    dynatemp_exp: f32,
    /// Keep surprise at a level by Mirostat 1 or 2, instead of all other samplers but --logit-bias and --temp; 0 turns
    /// it off
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    mirostat: i64,
    /// How fast Mirostat learns
    #[arg(long, value_name = "X", default_value_t = 0.1, allow_negative_numbers = true)]
    mirostat_lr: f32,
    /// The surprise that Mirostat aims at, in bits
    #[arg(long, value_name = "X", default_value_t = 5.0, allow_negative_numbers = true)]
    mirostat_ent: f32,
    /// Samplers in the order in which they come, with ; between them; what is not named is off [default:
    /// penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES", conflicts_with = "sampling_seq")]
    samplers: Option<String>,
    /// The same by letters: edskypmxt
    #[arg(long, alias = "sampler-seq", value_name = "LETTERS")]
    sampling_seq: Option<String>,
    /// Change a token's logit, as in 15043+1 or 15043-1; -inf forbids it (repeatable)
    #[arg(short = 'l', long, value_name = "ID(+/-)X", value_parser = parse_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers, which are llama.cpp's; -1 draws one and reports it
    #[arg(short = 's', long, value_name = "SEED", default_value_t = -1, allow_negative_numbers = true)]
    seed: i64,
}

impl SamplerArgs {
    pub fn config(&self) -> Result<SamplerConfig> {
        let last_n = |flag: &str, n: i64| match n {
            -1 => Ok(usize::MAX),
            n => usize::try_from(n)
                .map_err(|_| Error::Usage(format!("{flag} {n}: -1 (all) is the lowest value, 0 is none"))),
        };
        let repeat_last_n = last_n("--repeat-last-n", self.repeat_last_n)?;
        let dry = Dry {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: usize::try_from(self.dry_allowed_length).map_err(|_| {
                Error::Usage(format!("--dry-allowed-length {}: 0 and above", self.dry_allowed_length))
            })?,
            last_n: last_n("--dry-penalty-last-n", self.dry_penalty_last_n)?,
            breakers: Breakers::default(),
        };
        let mirostat = match self.mirostat {
            0 => None,
            1 => Some(Mirostat::One),
            2 => Some(Mirostat::Two),
            n => {
                return Err(Error::Usage(format!(
                    "--mirostat {n}: 1 and 2 are the versions, 0 turns it off"
                )));
            }
        };
        let samplers = match (&self.samplers, &self.sampling_seq) {
            (Some(names), _) => Stage::of_names(names)?,
            (None, Some(letters)) => Stage::of_letters(letters)?,
            (None, None) => Stage::ALL.to_vec(),
        };
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
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            // llama.cpp takes every k below 1 as "all".
            top_k: usize::try_from(self.top_k).unwrap_or(0),
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical,
            top_n_sigma: self.top_n_sigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repeat_last_n,
            dry,
            mirostat,
            mirostat_tau: self.mirostat_ent,
            mirostat_eta: self.mirostat_lr,
            samplers,
            logit_bias: self.logit_bias.clone(),
            seed,
        };
        config.validate()?;
        Ok(config)
    }

    /// The rest of the settings, for which the model has to be known. `escapes`: texts may have some.
    pub fn complete(
        &self,
        config: &mut SamplerConfig,
        model: &Model,
        tokenizer: &Tokenizer,
        escapes: bool,
    ) -> Result<()> {
        config.check_vocabulary(model.n_vocab())?;
        if config.dry.is_on() {
            config.dry.breakers = self.breakers(tokenizer, escapes);
        }
        Ok(())
    }

    /// What DRY does not go across, in the model's tokens.
    pub fn breakers(&self, tokenizer: &Tokenizer, escapes: bool) -> Breakers {
        let given = &self.dry_sequence_breaker;
        if given.is_empty() {
            return Breakers::new(tokenizer, &Dry::BREAKERS);
        }
        // As in llama.cpp, `none` takes back what came before it.
        let from = given.iter().rposition(|text| text == "none").map_or(0, |none| none + 1);
        let text = |text: &String| if escapes { common::unescape(text) } else { text.clone() };
        Breakers::new(tokenizer, &given[from..].iter().map(text).collect::<Vec<_>>())
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
            --logit-bias 8-inf --logit-bias 9-1e1 -s 42 --dry-multiplier 0.8 --dry-base 2 --dry-allowed-length 3 \
            --dry-penalty-last-n -1 --top-nsigma 1.5 --xtc-probability 0.5 --xtc-threshold 0.2 \
            --dynatemp-range 0.3 --dynatemp-exp 2 --mirostat 2 --mirostat-lr 0.2 --mirostat-ent 4 \
            --samplers top_k;temperature";
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
            dry: Dry {
                multiplier: 0.8,
                base: 2.0,
                allowed_length: 3,
                last_n: usize::MAX,
                breakers: Breakers::default(),
            },
            top_n_sigma: 1.5,
            xtc_probability: 0.5,
            xtc_threshold: 0.2,
            dynatemp_range: 0.3,
            dynatemp_exponent: 2.0,
            mirostat: Some(Mirostat::Two),
            mirostat_eta: 0.2,
            mirostat_tau: 4.0,
            samplers: vec![Stage::TopK, Stage::Temperature],
            logit_bias: vec![(7, 2.5), (8, f32::NEG_INFINITY), (9, -10.0)],
            seed: Some(42),
        };
        assert_eq!(config(flags).unwrap(), expected);
        let by_letters = config("--sampling-seq kt").unwrap();
        assert_eq!(by_letters.samplers, expected.samplers);
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
            ("--dry-multiplier nan", "--dry-multiplier"),
            ("--dry-base 0.5", "--dry-base"),
            ("--dry-allowed-length -1", "--dry-allowed-length"),
            ("--dry-penalty-last-n -2", "--dry-penalty-last-n"),
            ("--top-n-sigma inf", "--top-n-sigma"),
            ("--xtc-probability 2", "--xtc-probability"),
            ("--xtc-threshold -1", "--xtc-threshold"),
            ("--dynatemp-range nan", "--dynatemp-range"),
            ("--dynatemp-exp inf", "--dynatemp-exp"),
            ("--mirostat 3", "--mirostat"),
            ("--mirostat-lr nan", "--mirostat-lr"),
            ("--mirostat-ent nan", "--mirostat-ent"),
            ("--samplers top_k;infill", "--samplers"),
            ("--sampling-seq kq", "--sampling-seq"),
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
