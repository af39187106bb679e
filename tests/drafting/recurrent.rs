//! Masks are judged on recurrent models as on all others: a draft begins with the full model's keys, values and states.

use crate::common;
use std::{ops::ControlFlow, sync::Arc};

use common::{context, fixture, load, tokens};
use spec_run::search::judge::Judge;
use spec_run::{
    Batch, Context, Model, RunLayers, Tokenizer,
    eval::{
        perplexity::PerplexitySettings,
        sweep::{self, Step, Sweep, sweep},
    },
    scores::greedy,
    search::{
        Calibration, CalibrationSettings, Candidate, Journal, ModelJudge, SearchSettings, State, Sublayer,
        WallClock, extra_cells, extra_states, search,
    },
};

const AMOUNT: CalibrationSettings = CalibrationSettings { chunk: 96, positions: 160 };
const DEPTH: usize = 3;

/// A gated delta net with attention in between, Mamba layers alone, short convolutions, and Mamba with attention and experts.
fn models(test: &str) -> Vec<(&'static str, Arc<Model>)> {
    let names = ["qwen35", "mamba2", "lfm2", "granitehybrid"];
    let named = |name| Some((name, load(&fixture(test, &format!("archs/{name}.gguf"))?)));
    names.into_iter().filter_map(named).collect()
}

fn masks(model: &Model) -> Vec<Candidate> {
    let n = model.n_layer();
    let full = Candidate::all(n, State::Run);
    let mut masks: Vec<Candidate> = (0..n).map(|layer| full.with(2 * layer, State::Skip)).collect();
    masks.extend([
        full.with(2 * n - 1, State::Skip),
        Candidate::exit(n, n - 1),
        Candidate::every_second(n, 0),
    ]);
    masks
}

/// Token by token through the text, with a draft by hand at each position from `from` on: how many of its tokens are the full
/// model's own.
fn accepted(context: &mut Context, text: &[u32], from: usize, mask: &RunLayers, depth: usize) -> Vec<usize> {
    context.remove_all();
    let mut all = Vec::new();
    for (pos, &token) in text[..text.len() - 1].iter().enumerate() {
        if pos >= from {
            [1, 2].into_iter().for_each(|fork| context.fork(0, fork));
            let (mut drafted, mut right) = (token, token);
            let in_a_row = (0..depth).take_while(|i| {
                let at = (pos + i) as u32;
                context.decode(&Batch::prompt(&[drafted], at, 1).with_layers(mask.clone())).unwrap();
                drafted = greedy(context.logits(0));
                context.decode(&Batch::prompt(&[right], at, 2)).unwrap();
                right = greedy(context.logits(0));
                drafted == right
            });
            all.push(in_a_row.count());
        }
        context.decode(&Batch::prompt(&[token], pos as u32, 0)).unwrap();
    }
    all
}

#[test]
fn a_judge_of_recurrent_models_says_what_drafts_by_hand_do() {
    const TEST: &str = "a_judge_of_recurrent_models_says_what_drafts_by_hand_do";
    for (name, model) in models(TEST) {
        let text = tokens(4 * AMOUNT.chunk, 3, model.n_vocab());
        let calibration = Calibration::from_text(&text, None, &AMOUNT).unwrap();
        // Not a state more than is said to be enough.
        let mut judging = context(&model, |config| {
            config.n_ctx = (AMOUNT.cells() + extra_cells(DEPTH)) as u32;
            config.extra_states = extra_states(&AMOUNT, false);
        });
        let mut by_hand = context(&model, |_| {});
        let mut judge = ModelJudge::new(&mut judging, calibration.clone()).unwrap();
        let mut lengths = [0; DEPTH + 1];
        for candidate in masks(&model) {
            let hand: Vec<Vec<usize>> = calibration
                .texts
                .iter()
                .map(|text| accepted(&mut by_hand, text, 0, &candidate.mask(), DEPTH))
                .collect();
            let places = |spans: &[spec_run::search::Span]| -> Vec<usize> {
                spans.iter().flat_map(|s| &hand[s.text][s.from..s.to]).copied().collect()
            };
            // First what is judged in any order, then whole drafts, and the first again: nothing is left behind by either.
            let search = places(&calibration.search);
            let agreed = search.iter().filter(|&&accepted| accepted > 0).count();
            let held_out = places(&calibration.held_out);
            for _ in 0..2 {
                let score = judge.score(&candidate, 0..search.len()).unwrap();
                assert_eq!(score.agreement(), agreed as f64 / search.len() as f64, "{name}, {candidate}");
                let drafts = judge.drafts(&candidate, DEPTH).unwrap();
                let in_a_row = |row: &Vec<f32>| row.iter().take_while(|&&chance| chance == 1.0).count();
                let judged: Vec<usize> = drafts.greedy.iter().flatten().map(in_a_row).collect();
                assert_eq!(judged, held_out, "{name}, {candidate}");
            }
            held_out.iter().for_each(|&accepted| lengths[accepted] += 1);
        }
        assert!(lengths[0] > 5 && lengths[1] > 5 && lengths[DEPTH] > 20, "{name}: {lengths:?}");
    }
}

#[test]
fn a_sweep_of_recurrent_models_says_what_drafts_by_hand_do() {
    const TEST: &str = "a_sweep_of_recurrent_models_says_what_drafts_by_hand_do";
    for (name, model) in models(TEST) {
        let text = tokens(192, 4, model.n_vocab());
        let masks: Vec<RunLayers> = masks(&model).iter().map(Candidate::mask).collect();
        // Longer than what marks are set for at a time, and so short that a chunk scores three positions.
        for (n_ctx, chunks) in [(96, 2), (8, 24)] {
            let settings = PerplexitySettings { n_ctx, bos: None, draft: None, max_chunks: Some(chunks) };
            let mut swept = context(&model, |config| {
                config.n_ctx = sweep::cells(n_ctx) as u32;
                config.extra_states = sweep::states(n_ctx);
            });
            let mut by_hand = context(&model, |_| {});
            let mut by_chunk: Vec<Sweep> = Vec::new();
            sweep(&mut swept, &text, &settings, &masks, Sweep::default(), |step| {
                if let Step::Chunk(sums) = step {
                    by_chunk.push(sums.clone());
                }
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
            let mut seen = [0; 2];
            for (m, mask) in masks.iter().enumerate() {
                let mut right = 0;
                for (i, sums) in by_chunk.iter().enumerate() {
                    let chunk = &text[i * n_ctx..][..n_ctx];
                    let accepted = accepted(&mut by_hand, chunk, n_ctx / 2, mask, 1);
                    right += accepted.iter().sum::<usize>();
                    let share = right as f64 / sums.tokens as f64;
                    assert_eq!(sums.masks[m].acceptance(sums.tokens), share, "{name}, {mask}, chunk {i}");
                    accepted.into_iter().for_each(|accepted| seen[accepted] += 1);
                }
            }
            assert_eq!(by_chunk.len(), chunks);
            assert!(seen.iter().all(|&times| times > 5), "{name}: {seen:?}");
        }
    }
}

/// Layers of Mamba 2 have no MLP, so none can be left out; and what is not there costs nothing.
#[test]
fn a_search_changes_only_what_layers_have() {
    let Some(path) = fixture("a_search_changes_only_what_layers_have", "archs/mamba2.gguf") else { return };
    let model = load(&path);
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let text = tokens(4 * AMOUNT.chunk, 5, model.n_vocab());
    let calibration = Calibration::from_text(&text, None, &AMOUNT).unwrap();
    let mut context = context(&model, |config| {
        config.n_ctx = (AMOUNT.cells() + extra_cells(DEPTH)) as u32;
        config.extra_states = extra_states(&AMOUNT, false);
    });
    let judge = ModelJudge::new(&mut context, calibration).unwrap();
    let settings =
        SearchSettings { width: 2, trials: 5, draft_max: DEPTH, family: 4, ..SearchSettings::default() };
    let mut clock = WallClock { most_seconds: Some(2.0) };
    let on = |_| ControlFlow::Continue(());
    let outcome =
        search(judge, &tokenizer, &settings, &mut clock, &mut Journal::none(), Vec::new(), on).unwrap();
    assert_eq!(outcome.ablations.len(), model.n_layer());
    assert!(outcome.ablations.iter().all(|ablation| ablation.part == Sublayer::Attn));
    assert!(outcome.costs.full.iter().all(|cost| cost.is_finite()), "{:?}", outcome.costs);
    assert!(!outcome.family.is_empty());
    for member in &outcome.family {
        let measured = member.measured.expect("it is fast enough");
        assert!(member.proof.cost.is_finite() && measured.speedup > 0.0, "{member:?}");
    }
}
