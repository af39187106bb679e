//! llama.cpp's choices from made-up logits.

use crate::common::{
    fixture,
    samplers::{config, golden, ids},
};
use spec_run::{Gguf, Sampler, Tokenizer, scores::Scores};

/// Squares of integers, so that f32 has them exactly; rows come again and again.
fn made_up(step: u64, n_vocab: u64, spread: f32, period: u64) -> Vec<f32> {
    let step = match period {
        0 if step.is_multiple_of(3) => 7,
        0 => step,
        period => step % period,
    };
    let root = |id: u64| (id * 7919 + step * 10477) % 4001;
    (0..n_vocab).map(|id| (root(id).pow(2) as f64 / 20f64.exp2()) as f32 * spread).collect()
}

#[test]
fn seeds_and_settings_choose_llama_cpps_tokens() {
    let test = "seeds_and_settings_choose_llama_cpps_tokens";
    let Some(path) = fixture(test, "models/stories260K.gguf") else { return };
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap();
    for case in golden("made_up") {
        let number = |key: &str| case[key].as_u64().unwrap();
        let spread = case["spread"].as_f64().unwrap() as f32;
        let mut sampler = Sampler::new(config(&case, &tokenizer)).unwrap();
        let kept = case["kept"].as_array().unwrap();
        for (step, &expected) in ids(&case["tokens"]).iter().enumerate() {
            let logits = made_up(step as u64, number("n_vocab"), spread, number("period"));
            if let Some(kept) = kept.get(step) {
                let found = sampler.distribution(Scores::All(&logits));
                let found: Vec<u32> = found.iter().map(|e| e.0).collect();
                assert_eq!(found, ids(kept), "what is kept at step {step}, {}", case["settings"]);
            }
            assert_eq!(sampler.sample(&logits), expected, "step {step}, {}", case["settings"]);
            sampler.accept(expected);
        }
    }
}
