//! Drawing: that tokens come as often as their distribution says, and that a seed repeats a run.

use spec_run::{
    Sampler,
    sampler::{Distribution, SamplerConfig, distribution},
};

const DRAWS: u32 = 200_000;

fn logits() -> [f32; 8] {
    [0.3, -1.0, 2.0, 1.1, -0.4, 1.7, 0.0, 0.9]
}

fn next(sampler: &mut Sampler, logits: &[f32]) -> u32 {
    let token = sampler.sample(logits);
    sampler.accept(token);
    token
}

fn chi_square(counts: &[u32], expected: impl Fn(u32) -> f64) -> f64 {
    let cells = (0u32..).zip(counts).filter(|&(id, _)| expected(id) > 0.0);
    cells.map(|(id, &n)| (f64::from(n) - expected(id)).powi(2) / expected(id)).sum()
}

#[test]
fn draws_follow_the_distribution_and_no_neighbouring_one() {
    let config = SamplerConfig { seed: Some(1), ..SamplerConfig::default() };
    let target = distribution(&config, &logits(), &[]);
    assert_eq!(target.len(), 6, "the defaults leave out two of the eight: {target:?}");
    let mut sampler = Sampler::new(config.clone()).unwrap();
    let mut counts = [0u32; 8];
    for _ in 0..DRAWS {
        counts[next(&mut sampler, &logits()) as usize] += 1;
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
    // A half and a quarter each, best first.
    let mut logits = [f32::NEG_INFINITY; 10];
    (logits[1], logits[4], logits[9]) = (0.0, std::f32::consts::LN_2, 0.0);
    let off = SamplerConfig { temp: 1.0, top_k: 10, top_p: 1.0, min_p: 0.0, ..SamplerConfig::default() };
    let found = distribution(&off, &logits, &[]);
    for (u, id) in [(0.0, 4), (0.4999, 4), (0.5001, 1), (0.7499, 1), (0.7501, 9), (1.0 - f64::EPSILON, 9)] {
        assert_eq!(found.draw(u), id, "u = {u}");
    }
    // Out of the contract, and still a token.
    assert_eq!((found.draw(2.0), found.draw(f64::NAN), found.draw(-1.0)), (9, 9, 4));
    assert_eq!((found.p(4) * 4.0).round(), 2.0);
    assert_eq!((found.p(0), found.p(99)), (0.0, 0.0));
    assert_eq!(Distribution::one_hot(7).draw(0.5), 7);
    // With every cut off nothing is ordered, and tokens come by their ids.
    let unordered = distribution(&SamplerConfig { top_k: 0, ..off }, &logits, &[]);
    assert_eq!((unordered.draw(0.0), unordered.draw(0.26), unordered.draw(0.76)), (1, 4, 9));
}

#[test]
fn a_choice_depends_on_the_seed_the_history_and_the_logits_alone() {
    let config = SamplerConfig { seed: Some(42), ..SamplerConfig::default() };
    let mut sampler = Sampler::new(config.clone()).unwrap();
    sampler.begin(&[1, 2, 3]);
    let text: Vec<u32> = (0..40).map(|_| next(&mut sampler, &logits())).collect();
    let again = |sampler: &mut Sampler, from: usize| {
        sampler.truncate(3 + from);
        (from..40).map(|_| next(sampler, &logits())).collect::<Vec<_>>()
    };
    for from in [39, 7, 20, 0] {
        assert_eq!(again(&mut sampler, from), text[from..], "from {from}");
    }
    // The same numbers whatever was given, and for a text that is begun anew.
    sampler.begin(&[7]);
    assert_eq!(text, (0..40).map(|_| next(&mut sampler, &logits())).collect::<Vec<_>>());
    assert_eq!(sampler.history().len(), 41);
}

#[test]
fn the_seed_that_was_drawn_repeats_the_run() {
    let run = |seed| {
        let mut sampler = Sampler::new(SamplerConfig { seed, ..SamplerConfig::default() }).unwrap();
        let tokens: Vec<_> = (0..64).map(|_| next(&mut sampler, &logits())).collect();
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
