//! The strategies against a judge whose answers are known for every candidate.

use std::{
    fs,
    ops::{ControlFlow, Range},
    time::Duration,
};

use super::{
    Found, Member, Past, SearchOutcome, SearchSettings, Sought,
    candidate::{Candidate, Movable, State},
    costs::PassCosts,
    family::Proof,
    find,
    journal::{Entry, Journal, RunId},
    judge::Judge,
    measured::Measured,
    objective::Objective,
    rank,
    score::{Score, Verdict},
};
use crate::{Result, rng::Rng};

const LAYERS: usize = 5;
const POSITIONS: usize = 512;

/// Each skipped sublayer loses some of the agreement, and two neighbours together lose more.
struct FakeJudge {
    losses: Vec<f64>,
    chances: Vec<f64>,
    rows: usize,
}

impl FakeJudge {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let losses = (0..2 * LAYERS).map(|_| 0.02 + 0.3 * rng.next_f64().powi(2)).collect();
        FakeJudge { losses, chances: (0..POSITIONS).map(|_| rng.next_f64()).collect(), rows: 0 }
    }

    fn chance(&self, candidate: &Candidate) -> f64 {
        let states = candidate.states();
        let alone = |i: usize| if states[i] == State::Skip { 1.0 - self.losses[i] } else { 1.0 };
        let together = states.windows(2).filter(|w| w[0] == State::Skip && w[1] == State::Skip).count();
        (0..states.len()).map(alone).product::<f64>() * 0.97f64.powi(together as i32)
    }
}

impl Judge for FakeJudge {
    fn positions(&self) -> usize {
        POSITIONS
    }

    fn score(&mut self, candidate: &Candidate, positions: Range<usize>) -> Result<Score> {
        let a = self.chance(candidate);
        self.rows += positions.len();
        let mut score = Score::default();
        for i in positions {
            let verdict = Verdict { agreed: self.chances[i] < a, overlap: a, kl: -a.ln(), nll: 1.0 - a.ln() };
            score.push(&verdict);
        }
        Ok(score)
    }
}

fn costs() -> PassCosts {
    let each = 0.9 / (2 * LAYERS) as f64;
    PassCosts {
        step_seconds: 1.0,
        rows: (0..9).map(|n| 1.0 + 0.05 * n as f64).collect(),
        base: 0.1,
        full: vec![each; 2 * LAYERS],
        otherwise: vec![(State::Coarse, vec![each / 2.0; 2 * LAYERS])],
        resumes: true,
    }
}

fn settings(objective: Objective) -> SearchSettings {
    SearchSettings { objective, width: 4, trials: 40, ..SearchSettings::default() }
}

fn run(
    judge: &mut FakeJudge,
    settings: &SearchSettings,
    journal: &mut Journal,
    entries: Vec<Entry>,
) -> Result<Found> {
    let sought = Sought { settings, n_layer: LAYERS, movable: Movable::all(LAYERS), costs: &costs() };
    find(judge, &sought, Past { journal, entries }, &mut |_| ControlFlow::Continue(()))
}

fn all_candidates() -> impl Iterator<Item = Candidate> {
    (1..(1u32 << (2 * LAYERS)) - 1).map(|bits| {
        let state = |i| if bits >> i & 1 == 1 { State::Skip } else { State::Run };
        Candidate::from_states((0..2 * LAYERS).map(state).collect())
    })
}

#[test]
fn the_best_of_all_candidates_is_found_in_fewer_rows_than_trying_them() {
    let objectives =
        [Objective::Speed, Objective::Agreement { most_cost: 0.5 }, Objective::Perplexity { most_cost: 0.5 }];
    for objective in objectives {
        for seed in 1..6 {
            let mut judge = FakeJudge::new(seed);
            let found = run(&mut judge, &settings(objective), &mut Journal::none(), Vec::new()).unwrap();
            let rows = judge.rows;
            let mut value = |candidate: &Candidate| {
                let score = judge.score(candidate, 0..POSITIONS).unwrap();
                objective.value(&costs(), candidate, &score)
            };
            let best = all_candidates().map(|c| value(&c)).fold(f64::NEG_INFINITY, f64::max);
            let got = value(&found.finalists[0]);
            assert!(got >= best - 0.01 * best.abs(), "{objective:?}, seed {seed}: {got}, there is {best}");
            let most = all_candidates().count() * POSITIONS;
            assert!(rows < most / 3, "{objective:?}, seed {seed}: {rows} rows of {most}");
        }
    }
}

#[test]
fn more_masks_than_there_are_candidates_are_all_of_them() {
    let settings = SearchSettings { family: usize::MAX, ..settings(Objective::Speed) };
    let found = run(&mut FakeJudge::new(1), &settings, &mut Journal::none(), Vec::new()).unwrap();
    assert!(found.finalists.len() > 10 && found.finalists.len() <= found.evaluated);
}

#[test]
fn ablations_tell_each_sublayers_loss() {
    let mut judge = FakeJudge::new(3);
    let found = run(&mut judge, &settings(Objective::Speed), &mut Journal::none(), Vec::new()).unwrap();
    assert_eq!(found.ablations.len(), 2 * LAYERS);
    for (ablation, loss) in found.ablations.iter().zip(&judge.losses) {
        assert!((ablation.score.overlap() - (1.0 - loss)).abs() < 1e-9);
        assert!((ablation.saved - 0.09).abs() < 1e-9);
    }
}

#[test]
fn coarse_sublayers_are_used_where_they_are_cheaper_and_as_good() {
    /// Coarse loses nothing here, so a candidate that runs anything in full wastes half of it.
    struct Generous(FakeJudge);
    impl Judge for Generous {
        fn positions(&self) -> usize {
            POSITIONS
        }
        fn score(&mut self, candidate: &Candidate, positions: Range<usize>) -> Result<Score> {
            self.0.score(candidate, positions)
        }
    }
    let settings = SearchSettings { states: vec![State::Coarse, State::Skip], ..settings(Objective::Speed) };
    let mut judge = Generous(FakeJudge::new(1));
    let sought =
        Sought { settings: &settings, n_layer: LAYERS, movable: Movable::all(LAYERS), costs: &costs() };
    let past = Past { journal: &mut Journal::none(), entries: Vec::new() };
    let found = find(&mut judge, &sought, past, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(found.ablations.len(), 4 * LAYERS);
    let best = found.finalists[0].to_string();
    assert!(best.contains('c') && !best.contains('r'), "{best}");
}

fn id() -> RunId {
    let text = |s: &str| s.to_string();
    RunId {
        model: text("m"),
        text: text("t"),
        positions: POSITIONS,
        device: text("d"),
        cache_types: text("f16 f16"),
    }
}

#[test]
fn a_search_goes_on_after_being_ended_anywhere_with_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let settings = settings(Objective::Speed);
    let search = |judge: &mut FakeJudge| {
        let (mut journal, entries) = Journal::open(&path, &id()).unwrap();
        run(judge, &settings, &mut journal, entries).unwrap()
    };
    let mut first = FakeJudge::new(2);
    let whole = search(&mut first);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().count() > 100);
    for share in [0.0, 0.01, 0.2, 0.5, 0.77, 0.999, 1.0] {
        // In the middle of a line, too.
        fs::write(&path, &text[..(text.len() as f64 * share) as usize]).unwrap();
        let mut judge = FakeJudge::new(2);
        let resumed = search(&mut judge);
        assert_eq!(format!("{resumed:?}"), format!("{whole:?}"), "cut at {share}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "cut at {share}");
        let left = first.rows as f64 * (1.0 - share);
        assert!((judge.rows as f64 - left).abs() < 0.1 * first.rows as f64 + 1.0, "{} rows", judge.rows);
    }
}

#[test]
fn an_interrupted_search_says_so_and_keeps_what_it_knows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let (mut journal, entries) = Journal::open(&path, &id()).unwrap();
    let mut calls = 0;
    let mut stop = |_| {
        calls += 1;
        if calls > 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let settings = settings(Objective::Speed);
    let mut judge = FakeJudge::new(2);
    let sought =
        Sought { settings: &settings, n_layer: LAYERS, movable: Movable::all(LAYERS), costs: &costs() };
    let past = Past { journal: &mut journal, entries };
    let error = find(&mut judge, &sought, past, &mut stop).unwrap_err();
    assert!(error.to_string().contains("interrupted"), "{error}");
    drop(journal);
    let (_, entries) = Journal::open(&path, &id()).unwrap();
    assert!(entries.len() > 20);
}

#[test]
fn journals_of_other_searches_and_other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    drop(Journal::open(&path, &id()).unwrap());
    let other = RunId { text: "another".into(), ..id() };
    let error = Journal::open(&path, &other).err().unwrap().to_string();
    assert!(error.contains("another model, text"), "{error}");
    for text in ["GGUF and some bytes", "{\"masks\": []}\n", "\n\n"] {
        fs::write(&path, text).unwrap();
        let error = Journal::open(&path, &id()).err().unwrap().to_string();
        assert!(error.contains("journal"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "a refused file must stay as it is");
    }
}

fn member(name: &str, predicted: f64, measured: Option<f64>) -> Member {
    let proof = Proof {
        cost: predicted,
        positions: 64,
        prefix: 0.0,
        agreement: 0.5,
        overlap: 0.5,
        kl: 0.1,
        greedy_tokens: vec![1.5; 8],
        sampled_tokens: vec![1.5; 8],
    };
    let measured = measured.map(|speedup| Measured { speedup, ..Measured::default() });
    let layers = name.len() % LAYERS;
    Member { name: name.into(), candidate: Candidate::exit(LAYERS, layers), proof, measured }
}

#[test]
fn what_the_loop_measured_has_the_last_word() {
    let costs_of = |family: &[Member]| family.iter().map(|m| m.proof.cost).collect::<Vec<_>>();
    let three = |last| vec![member("a", 0.2, Some(1.1)), member("b", 0.3, Some(1.3)), member("c", 0.4, last)];
    let mut family = three(Some(1.2));
    let costs = costs();
    let rank = |family: &mut Vec<Member>, baselines: &[Member]| rank(family, baselines, &costs);
    rank(&mut family, &[member("exit", 0.5, Some(1.25))]);
    assert_eq!(costs_of(&family), [0.3, 0.4, 0.2]);
    let names: Vec<_> = family.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["best", "cautious 1", "bold 1"]);
    // A faster baseline takes the place of the slowest.
    rank(&mut family, &[member("half", 0.6, Some(1.35)), member("exit", 0.5, Some(1.4))]);
    assert_eq!(costs_of(&family), [0.5, 0.3, 0.4]);
    // Where not all were measured, predictions stand.
    let mut family = three(None);
    rank(&mut family, &[member("exit", 0.5, Some(1.4))]);
    assert_eq!(costs_of(&family), [0.2, 0.3, 0.4]);
}

/// Neither by what was measured nor by what is predicted.
#[test]
fn a_mask_that_is_slower_than_plain_decoding_is_not_called_the_best() {
    let costs = costs();
    for (cost, measured, is_best) in
        [(0.2, Some(0.97), false), (0.2, Some(1.03), true), (0.9, None, false), (0.05, None, true)]
    {
        let mut family = vec![member("a", cost, measured), member("b", 0.95, measured.map(|_| 0.9))];
        rank(&mut family, &[], &costs);
        let name = if is_best { "best" } else { "fastest" };
        assert_eq!(family[0].name, name, "{cost}, {measured:?}");
        let outcome = SearchOutcome {
            costs: costs.clone(),
            perplexity: 10.0,
            ablations: Vec::new(),
            cloud: Vec::new(),
            family,
            baselines: Vec::new(),
            evaluated: 2,
        };
        assert_eq!(outcome.why_not().is_none(), is_best);
    }
}

#[test]
fn without_time_one_mask_is_judged_on_a_few_positions() {
    let mut judge = FakeJudge::new(1);
    let settings = SearchSettings { time: Some(Duration::ZERO), ..settings(Objective::Speed) };
    let found = run(&mut judge, &settings, &mut Journal::none(), Vec::new()).unwrap();
    assert_eq!((found.evaluated, judge.rows), (2, 2 * 64));
    assert_eq!((found.finalists.len(), found.ablations.len()), (1, 0));
}

#[test]
fn in_a_short_time_less_is_proved() {
    let effort = |seconds: Option<u64>| {
        let settings =
            SearchSettings { time: seconds.map(Duration::from_secs), ..settings(Objective::Speed) };
        let effort = settings.effort(&costs(), 20, 512);
        (effort.candidates, effort.positions)
    };
    assert_eq!(effort(None), (20, 512));
    // A row takes 1.4 s of 9: half of the time is 3214 rows in drafts of 8, 401 of them, 32 a mask and for the text.
    assert_eq!(effort(Some(1000)), (11, 32));
    assert_eq!(effort(Some(100_000)), (20, 512));
    assert_eq!(effort(Some(1)), (1, 32));
}
