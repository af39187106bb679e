//! llama.cpp's choices from made-up logits.

use crate::common::samplers::{config, golden, ids};
use spec_run::Sampler;

/// Squares of integers, so that f32 has them exactly; every third row is the same.
fn made_up(step: u64, n_vocab: u64, spread: f32) -> Vec<f32> {
    let step = if step.is_multiple_of(3) { 7 } else { step };
    let root = |id: u64| (id * 7919 + step * 10477) % 4001;
    (0..n_vocab).map(|id| (root(id).pow(2) as f64 / 20f64.exp2()) as f32 * spread).collect()
}

#[test]
fn seeds_and_settings_choose_llama_cpps_tokens() {
    for case in golden("made_up") {
        let (n_vocab, spread) = (case["n_vocab"].as_u64().unwrap(), case["spread"].as_f64().unwrap());
        let mut sampler = Sampler::new(config(&case)).unwrap();
        let kept = case["kept"].as_array().unwrap();
        for (step, &expected) in ids(&case["tokens"]).iter().enumerate() {
            let logits = made_up(step as u64, n_vocab, spread as f32);
            if let Some(kept) = kept.get(step) {
                let found = sampler.distribution(spec_run::scores::Scores::All(&logits));
                let found: Vec<u32> = found.iter().map(|e| e.0).collect();
                assert_eq!(found, ids(kept), "what is kept at step {step}, {}", case["settings"]);
            }
            assert_eq!(sampler.sample(&logits), expected, "step {step}, {}", case["settings"]);
            sampler.accept(expected);
        }
    }
}
