//! Drafts whose length is said before the first token is seen, as a device needs it that runs a round by itself.

use spec_run::{
    rng::Rng,
    speculation::{
        Controller, Costs, Drafted, Memory, Offer, Policy, Round, RoundChoice, SourceInfo, SourceKind,
    },
};

const DRAFT: f64 = 0.3;

fn rows(n: usize) -> f64 {
    1.0 + 0.08 * (n - 1) as f64
}

/// A policy that has timed some plain steps of so many seconds, of which there are `tokens` then, each drafted
/// rightly with the same chance; tokens per plain step, and the last length.
fn run(chance: f64, step_seconds: f64, tokens: usize) -> (f64, Option<usize>) {
    run_far_away(chance, step_seconds, tokens, None)
}

/// The same on a device that is so far away.
fn run_far_away(chance: f64, step_seconds: f64, tokens: usize, way: Option<f64>) -> (f64, Option<usize>) {
    let source =
        SourceInfo { name: "mask".into(), kind: SourceKind::Mask, cost: DRAFT, chance: 0.75, prefix: None };
    let mut policy =
        Controller::new(Costs::guess(std::slice::from_ref(&source)), Memory::new()).with_round_trip(way);
    policy.start(&[source]);
    let mut rng = Rng::new(3);
    let (mut at, mut time, mut last) = (0, 0.0, None);
    while at < tokens {
        let choice = policy.choose(&[Offer { source: 0, most: 100, ready: None, guide: None }]);
        let length = match choice {
            RoundChoice::Draft { source, most } => {
                let length = policy.length(source, most);
                assert!(length.is_none_or(|length| (1..=most).contains(&length)));
                last = length;
                // Where it wants to see each token: all are alike here, so any length will do.
                length.unwrap_or(most.min(4))
            }
            RoundChoice::Plain => 0,
        };
        let accepted = (0..length).take_while(|_| rng.next_f64() < chance).count();
        let (draft, verify) = (length as f64 * DRAFT, rows(length + 1));
        policy.record(&Round {
            source: (length > 0).then_some(0),
            drafted: &vec![Drafted { confidence: 0.8 }; length],
            draft_steps: length,
            accepted,
            draft_seconds: step_seconds * draft,
            verify_seconds: step_seconds * verify,
            ..Round::default()
        });
        (at, time) = (at + accepted + 1, time + draft + verify);
    }
    (at as f64 / time, last)
}

/// What the best constant length gives.
fn best(chance: f64) -> f64 {
    let speed = |k: usize| {
        let tokens: f64 = (0..=k).map(|i| chance.powi(i as i32)).sum();
        tokens / (k as f64 * DRAFT + rows(k + 1))
    };
    (0..16).map(speed).fold(0.0, f64::max)
}

#[test]
fn lengths_said_beforehand_are_about_the_best() {
    for chance in [0.6, 0.75, 0.85, 0.95] {
        let (speed, length) = run(chance, 1e-4, 2000);
        let best = best(chance);
        println!("chance {chance}: {speed:.3}, the best {best:.3}, the last length {length:?}");
        assert!(speed > 0.93 * best, "chance {chance}: {speed}, the best {best}");
        assert!(length.is_some());
    }
}

#[test]
fn a_draft_that_cannot_win_is_given_up_here_too() {
    let (speed, _) = run(0.1, 1e-4, 2000);
    assert!(speed > 0.97, "{speed}");
}

/// A step of 6 ms: what each token tells is worth more than the way to the device and back.
#[test]
fn long_steps_are_taken_one_by_one() {
    assert_eq!(run(0.85, 20e-3, 400).1, None);
}

/// What is long depends on the way: a draft step of 6 ms is nothing where it takes a millisecond, one of 0.3 ms is
/// much where it takes a microsecond.
#[test]
fn a_far_device_runs_whole_rounds() {
    assert!(run_far_away(0.85, 20e-3, 400, Some(1e-3)).1.is_some());
    assert_eq!(run_far_away(0.85, 1e-3, 400, Some(1e-6)).1, None);
    assert!(run(0.85, 1e-3, 400).1.is_some());
}
