//! The controller against worlds of which everything is known: how long each pass takes, and at which places of the
//! text each source is right. The best fixed setting is found by brute force over the same worlds.
//!
//! Judged by the true time without noise, over 512 tokens and several worlds a scenario: at least [`OF_BEST`] of
//! the best fixed setting's speed on average, and in no world less than [`OF_PLAIN`] of plain decoding's.

use spec_run::speculation::costs::MOST_ROWS;
use spec_run::{
    rng::Rng,
    speculation::{
        Controller, Costs, Drafted, Memory, Offer, Policy, Ready, Round, RoundChoice, SourceInfo, SourceKind,
        Speedup,
    },
};

const TOKENS: usize = 512;
const WORLDS: u64 = 24;
const OF_BEST: f64 = 0.95;
const OF_PLAIN: f64 = 0.97;

/// What one source would say at one place of the text.
#[derive(Clone, Copy, Debug)]
struct Place {
    confidence: f32,
    right: bool,
    /// For a lookup: what it found here, if anything.
    ready: Option<Ready>,
}

struct Source {
    info: SourceInfo,
    /// True cost of a draft step in plain steps.
    cost: f64,
    places: Vec<Place>,
}

/// How far the clock is to be trusted.
#[derive(Clone, Copy)]
struct Clock {
    /// Standard deviation of the logarithm of a timing.
    noise: f64,
    /// Share of passes during which something else has the machine, and how many times as long they take.
    spikes: (f64, f64),
    /// From this token on the machine is slower by the factor.
    slower: (usize, f64),
}

const QUIET: Clock = Clock { noise: 0.02, spikes: (0.0, 1.0), slower: (usize::MAX, 1.0) };

struct World {
    sources: Vec<Source>,
    rows: fn(usize) -> f64,
    clock: Clock,
    /// Sources may be tried on text that is there, as the loop does it.
    trials: bool,
    seed: u64,
}

/// Places of the text that a trial looks at.
const PLACES: usize = 24;

/// A step without a draft that took so long.
fn plain_round(verify_seconds: f64) -> Round<'static> {
    Round { verify_seconds, ..Round::default() }
}

/// Tokens per plain step.
fn speed(world: &World, policy: &mut dyn Policy) -> f64 {
    let mut rng = Rng::new(world.seed ^ 0x9e37);
    let infos: Vec<SourceInfo> = world.sources.iter().map(|s| s.info.clone()).collect();
    policy.start(&infos);
    // With a prompt to try sources on.
    let start = if world.trials { PLACES } else { 0 };
    let (mut at, mut time) = (start, 0.0);
    let mut untried: Vec<usize> = if world.trials { (0..infos.len()).collect() } else { Vec::new() };
    while at < start + TOKENS {
        let pace = 0.02 * if at >= world.clock.slower.0 { world.clock.slower.1 } else { 1.0 };
        let mut timed = |true_time: f64| {
            let spike = if rng.next_f64() < world.clock.spikes.0 { world.clock.spikes.1 } else { 1.0 };
            let normal = (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0;
            pace * true_time * spike * (world.clock.noise * normal).exp()
        };
        let wanted = |&source: &usize| policy.wants_trial(source, PLACES);
        if let Some(next) = untried.iter().position(wanted) {
            let source = untried.remove(next);
            let places = &world.sources[source].places[at - PLACES..at];
            let seen: Vec<_> =
                places.iter().map(|p| (Drafted { confidence: p.confidence }, p.right)).collect();
            let price = world.sources[source].cost * (world.rows)(PLACES);
            time += price;
            policy.tried(source, &seen, timed(price));
        }
        let offers: Vec<Offer> = (world.sources.iter().enumerate())
            .filter_map(|(source, s)| match s.info.kind {
                SourceKind::Ngram => {
                    s.places[at].ready.map(|r| Offer { source, most: r.tokens, ready: Some(r), guide: None })
                }
                _ => Some(Offer { source, most: 32, ready: None, guide: None }),
            })
            .collect();
        let choice = policy.choose(&offers);
        let RoundChoice::Draft { source, most } = choice else {
            policy.record(&plain_round(timed(1.0)));
            (at, time) = (at + 1, time + 1.0);
            continue;
        };
        let drafting = &world.sources[source];
        let offer = offers.iter().find(|o| o.source == source).expect("only what was offered is chosen");
        assert!((1..=offer.most).contains(&most), "{most} of {} offered", offer.most);
        let mut drafted = Vec::new();
        while drafted.len() < most && (drafted.is_empty() || policy.draft_more(source, &drafted, false)) {
            drafted.push(Drafted { confidence: drafting.places[at + drafted.len()].confidence });
        }
        let accepted = drafting.places[at..][..drafted.len()].iter().take_while(|p| p.right).count();
        let draft_time = drafted.len() as f64 * drafting.cost;
        let verify_time = (world.rows)(drafted.len() + 1);
        let round = Round {
            source: Some(source),
            drafted: &drafted,
            draft_steps: drafted.len(),
            accepted,
            draft_seconds: if draft_time > 0.0 { timed(draft_time) } else { 1e-6 },
            verify_seconds: timed(verify_time),
            ..Round::default()
        };
        policy.record(&round);
        (at, time) = (at + accepted + 1, time + draft_time + verify_time);
    }
    (at - start) as f64 / time
}

/// A setting that never changes: lookups with a long enough match first, then one source of steps.
#[derive(Clone, Copy, Debug, Default)]
struct Setting {
    lookup: Option<(usize, usize)>,
    source: usize,
    steps: usize,
    p_min: f32,
}

impl Policy for Setting {
    fn start(&mut self, _: &[SourceInfo]) {}
    fn choose(&mut self, offers: &[Offer]) -> RoundChoice {
        for offer in offers {
            match (offer.ready, self.lookup) {
                (Some(ready), Some((least_match, most))) if ready.match_len >= least_match => {
                    return RoundChoice::Draft { source: offer.source, most: most.min(offer.most) };
                }
                (None, _) if offer.source == self.source && self.steps > 0 => {
                    return RoundChoice::Draft { source: offer.source, most: self.steps };
                }
                _ => {}
            }
        }
        RoundChoice::Plain
    }
    fn draft_more(&self, _: usize, so_far: &[Drafted], _: bool) -> bool {
        so_far.last().is_none_or(|d| d.confidence >= self.p_min)
    }
    fn record(&mut self, _: &Round) {}
    fn off_reason(&self) -> Option<String> {
        None
    }
    fn speedup(&self) -> Speedup {
        Default::default()
    }
}

fn mean(worlds: &[World], mut policy: impl FnMut(&World) -> f64) -> f64 {
    worlds.iter().map(&mut policy).sum::<f64>() / worlds.len() as f64
}

/// The best of all settings, by the mean over the worlds.
fn best_setting(worlds: &[World]) -> (f64, Setting) {
    const LENGTHS: [usize; 9] = [1, 2, 3, 4, 6, 8, 10, 12, 16];
    let kinds: Vec<SourceKind> = worlds[0].sources.iter().map(|s| s.info.kind).collect();
    let mut lookups = vec![None];
    if kinds.contains(&SourceKind::Ngram) {
        for least_match in [1, 2, 3, 5, 8] {
            lookups.extend(LENGTHS.map(|most| Some((least_match, most))));
        }
    }
    let mut steps = vec![(0, 0, 0.0)];
    for source in (0..kinds.len()).filter(|&s| kinds[s] != SourceKind::Ngram) {
        for length in LENGTHS {
            steps.extend([0.0, 0.3, 0.5, 0.7, 0.9].map(|p_min| (source, length, p_min)));
        }
    }
    let mut best = (0.0, Setting::default());
    for &lookup in &lookups {
        for &(source, steps, p_min) in &steps {
            let setting = Setting { lookup, source, steps, p_min };
            let rate = mean(worlds, |world| speed(world, &mut setting.clone()));
            if rate > best.0 {
                best = (rate, setting);
            }
        }
    }
    best
}

fn controller(world: &World) -> Controller {
    let infos: Vec<SourceInfo> = world.sources.iter().map(|s| s.info.clone()).collect();
    Controller::new(Costs::guess(&infos), Memory::new())
}

struct Outcome {
    of_best: f64,
    worst_of_plain: f64,
}

fn judge<P: Policy>(name: &str, worlds: &[World], policy: impl Fn(&World) -> P) -> Outcome {
    let (best, setting) = best_setting(worlds);
    let rates: Vec<f64> = worlds.iter().map(|world| speed(world, &mut policy(world))).collect();
    let average = rates.iter().sum::<f64>() / rates.len() as f64;
    let worst_of_plain = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let of_best = average / best;
    println!(
        "{name:44} best {best:.3} {setting:?}\n{:44} ours {average:.3}, {of_best:.3} of it; worst world {worst_of_plain:.3} of plain",
        ""
    );
    Outcome { of_best, worst_of_plain }
}

/// The promise, for one scenario.
fn keeps_up(name: &str, world: impl Fn(u64) -> World) {
    let worlds: Vec<World> = (1..=WORLDS).map(&world).collect();
    let outcome = judge(name, &worlds, controller);
    assert!(outcome.worst_of_plain >= OF_PLAIN, "{name}: {:.3} of plain", outcome.worst_of_plain);
    assert!(outcome.of_best >= OF_BEST, "{name}: {:.3} of the best fixed setting", outcome.of_best);
}

fn rows_with<const PERCENT: usize>(n: usize) -> f64 {
    1.0 + PERCENT as f64 / 100.0 * (n - 1) as f64
}

/// A source of steps that is right with a chance that depends on the place; `guess` is its cost by bytes.
fn mask(seed: u64, cost: f64, guess: f64, chance: impl Fn(usize, &mut Rng) -> (f32, f64)) -> Source {
    let mut rng = Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let places = (0..TOKENS + 96).map(|at| {
        let (confidence, chance) = chance(at, &mut rng);
        Place { confidence, right: rng.next_f64() < chance, ready: None }
    });
    let places = places.collect();
    let expected = 1.0 / (1.0 + (0.3 - 3.0 * guess).exp());
    let info = SourceInfo {
        name: format!("mask {cost}"),
        kind: SourceKind::Mask,
        cost: guess,
        chance: expected,
        prefix: None,
    };
    Source { info, cost, places }
}

/// Finds long continuations in stretches of copied text, and outside of them short ones that mislead.
fn lookup(seed: u64, copied: impl Fn(usize) -> bool, right_when_copied: f64) -> Source {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e6c_63d0_876a_9a47));
    let mut match_len = 0;
    let places = (0..TOKENS + 96).map(|at| {
        let right = rng.next_f64() < if copied(at) { right_when_copied } else { 0.08 };
        let spurious = rng.next_f64() < 0.3;
        let found = match copied(at) {
            true if match_len > 0 => match_len,
            true | false if spurious => 1 + (rng.next_f64() * 2.0) as usize,
            _ => 0,
        };
        match_len = if copied(at) && right { match_len + 1 } else { 0 };
        let ready = (found > 0).then_some(Ready { tokens: 16, match_len: found });
        Place { confidence: 1.0, right, ready }
    });
    let places = places.collect();
    Source {
        info: SourceInfo {
            name: "ngram".into(),
            kind: SourceKind::Ngram,
            cost: 0.0,
            chance: 0.3,
            prefix: None,
        },
        cost: 0.0,
        places,
    }
}

fn world(seed: u64, sources: Vec<Source>, rows: fn(usize) -> f64) -> World {
    World { sources, rows, clock: QUIET, trials: false, seed }
}

/// The same chance everywhere, and a confidence that tells nothing.
fn constant(a: f64) -> impl Fn(usize, &mut Rng) -> (f32, f64) {
    move |_, _| (0.8, a)
}

/// Easy and hard places, which the draft knows: easy ones come in runs.
fn by_confidence(easy: f64, hard: f64) -> impl Fn(usize, &mut Rng) -> (f32, f64) {
    move |_, rng| match rng.next_f64() {
        u if u < 0.6 => (0.9 + 0.1 * (u / 0.6) as f32, easy),
        u => (0.2 + 0.5 * (u - 0.6) as f32, hard),
    }
}

#[test]
fn one_chance_everywhere() {
    keeps_up("a 0.8, c 0.5, row 0.1", |s| world(s, vec![mask(s, 0.5, 0.5, constant(0.8))], rows_with::<10>));
    keeps_up("a 0.9, c 0.3, row 0.05", |s| world(s, vec![mask(s, 0.3, 0.3, constant(0.9))], rows_with::<5>));
    keeps_up("a 0.95, c 0.5, row 0.3", |s| {
        world(s, vec![mask(s, 0.5, 0.5, constant(0.95))], rows_with::<30>)
    });
    keeps_up("a 0.6, c 0.5, row 0.1: even", |s| {
        world(s, vec![mask(s, 0.5, 0.5, constant(0.6))], rows_with::<10>)
    });
    keeps_up("a 0.3, c 0.5, row 0.1: hopeless", |s| {
        world(s, vec![mask(s, 0.5, 0.5, constant(0.3))], rows_with::<10>)
    });
    keeps_up("a 0.95, c 0.1, row 0.05: long drafts", |s| {
        world(s, vec![mask(s, 0.1, 0.1, constant(0.95))], rows_with::<5>)
    });
}

#[test]
fn chances_that_confidence_tells() {
    keeps_up("easy 0.97, hard 0.25; c 0.5, row 0.1", |s| {
        world(s, vec![mask(s, 0.5, 0.5, by_confidence(0.97, 0.25))], rows_with::<10>)
    });
    keeps_up("easy 0.99, hard 0.1; c 0.3, row 0.3", |s| {
        world(s, vec![mask(s, 0.3, 0.3, by_confidence(0.99, 0.1))], rows_with::<30>)
    });
    keeps_up("easy 0.95, hard 0.6; c 0.2, row 0.05", |s| {
        world(s, vec![mask(s, 0.2, 0.2, by_confidence(0.95, 0.6))], rows_with::<5>)
    });
}

#[test]
fn bursts_of_copied_text() {
    let in_bursts = |at: usize| at % 128 >= 80;
    keeps_up("bursts, lookup alone", |s| world(s, vec![lookup(s, in_bursts, 0.97)], rows_with::<15>));
    keeps_up("bursts, dear rows", |s| world(s, vec![lookup(s, in_bursts, 0.95)], rows_with::<40>));
    keeps_up("bursts, and a mask between them", |s| {
        let sources = vec![lookup(s, in_bursts, 0.97), mask(s, 0.5, 0.5, constant(0.85))];
        world(s, sources, rows_with::<10>)
    });
    keeps_up("all of it copied", |s| world(s, vec![lookup(s, |_| true, 0.98)], rows_with::<15>));
    keeps_up("nothing copied", |s| world(s, vec![lookup(s, |_| false, 0.98)], rows_with::<15>));
}

#[test]
fn sources_that_are_always_wrong() {
    keeps_up("one mask, always wrong", |s| world(s, vec![mask(s, 0.5, 0.5, constant(0.0))], rows_with::<10>));
    keeps_up("a dear mask that is sure and wrong", |s| {
        world(s, vec![mask(s, 0.9, 0.4, |_, _| (0.999, 0.0))], rows_with::<60>)
    });
    keeps_up("three masks and a lookup, all wrong", |s| {
        let masks = [0.3, 0.5, 0.7].map(|c| mask(s, c, c, constant(0.0)));
        let wrong_lookup = lookup(s, |_| true, 0.0);
        world(s, masks.into_iter().chain([wrong_lookup]).collect(), rows_with::<30>)
    });
    keeps_up("long matches, always wrong, dear rows", |s| {
        let mut source = lookup(s, |_| true, 0.0);
        for place in &mut source.places {
            place.ready = Some(Ready { tokens: 16, match_len: 12 });
        }
        world(s, vec![source], rows_with::<60>)
    });
}

#[test]
fn texts_that_change_in_the_middle() {
    let change = |before: f64, after: f64| {
        move |at: usize, _: &mut Rng| (0.8, if at < TOKENS / 2 { before } else { after })
    };
    keeps_up("a 0.9, then 0.1", |s| world(s, vec![mask(s, 0.4, 0.4, change(0.9, 0.1))], rows_with::<10>));
    keeps_up("a 0.1, then 0.9", |s| world(s, vec![mask(s, 0.4, 0.4, change(0.1, 0.9))], rows_with::<10>));
    keeps_up("one mask good before, another after", |s| {
        let sources = vec![mask(s, 0.4, 0.4, change(0.9, 0.3)), mask(s + 99, 0.41, 0.41, change(0.3, 0.9))];
        world(s, sources, rows_with::<10>)
    });
}

#[test]
fn a_family_of_masks() {
    let family = |s: u64, chances: [f64; 5]| -> Vec<Source> {
        std::iter::zip([0.3, 0.45, 0.6, 0.75, 0.85], chances)
            .map(|(c, a)| mask(s + (100.0 * c) as u64, c, c, constant(a)))
            .collect()
    };
    keeps_up("family, the boldest is best", |s| {
        world(s, family(s, [0.85, 0.88, 0.9, 0.93, 0.95]), rows_with::<8>)
    });
    keeps_up("family, the middle is best", |s| {
        world(s, family(s, [0.3, 0.5, 0.93, 0.94, 0.96]), rows_with::<8>)
    });
    keeps_up("family, none is worth it", |s| world(s, family(s, [0.2, 0.3, 0.4, 0.5, 0.6]), rows_with::<15>));
}

#[test]
fn sources_tried_on_the_text_that_is_there() {
    let tried = |s: u64, chances: [f64; 5]| {
        let costs = [0.1, 0.2, 0.3, 0.4, 0.5];
        let sources =
            std::iter::zip(costs, chances).map(|(c, a)| mask(s + (100.0 * c) as u64, c, c, constant(a)));
        World { trials: true, ..world(s, sources.collect(), rows_with::<5>) }
    };
    keeps_up("trials, the boldest is best", |s| tried(s, [0.85, 0.88, 0.9, 0.93, 0.95]));
    // A bold draft that is bad and a cautious one that is good is the other way round than what is expected.
    let worlds: Vec<World> = (1..=WORLDS).map(|s| tried(s, [0.1, 0.2, 0.3, 0.4, 0.95])).collect();
    let outcome = judge("trials, the last is best", &worlds, controller);
    assert!(outcome.of_best >= 0.9 && outcome.worst_of_plain > 1.1);
    keeps_up("trials, always wrong", |s| tried(s, [0.0; 5]));
    let noisy = Clock { noise: 0.15, spikes: (0.05, 8.0), slower: (usize::MAX, 1.0) };
    keeps_up("trials, always wrong, noise and spikes", |s| World { clock: noisy, ..tried(s, [0.0; 5]) });
}

#[test]
fn costs_that_are_not_what_was_guessed() {
    keeps_up("a step costs twice the guess", |s| {
        world(s, vec![mask(s, 0.7, 0.35, constant(0.8))], rows_with::<10>)
    });
    keeps_up("a step costs half the guess", |s| {
        world(s, vec![mask(s, 0.3, 0.6, constant(0.85))], rows_with::<5>)
    });
    keeps_up("rows cost much more than the guess", |s| {
        world(s, vec![mask(s, 0.4, 0.4, constant(0.85))], rows_with::<50>)
    });
    keeps_up("rows come in fours", |s| {
        fn fours(n: usize) -> f64 {
            1.0 + 0.5 * (n.div_ceil(4) - 1) as f64
        }
        world(s, vec![mask(s, 0.3, 0.3, constant(0.85))], fours)
    });
}

#[test]
fn clocks_that_lie() {
    let noisy = Clock { noise: 0.15, spikes: (0.05, 8.0), slower: (usize::MAX, 1.0) };
    let slower = Clock { noise: 0.05, spikes: (0.01, 5.0), slower: (200, 2.0) };
    let faster = Clock { noise: 0.05, spikes: (0.01, 5.0), slower: (200, 0.5) };
    for (name, clock) in [("noise and spikes", noisy), ("half as fast", slower), ("twice as fast", faster)] {
        for (a, c) in [(0.85, 0.4), (0.3, 0.5), (0.0, 0.5)] {
            keeps_up(&format!("{name}, a {a}, c {c}"), |s| {
                let sources = vec![mask(s, c, c, constant(a))];
                World { clock, ..world(s, sources, rows_with::<10>) }
            });
        }
    }
}

/// The yardstick can tell: what many programs do fails by the same measure.
#[test]
fn policies_without_a_controller_fail() {
    let always_four = |_: &World| Setting { source: 0, steps: 4, ..Setting::default() };
    let wrong: Vec<World> =
        (1..=WORLDS).map(|s| world(s, vec![mask(s, 0.5, 0.5, constant(0.0))], rows_with::<10>)).collect();
    assert!(judge("always four, always wrong", &wrong, always_four).worst_of_plain < OF_PLAIN);
    let good: Vec<World> =
        (1..=WORLDS).map(|s| world(s, vec![mask(s, 0.3, 0.3, constant(0.9))], rows_with::<5>)).collect();
    let never = |_: &World| Setting::default();
    assert!(judge("never, although it would pay", &good, never).of_best < OF_BEST);
}

#[test]
fn frozen_costs_make_choices_that_do_not_depend_on_the_clock() {
    let run = |clock: Clock| {
        let world =
            World { clock, ..world(5, vec![mask(5, 0.4, 0.4, by_confidence(0.95, 0.3))], rows_with::<10>) };
        let infos: Vec<SourceInfo> = world.sources.iter().map(|s| s.info.clone()).collect();
        speed(&world, &mut Controller::new(Costs::frozen(&infos), Memory::new()))
    };
    let noisy = Clock { noise: 0.3, spikes: (0.1, 9.0), slower: (100, 3.0) };
    assert_eq!(run(QUIET), run(noisy));
}

/// What the controller says of itself is what a clock outside says.
#[test]
fn the_speedup_that_is_reported_is_the_true_one() {
    let noisy = Clock { noise: 0.1, spikes: (0.03, 6.0), slower: (usize::MAX, 1.0) };
    // As a deeper context does, only more: plain steps late in the text are not what its beginning would have taken.
    let slower = Clock { slower: (TOKENS / 2, 1.6), ..QUIET };
    let cases = [
        (QUIET, 0.85, 0.4, 0.04),
        (noisy, 0.85, 0.4, 0.1),
        (QUIET, 0.0, 0.5, 0.04),
        (slower, 0.85, 0.4, 0.05),
        (slower, 0.65, 0.4, 0.05),
    ];
    for (clock, a, c, tolerance) in cases {
        let mut wrong = [0.0, 0.0];
        for seed in 1..=WORLDS {
            let world = World { clock, ..world(seed, vec![mask(seed, c, c, constant(a))], rows_with::<10>) };
            let mut controller = controller(&world);
            let truth = speed(&world, &mut controller);
            let said = controller.speedup();
            wrong[0] += (said.predicted.expect("there were rounds") / truth - 1.0) / WORLDS as f64;
            wrong[1] += (said.measured.expect("there were plain steps") / truth - 1.0) / WORLDS as f64;
        }
        println!("a {a}: predicted and measured are off by {wrong:.3?}");
        assert!(wrong.iter().all(|w| w.abs() < tolerance), "a {a}: {wrong:?}");
    }
}

#[test]
fn the_reason_for_being_off_has_the_numbers() {
    let world = world(1, vec![mask(1, 0.5, 0.5, constant(0.0))], rows_with::<10>);
    let mut controller = controller(&world);
    assert_eq!(controller.off_reason().as_deref(), Some("no source had anything to draft"));
    speed(&world, &mut controller);
    let reason = controller.off_reason().expect("off");
    println!("{reason}");
    assert!(reason.contains("mask 0.5") && reason.contains("0 of its"), "{reason}");
}

#[test]
fn drafts_stay_within_what_is_believed_of_costs() {
    let world = world(1, vec![lookup(1, |_| true, 1.0)], rows_with::<0>);
    let rate = speed(&world, &mut controller(&world));
    assert!(rate > 6.0 && rate <= MOST_ROWS as f64, "{rate}");
}

/// A trial is a pass over many rows, and what a row takes is first seen in the prompt.
#[test]
fn a_trial_that_the_prompt_shows_to_be_dear_is_not_made() {
    let infos = [mask(1, 0.3, 0.3, |_, _| (0.9, 0.9)).info];
    let wants = |prompt: Option<(usize, f64)>| {
        let mut policy = Controller::new(Costs::guess(&infos), Memory::new());
        policy.start(&infos);
        if let Some((tokens, seconds)) = prompt {
            policy.saw_prompt(tokens, seconds);
        }
        for _ in 0..8 {
            policy.choose(&[]);
            policy.record(&plain_round(0.02));
        }
        policy.wants_trial(0, PLACES)
    };
    assert!(wants(None), "by the guess it is cheap");
    // A tenth of a plain step for a row, and then one half of it.
    assert!(wants(Some((64, 64.0 * 0.002))));
    assert!(!wants(Some((64, 64.0 * 0.010))));
    assert!(wants(Some((8, 8.0 * 0.010))), "a short prompt says little");
}
