//! What the search says of a mask is what a draft under that mask does.

use crate::common;
use std::{fs, ops::ControlFlow, sync::Arc};

use common::{context, embedded_model, load};
use spec_run::search::judge::Judge;
use spec_run::{
    Batch, Context, Model, Result, RunLayers, Tokenizer,
    batch::SeqId,
    scores::greedy,
    search::{
        Calibration, CalibrationSettings, Candidate, Journal, Measured, Member, ModelJudge, PassCosts, RunId,
        SearchOutcome, SearchSettings, Span, State, Stopwatch, WallClock, extra_cells, search,
    },
};

const AMOUNT: CalibrationSettings = CalibrationSettings { chunk: 96, positions: 160 };
const DEPTH: usize = 4;

fn text_of(model: &Arc<Model>) -> Calibration {
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let mut context = context(model, |c| c.n_ctx = 1024);
    Calibration::written_by(&mut context, &tokenizer, &AMOUNT, |_| Ok(())).unwrap()
}

fn judging_context(model: &Arc<Model>) -> Context {
    context(model, |c| c.n_ctx = (AMOUNT.cells() + extra_cells(DEPTH)) as u32)
}

fn places(spans: &[Span]) -> Vec<(usize, usize)> {
    spans.iter().flat_map(|s| (s.from..s.to).map(|pos| (s.text, pos))).collect()
}

fn masks() -> [Candidate; 3] {
    let some =
        Candidate::all(16, State::Run).with(6, State::Skip).with(13, State::Skip).with(20, State::Skip);
    [Candidate::exit(16, 8), Candidate::every_second(16, 0), some]
}

/// Greedy drafting as a program would do it, from what is evaluated in full up to `pos`: how many of the drafts are
/// the full model's own next tokens.
fn accepted(context: &mut Context, text: &[u32], pos: usize, mask: &RunLayers) -> usize {
    (0..3).for_each(|seq| context.remove(seq));
    if pos > 0 {
        context.decode(&Batch::prompt(&text[..pos], 0, 0)).unwrap();
    }
    context.fork(0, 1);
    let (mut drafted, mut right) = (text[pos], text[pos]);
    for i in 0..DEPTH {
        let at = (pos + i) as u32;
        context.decode(&Batch::prompt(&[drafted], at, 1).with_layers(mask.clone())).unwrap();
        drafted = greedy(context.logits(0));
        context.decode(&Batch::prompt(&[right], at, 0)).unwrap();
        right = greedy(context.logits(0));
        if drafted != right {
            return i;
        }
    }
    DEPTH
}

#[test]
fn agreement_is_the_acceptance_of_a_drafts_first_token() {
    let model = embedded_model();
    let calibration = text_of(&model);
    let mut context = judging_context(&model);
    let mut by_hand = common::context(&model, |_| {});
    let mut judge = ModelJudge::new(&mut context, calibration.clone()).unwrap();
    assert_eq!(judge.positions(), 80);
    for candidate in masks() {
        let score = judge.score(&candidate, 0..80).unwrap();
        // In two parts, and again: the same.
        let mut parts = judge.score(&candidate, 0..33).unwrap();
        parts.extend(&judge.score(&candidate, 33..80).unwrap());
        assert_eq!(parts.agreement(), score.agreement());
        let agreed = places(&calibration.search)
            .into_iter()
            .filter(|&(text, pos)| {
                accepted(&mut by_hand, &calibration.texts[text], pos, &candidate.mask()) > 0
            })
            .count();
        assert_eq!(score.agreement(), agreed as f64 / 80.0, "{candidate}");
        assert!((20..80).contains(&agreed), "a mask that is always or never right shows nothing: {agreed}");
    }
}

#[test]
fn drafts_are_accepted_as_far_as_by_hand() {
    let model = embedded_model();
    let calibration = text_of(&model);
    let mut context = judging_context(&model);
    let mut by_hand = common::context(&model, |_| {});
    let mut judge = ModelJudge::new(&mut context, calibration.clone()).unwrap();
    for candidate in masks() {
        let drafts = judge.drafts(&candidate, DEPTH).unwrap();
        let rows: Vec<&Vec<f32>> = drafts.greedy.iter().flatten().collect();
        let places = places(&calibration.held_out);
        assert_eq!(rows.len(), places.len());
        let mut lengths = [0; DEPTH + 1];
        for (row, (text, pos)) in rows.into_iter().zip(places) {
            let in_a_row = row.iter().take_while(|&&chance| chance == 1.0).count();
            let expected = accepted(&mut by_hand, &calibration.texts[text], pos, &candidate.mask());
            assert_eq!(in_a_row, expected, "{candidate}, text {text}, position {pos}");
            lengths[expected] += 1;
        }
        assert!(lengths[0] > 0 && lengths[DEPTH] > 0, "{lengths:?}");
        // Sampled drafts have chances in between.
        assert!(drafts.sampled.iter().flatten().flatten().all(|&chance| (0.0..1.001).contains(&chance)));
    }
}

#[test]
fn the_full_model_as_a_mask_agrees_with_itself() {
    let model = embedded_model();
    let mut context = judging_context(&model);
    let mut judge = ModelJudge::new(&mut context, text_of(&model)).unwrap();
    let score = judge.score(&Candidate::all(16, State::Run), 0..80).unwrap();
    assert_eq!(score.agreement(), 1.0);
    assert!((score.overlap() - 1.0).abs() < 1e-5 && score.kl().abs() < 1e-5);
    let drafts = judge.drafts(&Candidate::all(16, State::Run), DEPTH).unwrap();
    assert!(drafts.greedy.iter().flatten().flatten().all(|&chance| chance == 1.0));
}

#[test]
fn a_small_search_ends_with_a_family() {
    let model = embedded_model();
    let calibration = text_of(&model);
    let mut context = judging_context(&model);
    let judge = ModelJudge::new(&mut context, calibration).unwrap();
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let settings =
        SearchSettings { width: 3, trials: 10, draft_max: DEPTH, family: 4, ..SearchSettings::default() };
    let (mut clock, mut journal) = (WallClock::default(), Journal::none());
    let on = |_| ControlFlow::Continue(());
    let outcome = search(judge, &tokenizer, &settings, &mut clock, &mut journal, Vec::new(), on).unwrap();
    assert_eq!(outcome.ablations.len(), 32);
    assert!(outcome.evaluated > 100);
    assert!((1..=4).contains(&outcome.family.len()));
    assert_eq!(outcome.family[0].name, "best");
    let measured = |m: &Member| m.measured.expect("the embedded model is fast enough").speedup;
    let speeds: Vec<f64> = outcome.family.iter().map(measured).collect();
    assert!(speeds.is_sorted_by(|a, b| a >= b), "{speeds:?}");
    let baselines: Vec<&str> = outcome.baselines.iter().map(|m| m.name.as_str()).collect();
    assert!(baselines[0].starts_with("exit ") && baselines[1] == "every second layer", "{baselines:?}");
    let half = outcome.baselines[1].proof.cost;
    assert!((0.2..0.95).contains(&half), "half of the layers, timed: {half}");
    for baseline in &outcome.baselines {
        assert!(measured(baseline) <= speeds[0], "{}", baseline.name);
    }
    // The loop itself was run with each of them.
    for member in outcome.family.iter().chain(&outcome.baselines) {
        let measured = member.measured.expect("the embedded model is fast enough");
        assert!(measured.speedup > 0.0 && measured.tokens > 100, "{measured:?}");
        let a_round = measured.tokens_per_round;
        assert!((1.0..=1.0 + DEPTH as f64).contains(&a_round), "{measured:?}");
        // 80 positions promise no more than this.
        let promised = member.proof.greedy_tokens[member.proof.greedy(&outcome.costs).draft_len - 1];
        assert!((a_round / promised - 1.0).abs() < 0.35, "{}: {a_round}, promised {promised}", member.name);
    }
    // What the embedded model is known for: without the first MLP it is lost.
    let first_mlp = &outcome.ablations[1].score;
    assert!(outcome.ablations.iter().all(|a| a.score.agreement() >= first_mlp.agreement()));
}

/// Tells the time by what is run, and counts how often it is asked for sublayers, for steps and for whole texts.
#[derive(Default)]
struct CountingClock {
    asked: [usize; 3],
}

impl CountingClock {
    fn step(mask: &RunLayers) -> f64 {
        0.13 + 0.87 / 16.0 * mask.steps().count() as f64
    }
}

impl Stopwatch for CountingClock {
    fn costs(
        &mut self,
        _: &mut Context,
        _: (SeqId, usize),
        most_rows: usize,
        _: &[State],
    ) -> Result<PassCosts> {
        self.asked[0] += 1;
        Ok(PassCosts {
            step_seconds: 1e-3,
            rows: (0..most_rows).map(|n| 1.0 + 0.07 * n as f64).collect(),
            base: 0.1,
            full: [0.9 / 48.0, 1.8 / 48.0].repeat(16),
            otherwise: vec![(State::Coarse, [0.6 / 48.0, 1.2 / 48.0].repeat(16))],
            resumes: true,
        })
    }

    fn steps(&mut self, _: &mut Context, _: (SeqId, usize), masks: &[RunLayers]) -> Result<Vec<f64>> {
        self.asked[1] += 1;
        Ok(masks.iter().map(Self::step).collect())
    }

    fn speeds(
        &mut self,
        _: &mut Context,
        _: &Tokenizer,
        _: &[Vec<u32>],
        members: &[&Member],
        costs: &PassCosts,
    ) -> Result<Vec<Measured>> {
        self.asked[2] += 1;
        let measured = members.iter().map(|m| {
            let best = m.proof.greedy(costs);
            Measured { speedup: 0.97 * best.speedup, draft_len: best.draft_len, ..Measured::default() }
        });
        Ok(measured.collect())
    }
}

/// Ended after any line of its journal or in the middle of one, a search comes to the same result, and asks the clock
/// only for what it was not told before.
#[test]
fn a_search_that_is_ended_anywhere_comes_to_the_same_result() {
    let model = load(common::five_layers().as_ref());
    let calibration = text_of(&model);
    let mut context = judging_context(&model);
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let settings =
        SearchSettings { width: 2, trials: 10, draft_max: DEPTH, family: 4, ..SearchSettings::default() };
    let name = String::from;
    let id = RunId {
        model: name("m"),
        text: name("t"),
        positions: 160,
        device: name("d"),
        cache_types: name("c"),
    };
    let mut run = || -> (SearchOutcome, [usize; 3]) {
        let judge = ModelJudge::new(&mut context, calibration.clone()).unwrap();
        let (mut journal, entries) = Journal::open(&path, &id).unwrap();
        let mut clock = CountingClock::default();
        let on = |_| ControlFlow::Continue(());
        let outcome = search(judge, &tokenizer, &settings, &mut clock, &mut journal, entries, on).unwrap();
        (outcome, clock.asked)
    };
    let (whole, asked) = run();
    assert_eq!(asked, [1, 1, 1]);
    // Each is judged at the cost of its own mask.
    let members: Vec<&Member> = whole.family.iter().chain(&whole.baselines).collect();
    let told = |member: &Member| CountingClock::step(&member.candidate.mask());
    assert!(members.iter().all(|member| member.proof.cost == told(member)), "{members:?}");
    assert!(members.iter().any(|member| told(member) != told(members[0])), "{members:?}");
    let journal = fs::read_to_string(&path).unwrap();
    let ends: Vec<usize> = journal.match_indices('\n').map(|(at, _)| at + 1).collect();
    let line_of = |kind: &str| {
        let found = journal.lines().position(|line| line.starts_with(&format!("{{\"{kind}\"")));
        found.unwrap_or_else(|| panic!("no line of {kind}"))
    };
    let lines = [line_of("costs"), line_of("steps"), line_of("measured")];
    let proof = line_of("proof");
    assert!(lines[1] > 50 && proof == lines[1] + 1 && lines[2] == ends.len() - 1, "{lines:?} {proof}");
    let [costs, steps, end] = lines;
    let cuts = [0, costs, steps / 3, steps - 1, steps, proof, proof + 2, end - 1, end, end];
    for (cut, torn) in cuts.into_iter().zip([true, false].into_iter().cycle()) {
        // Whole lines up to this one, or with half of it torn off.
        let from = cut.checked_sub(1).map_or(0, |before| ends[before]);
        let end = if torn { from + (ends[cut] - from) / 2 } else { ends[cut] };
        fs::write(&path, &journal[..end]).unwrap();
        let (resumed, asked) = run();
        assert_eq!(format!("{resumed:?}"), format!("{whole:?}"), "cut in line {cut}, torn: {torn}");
        assert_eq!(fs::read_to_string(&path).unwrap(), journal, "cut in line {cut}, torn: {torn}");
        assert_eq!(asked, lines.map(|line| usize::from(journal[..end].matches('\n').count() <= line)));
    }
}
