//! Sampling allocates nothing once its buffers have grown. Alone in its file: it counts a whole program's allocations.

#[path = "common/allocations.rs"]
mod counting;

use counting::allocations;
use spec_run::{
    Sampler,
    sampler::{Dry, Mirostat, SamplerConfig},
};

fn allocations_of(config: SamplerConfig) -> usize {
    let mut rows = vec![vec![0.0f32; 4000]; 16];
    for (r, row) in rows.iter_mut().enumerate() {
        for (i, logit) in row.iter_mut().enumerate() {
            *logit = ((i * 577 + r * 31) % 4001) as f32 * 0.005;
        }
    }
    let mut sampler = Sampler::new(config).unwrap();
    (0..100).for_each(|token| sampler.accept(token));
    let mut round = || rows.iter().map(|row| sampler.sample(row)).max();
    // The rows differ in how many candidates their stages keep, so the first round is run twice.
    round();
    round();
    allocations(|| {
        round();
    })
}

#[test]
fn the_hot_path_does_not_allocate() {
    let penalties = SamplerConfig { repeat_penalty: 1.1, seed: Some(1), ..SamplerConfig::default() };
    let untruncated = SamplerConfig { top_k: 0, top_p: 1.0, min_p: 0.0, ..penalties.clone() };
    let typical = SamplerConfig { typical_p: 0.5, top_k: 0, ..penalties.clone() };
    let greedy = SamplerConfig { temp: 0.0, ..penalties.clone() };
    let dry = SamplerConfig { dry: Dry { multiplier: 1.0, ..Dry::default() }, ..penalties.clone() };
    let others = SamplerConfig {
        top_n_sigma: 2.0,
        dynatemp_range: 0.5,
        xtc_probability: 0.5,
        xtc_threshold: 0.01,
        ..untruncated.clone()
    };
    let mirostat = SamplerConfig { mirostat: Some(Mirostat::Two), ..penalties.clone() };
    for config in [penalties, untruncated, typical, greedy, dry, others, mirostat] {
        assert_eq!(allocations_of(config.clone()), 0, "{config:?}");
    }
    let one = allocations(|| drop(std::hint::black_box(Box::new(1))));
    assert!(one > 0, "the counter counts");
}
