//! Drawing: that tokens come as often as their distribution says, and that a seed repeats a run.

use spec_run::{
    Sampler,
    sampler::{Distribution, SamplerConfig, distribution, rng::Rng},
};

const DRAWS: u32 = 200_000;

fn logits() -> [f32; 8] {
    [0.3, -1.0, 2.0, 1.1, -0.4, 1.7, 0.0, 0.9]
}

fn chi_square(counts: &[u32], expected: impl Fn(u32) -> f64) -> f64 {
    let cells = (0u32..).zip(counts).filter(|&(id, _)| expected(id) > 0.0);
    cells.map(|(id, &n)| (f64::from(n) - expected(id)).powi(2) / expected(id)).sum()
}

#[test]
fn draws_follow_the_distribution_and_no_neighbouring_one() {
    let config = SamplerConfig { seed: Some(1), ..SamplerConfig::default() };
    let target = distribution(&config, &logits(), &[]);
    let kept = target.entries().len();
    assert_eq!(kept, 6, "the defaults leave out two of the eight: {target:?}");
    let mut sampler = Sampler::new(config.clone()).unwrap();
    let mut counts = [0u32; 8];
    for _ in 0..DRAWS {
        counts[sampler.sample(&logits()) as usize] += 1;
    }
    assert!((0u32..).zip(counts).all(|(id, n)| target.p(id) > 0.0 || n == 0), "{counts:?}");
    // With 5 degrees of freedom chi-square stays below 25.7 with probability 0.9999.
    let chi2 = chi_square(&counts, |id| target.p(id) * f64::from(DRAWS));
    assert!(chi2 < 25.7, "{chi2} from {counts:?}");
    // The test is sharp enough to tell a temperature of .82 from .8.
    let neighbour = distribution(&SamplerConfig { temp: 0.82, ..config }, &logits(), &[]);
    let chi2 = chi_square(&counts, |id| neighbour.p(id) * f64::from(DRAWS));
    assert!(chi2 > 50.0, "{chi2}");
}

#[test]
fn a_draw_is_the_inverse_of_the_cumulative_distribution() {
    // .25, .5, .25 for the ids 1, 4, 9, exactly: ln 2 more is twice as likely.
    let mut logits = [f32::NEG_INFINITY; 10];
    (logits[1], logits[4], logits[9]) = (0.0, std::f32::consts::LN_2, 0.0);
    let off = SamplerConfig { temp: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerConfig::default() };
    let found = distribution(&off, &logits, &[]);
    for (u, id) in [(0.0, 1), (0.2499, 1), (0.2501, 4), (0.7499, 4), (0.7501, 9), (1.0 - f64::EPSILON, 9)] {
        assert_eq!(found.draw(u), id, "u = {u}");
    }
    // Out of the contract, and still a token.
    assert_eq!((found.draw(1.0), found.draw(f64::NAN), found.draw(-1.0)), (9, 9, 1));
    assert_eq!((found.p(4) * 2.0).round(), 1.0);
    assert_eq!((found.p(0), found.p(99)), (0.0, 0.0));
    assert_eq!(Distribution::one_hot(7).draw(0.5), 7);
}

#[test]
fn a_seed_fixes_the_tokens_for_ever() {
    // Four equal tokens: the top two bits of xoshiro256++, seeded with 42 through splitmix64 (by a Python script).
    let expected = [3, 1, 3, 2, 3, 2, 0, 2, 0, 3, 2, 3, 2, 0, 1, 2];
    let mut sampler = Sampler::new(SamplerConfig { seed: Some(42), ..SamplerConfig::default() }).unwrap();
    assert_eq!(sampler.seed(), 42);
    assert_eq!(expected.map(|_| sampler.sample(&[0.5; 4])), expected);
}

#[test]
fn the_seed_that_was_drawn_repeats_the_run() {
    let run = |seed| {
        let mut sampler = Sampler::new(SamplerConfig { seed, ..SamplerConfig::default() }).unwrap();
        let tokens: Vec<_> = (0..64).map(|_| sampler.sample(&logits())).collect();
        (sampler.seed(), tokens)
    };
    let (seed, tokens) = run(None);
    assert_eq!(run(Some(seed)).1, tokens);
    assert_ne!(run(Some(seed + 1)).1, tokens);
}

#[test]
fn two_runs_without_a_seed_differ() {
    let seed = || Sampler::new(SamplerConfig::default()).unwrap().seed();
    let seeds: std::collections::HashSet<_> = (0..8).map(|_| seed()).collect();
    assert!(seeds.len() > 1, "{seeds:?}");
}

#[test]
fn greedy_uses_no_randomness() {
    let mut sampler = Sampler::new(SamplerConfig { seed: Some(3), ..SamplerConfig::greedy() }).unwrap();
    assert_eq!([0; 4].map(|_| sampler.sample(&logits())), [2; 4]);
    assert_eq!(*sampler.rng(), Rng::new(3));
}

#[test]
fn penalties_follow_what_was_accepted_and_taken_back() {
    let config = SamplerConfig { presence_penalty: 100.0, ..SamplerConfig::greedy() };
    let mut sampler = Sampler::new(config).unwrap();
    // By rank: 2, 5, 3.
    assert_eq!(sampler.sample(&logits()), 2);
    sampler.accept(2);
    assert_eq!(sampler.sample(&logits()), 5);
    sampler.accept(5);
    assert_eq!(sampler.sample(&logits()), 3);
    sampler.truncate(1);
    assert_eq!(sampler.history(), [2]);
    assert_eq!(sampler.sample(&logits()), 5);
}

#[test]
fn an_invalid_configuration_makes_no_sampler() {
    let error = Sampler::new(SamplerConfig { top_p: 1.5, ..SamplerConfig::default() }).err().unwrap();
    assert_eq!(error.to_string(), "`top_p` 1.5: 0 to 1 is the range; 1 turns it off");
}
