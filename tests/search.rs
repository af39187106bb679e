//! What the search says of a mask is what a draft under that mask does.

mod common;

use std::{ops::ControlFlow, sync::Arc};

use common::{context, embedded_model};
use spec_run::{
    Batch, Context, Model, RunLayers, Tokenizer, embedded,
    eval::search::{
        Settings,
        calibration::{self, Calibration, Span},
        candidate::{Candidate, State},
        journal::Journal,
        judge::{self, Judge, ModelJudge},
        search,
    },
    sampler::greedy,
};

const AMOUNT: calibration::Settings = calibration::Settings { chunk: 96, positions: 160 };
const DEPTH: usize = 4;

fn text_of(model: &Arc<Model>) -> Calibration {
    let tokenizer = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
    let mut context = context(model, |c| c.n_ctx = 1024);
    Calibration::written_by(&mut context, &tokenizer, &AMOUNT, |_| Ok(())).unwrap()
}

fn judging_context(model: &Arc<Model>) -> Context {
    context(model, |c| c.n_ctx = (AMOUNT.cells() + judge::cells_beside_texts(DEPTH)) as u32)
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
    let tokenizer = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
    let settings = Settings { width: 3, trials: 10, draft_max: DEPTH, family: 4, ..Settings::default() };
    let outcome =
        search(judge, &tokenizer, &settings, &mut Journal::none(), Vec::new(), |_| ControlFlow::Continue(()))
            .unwrap();
    assert_eq!(outcome.ablations.len(), 32);
    assert!(outcome.evaluated > 100);
    assert!((1..=4).contains(&outcome.family.len()));
    assert_eq!(outcome.family[0].name, "best");
    let speeds: Vec<f64> = outcome.family.iter().map(|m| m.proof.greedy(&outcome.costs).speedup).collect();
    assert!(speeds.is_sorted_by(|a, b| a >= b), "{speeds:?}");
    let baselines: Vec<&str> = outcome.baselines.iter().map(|m| m.name.as_str()).collect();
    assert!(baselines[0].starts_with("exit ") && baselines[1] == "every second layer", "{baselines:?}");
    for baseline in &outcome.baselines {
        assert!(baseline.proof.greedy(&outcome.costs).speedup <= speeds[0], "{}", baseline.name);
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
