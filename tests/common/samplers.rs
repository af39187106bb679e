//! tests/golden/samplers.json: what llama.cpp chooses. samplers.py writes it.

use serde_json::Value;
use spec_run::{
    Tokenizer,
    sampler::{Breakers, Dry, Mirostat, Number, SamplerConfig, Stage},
};

pub fn golden(part: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(include_str!("../golden/samplers.json")).unwrap();
    json[part].as_array().unwrap().clone()
}

pub fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The breakers of DRY need a vocabulary.
pub fn config(case: &Value, tokenizer: &Tokenizer) -> SamplerConfig {
    let mut config =
        SamplerConfig { seed: Some(case["seed"].as_u64().unwrap() as u32), ..SamplerConfig::default() };
    config.dry.breakers = Breakers::new(tokenizer, &Dry::BREAKERS);
    for (name, value) in case["settings"].as_object().unwrap() {
        let count = || value.as_u64().unwrap() as usize;
        let texts = || value.as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect::<Vec<_>>();
        match name.as_str() {
            "top_k" => config.top_k = count(),
            "repeat_last_n" => config.repeat_last_n = count(),
            "dry_allowed_length" => config.dry.allowed_length = count(),
            "dry_last_n" => config.dry.last_n = count(),
            "dry_breakers" => config.dry.breakers = Breakers::new(tokenizer, &texts()),
            "mirostat" => config.mirostat = Some(if count() == 1 { Mirostat::One } else { Mirostat::Two }),
            "samplers" => config.samplers = Stage::of_names(&texts().join(";")).unwrap(),
            "logit_bias" => config.logit_bias = value.as_array().unwrap().iter().map(bias).collect(),
            other => {
                let number = Number::of_name(other).unwrap_or_else(|| panic!("no setting {other}"));
                *(number.field)(&mut config) = value.as_f64().unwrap() as f32;
            }
        }
    }
    config
}

fn bias(pair: &Value) -> (u32, f32) {
    (pair[0].as_u64().unwrap() as u32, pair[1].as_f64().map_or(f32::NEG_INFINITY, |bias| bias as f32))
}
