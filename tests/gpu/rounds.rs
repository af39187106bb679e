//! What stays on the GPU: the best tokens are found where the logits are, and a greedy round of speculation goes there
//! and back once. Neither changes a token.

use crate::common;
use std::ops::ControlFlow;

use common::{
    bits, coarse, embedded_model,
    gpu::{self, by_planes, first_layers, on},
    tokens, with_logits,
};
use spec_run::{
    Batch, Context, RunLayers, Sampler, Tokenizer,
    batch::ChainBatch,
    context::{GpuWidths, Traffic},
    embedded,
    generate::{Generation, Request, Speculation, Stop, generate, speculate},
    mask::LayerBits,
    placement::{Unit, UnitSet},
    sampler::SamplerConfig,
    scores::{Scores, Top, Want},
    speculation::{Fixed, MaskProposer, Proposer, Report},
    tokenizer::EncodeOptions,
};

fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap()
}

fn prompt() -> Vec<u32> {
    tokenizer().encode("Once upon a time", EncodeOptions { add_special: true, parse_special: false })
}

/// With `logprobs` every row's logits are wanted, without only what the sampler looks at.
fn request(prompt: &[u32], max_tokens: usize, logprobs: usize) -> Request {
    Request { max_tokens: Some(max_tokens), logprobs, ..Request::new(prompt) }
}

fn plain(context: &mut Context, config: &SamplerConfig, request: &Request) -> Generation {
    let mut sampler = Sampler::new(config.clone()).unwrap();
    generate(context, &tokenizer(), &mut sampler, request, |_| Ok(ControlFlow::Continue(()))).unwrap()
}

fn drafted(
    context: &mut Context,
    request: &Request,
    mask: &RunLayers,
    policy: &mut Fixed,
) -> (Generation, Report) {
    let mut sampler = Sampler::new(SamplerConfig::greedy()).unwrap();
    let proposers: &mut [Box<dyn Proposer>] = &mut [Box::new(MaskProposer::new("draft", mask.clone()))];
    let mut speculation = Speculation { proposers, policy };
    let on_token = |_| Ok(ControlFlow::Continue(()));
    speculate(context, &tokenizer(), &mut sampler, request, &mut speculation, on_token).unwrap()
}

fn went(before: Traffic, context: &Context) -> Traffic {
    context.traffic().unwrap().since(before)
}

/// Q·k·v rotated and stored, attend, join, output and the norm behind it, gate·up, down and the next layer's norm; one less
/// while a chunk holds the context. Preparing activations is part of what makes them. Where the next layer is left out, the norm
/// of the one that is run instead is a dispatch. So are all of them on a processor that plays a GPU, and no bit depends on it.
#[test]
fn a_layer_of_one_row_takes_six_dispatches_at_most() {
    let Some(device) = gpu::device("a_layer_of_one_row_takes_six_dispatches_at_most") else { return };
    let model = embedded_model();
    let text = tokens(260, 4, model.n_vocab());
    let n_layer = 4;
    let all = first_layers(n_layer);
    let prompt =
        |text: &[u32], at, layers: &RunLayers| Batch::prompt(text, at, 0).with_layers(layers.clone());
    for variant in ["plain", "dot4"] {
        let [mut context, mut apart] = [4, 0].map(|norms_in_products| {
            on(&device, &model, |c| {
                c.gpu_variant = variant.parse().unwrap();
                c.gpu_widths =
                    Some(GpuWidths { norms_in_products: Some(norms_in_products), ..GpuWidths::PROCESSOR });
            })
        });
        for (len, a_layer) in [(9, 5), (259, 6)] {
            for context in [&mut context, &mut apart] {
                context.remove(0);
                context.decode(&prompt(&text[..len], 0, &all)).unwrap();
            }
            // Beside the layers: embedding, the first norm and the last one, the head. Without an MLP there are two
            // dispatches less, and a norm of its own behind it.
            for (layers, beside) in [(all.clone(), 4), (all.clone().skip_mlp(1), 3)] {
                let row = prompt(&text[len..=len], len as u32, &layers);
                let before = context.traffic().unwrap();
                context.decode(&row).unwrap();
                let Traffic { dispatches, submissions, .. } = went(before, &context);
                let expected = (beside + a_layer * n_layer as u64, 1);
                assert_eq!(
                    (dispatches, submissions),
                    expected,
                    "{variant}, {len} tokens before, {beside} beside"
                );
                apart.decode(&row).unwrap();
                assert!(bits(context.logits(0)) == bits(apart.logits(0)), "{variant}, {len} tokens before");
                context.truncate(0, len).unwrap();
                apart.truncate(0, len).unwrap();
            }
        }
    }
}

/// A pass like the one before it is recorded while that one runs. Here passes of other kinds come between, and the text
/// grows from two chunks into a third, which takes more workgroups.
#[test]
fn passes_that_were_recorded_ahead_are_those_of_any_other_batch() {
    const LEN: usize = 2 * 256 - 6;
    let test = "passes_that_were_recorded_ahead_are_those_of_any_other_batch";
    let Some(device) = gpu::device(test) else { return };
    let model = embedded_model();
    let text = tokens(LEN + 16, 6, model.n_vocab());
    let mut context = on(&device, &model, |c| c.n_ctx = 1024);
    let layers = first_layers(4);
    let prompt = |text: &[u32], at| Batch::prompt(text, at as u32, 0).with_layers(layers.clone());
    context.decode(&prompt(&text[..LEN], 0)).unwrap();
    let mut all = prompt(&text[LEN..], LEN);
    all.rows.iter_mut().for_each(|row| row.logits = true);
    context.decode(&all).unwrap();
    let expected: Vec<Vec<u32>> = (0..16).map(|i| bits(context.logits(i))).collect();
    let best: Vec<Top> = (0..16).map(|i| Top::of(context.logits(i), 3)).collect();
    let skips = layers.clone().skip_attn(2).skip_mlp(2);
    // Rows at once, and whether a draft of other layers comes before them, or only the best are wanted.
    let kinds = [(1, false, false), (1, false, true), (2, false, false), (1, true, false), (2, true, true)];
    for (at_once, drafts, only_best) in kinds {
        context.truncate(0, LEN).unwrap();
        for at in (0..16).step_by(at_once) {
            let begin = LEN + at;
            if drafts && at % 6 == 0 {
                context.fork(0, 1);
                let mut draft = Batch::prompt(&text[begin..=begin], begin as u32, 1);
                draft.run_layers = Some(skips.clone());
                context.decode(&draft).unwrap();
                context.remove(1);
            }
            let mut batch = prompt(&text[begin..begin + at_once], begin);
            batch.rows.iter_mut().for_each(|row| row.logits = true);
            context.decode_for(&batch, if only_best { Want::Top(3) } else { Want::Logits }).unwrap();
            for i in 0..at_once {
                let what = format!("{at_once} at once, {drafts}, {only_best}: row {}", at + i);
                match context.scores(i) {
                    Scores::All(logits) => assert!(bits(logits) == expected[at + i], "{what}"),
                    Scores::Top(found) => assert_eq!(found.best, best[at + i].best, "{what}"),
                }
            }
        }
    }
}

#[test]
fn the_best_tokens_are_those_of_the_logits() {
    let Some(device) = gpu::device("the_best_tokens_are_those_of_the_logits") else { return };
    let model = embedded_model();
    let n_layer = model.n_layer();
    // More rows than are made at once, of which some are not asked for.
    let text = tokens(50, 2, model.n_vocab());
    let mut batch = Batch::prompt(&text, 0, 0);
    batch.rows.iter_mut().enumerate().for_each(|(i, row)| row.logits = i % 7 != 3);
    let rows = batch.rows.iter().filter(|r| r.logits).count();
    let head_alone = UnitSet::of(n_layer, |unit| unit == Unit::Head);
    for held in [None, Some(head_alone)] {
        let mut context = on(&device, &model, |c| c.placement.on_gpu = held);
        context.decode(&batch).unwrap();
        let logits: Vec<Vec<f32>> = (0..rows).map(|i| context.logits(i).to_vec()).collect();
        for k in [1, 5, 40, 64] {
            context.remove(0);
            context.decode_for(&batch, Want::Top(k)).unwrap();
            for (i, logits) in logits.iter().enumerate() {
                let Scores::Top(found) = context.scores(i) else { panic!("{k} are found on the device") };
                let expected = Top::of(logits, k);
                assert_eq!(found.best, expected.best, "the {k} best of row {i}");
                assert!((found.log_sum - expected.log_sum).abs() < 1e-4, "{found:?}, {}", expected.log_sum);
            }
        }
        // More than the device finds: the logits, of which all is known.
        context.remove(0);
        context.decode_for(&batch, Want::Top(1000)).unwrap();
        assert!(matches!(context.scores(0), Scores::All(all) if bits(all) == bits(&logits[0])));
    }
}

#[test]
fn a_text_does_not_depend_on_what_is_read_back() {
    let Some(device) = gpu::device("a_text_does_not_depend_on_what_is_read_back") else { return };
    let model = embedded_model();
    let mut context = on(&device, &model, |_| {});
    let prompt = prompt();
    let sampled = SamplerConfig { seed: Some(7), ..SamplerConfig::default() };
    for config in [SamplerConfig::greedy(), SamplerConfig { top_k: 3, ..sampled.clone() }, sampled] {
        let all = plain(&mut context, &config, &request(&prompt, 20, 1));
        let before = context.traffic().unwrap();
        let best = plain(&mut context, &config, &request(&prompt, 20, 0));
        assert_eq!(best.tokens, all.tokens, "{config:?}");
        let Traffic { submissions, readbacks, .. } = went(before, &context);
        assert_eq!((submissions, readbacks), (20, 20), "one each way for every token");
    }
}

/// Drafts by the high planes, of which the low ones lie in RAM: the text is plain decoding's with the same places.
#[test]
fn drafts_by_high_planes_alone_give_plain_text() {
    let Some(device) = gpu::device("drafts_by_high_planes_alone_give_plain_text") else { return };
    let model = embedded_model();
    let mut context = on(&device, &model, |c| {
        c.placement.on_gpu = Some(UnitSet::all(16));
        c.placement.planes_apart = by_planes(UnitSet::all(16));
    });
    let prompt = prompt();
    let request = request(&prompt, 24, 0);
    let text = plain(&mut context, &SamplerConfig::greedy(), &request);
    for max in [1, 4, 12] {
        let (drafted, report) =
            drafted(&mut context, &request, &coarse(16), &mut Fixed { max, ..Fixed::default() });
        assert_eq!(drafted.tokens, text.tokens, "{max} at a time");
        assert!(report.drafting.accepted > 0, "{:?}", report.drafting);
        println!("{max} at a time: {:?}", report.drafting.acceptance());
    }
}

#[test]
fn a_greedy_round_is_one_submission_and_one_readback() {
    let Some(device) = gpu::device("a_greedy_round_is_one_submission_and_one_readback") else { return };
    let model = embedded_model();
    let mut context = on(&device, &model, |c| c.extra_slots = 4);
    let prompt = prompt();
    let request = request(&prompt, 20, 0);
    let text = plain(&mut context, &SamplerConfig::greedy(), &request);
    assert_eq!(text.tokens.len(), 20);
    let all = RunLayers::all(16);
    let repeated: Vec<_> = (0..9).chain(5..16).map(|l| (l, LayerBits::FULL)).collect();
    let masks = [
        // Nearly always right, and mostly wrong.
        ("coarse", coarse(16)),
        ("two layers", first_layers(2)),
        ("mixed", all.clone().skip_attn(3).skip_mlp(4).coarse_mlp(9).skip_attn(15)),
        ("repeated", RunLayers::from_steps(16, repeated).unwrap()),
    ];
    for (name, mask) in masks {
        for max in [1, 2, 5, 16] {
            let before = context.traffic().unwrap();
            let (drafted, report) =
                drafted(&mut context, &request, &mask, &mut Fixed { max, ..Fixed::default() });
            assert_eq!(drafted.tokens, text.tokens, "{name}, {max} at a time");
            assert_eq!(drafted.steps, text.steps, "{name}, {max} at a time");
            let Traffic { submissions, readbacks, .. } = went(before, &context);
            let rounds = report.drafting.rounds;
            // The prompt, and where one token is left to be made, a plain step.
            let passes = (1 + rounds + report.plain_steps) as u64;
            assert_eq!((submissions, readbacks), (passes, passes), "{name}, {max} at a time");
            assert!(rounds > 0 && report.plain_steps <= 1);
            assert!(report.draft_seconds > 0.0 && report.verify_seconds > 0.0, "{report:?}");
            println!("{name}, {max} at a time: {rounds} rounds, {:?}", report.drafting.acceptance());
        }
    }
}

/// A round by the device drafts what one token after the other would, with the same confidence.
#[test]
fn a_chain_says_what_its_passes_say_alone() {
    let Some(device) = gpu::device("a_chain_says_what_its_passes_say_alone") else { return };
    let model = embedded_model();
    let mut context = on(&device, &model, |_| {});
    let mask = first_layers(6).skip_attn(3).skip_mlp(4);
    // Beyond a chunk of attention, so that contexts are split.
    let text = tokens(270, 4, model.n_vocab());
    context.decode(&Batch::prompt(&text[..269], 0, 0).with_layers(first_layers(6))).unwrap();
    let step = |token, pos| Batch::prompt(&[token], pos, 1).with_layers(mask.clone());
    let take = |context: &Context, i: usize| match context.scores(i) {
        Scores::Top(top) => top.clone(),
        Scores::All(_) => panic!("asked for the best"),
    };
    let mut alone = Vec::new();
    context.fork(0, 1);
    let mut drafted = vec![text[269]];
    for pos in 269..273 {
        context.decode_for(&step(drafted[drafted.len() - 1], pos), Want::Top(5)).unwrap();
        alone.push(take(&context, 0));
        drafted.push(context.scores(0).greedy());
    }
    context.remove(1);
    let mut rows = with_logits(&drafted, 269).with_layers(first_layers(6));
    context.decode_for(&rows, Want::Top(5)).unwrap();
    alone.extend((0..5).map(|i| take(&context, i)));
    context.truncate(0, 269).unwrap();

    context.fork(0, 1);
    let mut links: Vec<ChainBatch> = (0..4)
        .map(|i| ChainBatch {
            batch: step(text[269], 269 + i as u32),
            picked: if i == 0 { vec![] } else { vec![(0, i - 1)] },
        })
        .collect();
    rows.rows[1..].iter_mut().for_each(|row| row.token = 0);
    links.push(ChainBatch { batch: rows, picked: vec![(1, 0), (2, 1), (3, 2), (4, 3)] });
    let before = context.traffic().unwrap();
    let chained = context.decode_chain(&links, 5).unwrap().expect("everything is on the device");
    let Traffic { submissions, readbacks, .. } = went(before, &context);
    assert_eq!((submissions, readbacks), (1, 1));
    assert!(chained.last > 0.0 && chained.last < 1.0, "{chained:?}");
    let together: Vec<Top> = (0..9).map(|i| take(&context, i)).collect();
    assert_eq!(together, alone);
    assert_eq!((context.kv().len(0), context.kv().len(1)), (274, 273));
}

/// Of a pass with several outputs a later one may wait for any.
#[test]
fn a_chain_waits_for_the_token_that_it_names() {
    let Some(device) = gpu::device("a_chain_waits_for_the_token_that_it_names") else { return };
    let model = embedded_model();
    let mut context = on(&device, &model, |_| {});
    let text = tokens(4, 9, model.n_vocab());
    let first = with_logits(&text, 0);
    context.decode_for(&first, Want::Top(1)).unwrap();
    let picks: Vec<u32> = (0..4).map(|i| context.scores(i).greedy()).collect();
    let (named, others) = (picks[2], [picks[0], picks[1], picks[3]]);
    assert!(!others.contains(&named), "another text: {picks:?}");
    context.decode_for(&Batch::prompt(&[named], 4, 0), Want::Top(1)).unwrap();
    let Scores::Top(alone) = context.scores(0) else { panic!("asked for the best") };
    let alone = alone.clone();
    context.remove(0);
    let then = Batch::prompt(&[0], 4, 0);
    let links =
        [ChainBatch { batch: first, picked: vec![] }, ChainBatch { batch: then, picked: vec![(0, 2)] }];
    assert!(context.decode_chain(&links, 1).unwrap().is_some());
    let Scores::Top(together) = context.scores(4) else { panic!("asked for the best") };
    assert_eq!(*together, alone);
}

/// Where a round cannot be run in one go it is run step by step: in a cache with no room for both, and in parts of the
/// model on the CPU. A chain that makes no sense is refused, and none of it changes the cache.
#[test]
fn what_cannot_be_chained_goes_step_by_step() {
    let Some(device) = gpu::device("what_cannot_be_chained_goes_step_by_step") else { return };
    let model = embedded_model();
    let mask = RunLayers::all(16).skip_attn(3).skip_mlp(4);
    let prompt = prompt();
    let request = request(&prompt, 60, 0);
    let mut small = on(&device, &model, |c| c.n_ctx = 32);
    let text = plain(&mut small, &SamplerConfig::greedy(), &request);
    assert_eq!(text.stop, Stop::ContextFull);
    let (short, _) = drafted(&mut small, &request, &mask, &mut Fixed::default());
    assert_eq!((short.tokens, short.stop), (text.tokens, text.stop));

    let mut divided = on(&device, &model, |c| c.placement.gpu_layers = Some(8));
    let text = plain(&mut divided, &SamplerConfig::greedy(), &request);
    let (parted, _) = drafted(&mut divided, &request, &mask, &mut Fixed::default());
    assert_eq!(parted.tokens, text.tokens);

    let mut links = vec![
        ChainBatch { batch: Batch::prompt(&[1], 0, 5), picked: vec![] },
        ChainBatch { batch: Batch::prompt(&[1], 1, 5), picked: vec![(0, 0)] },
    ];
    assert_eq!(divided.decode_chain(&links, 5).unwrap(), None);
    assert!(divided.kv().is_empty(5));
    small.remove(0);
    assert_eq!(small.decode_chain(&links, 100).unwrap(), None, "more than the device finds");
    links[1].picked = vec![(0, 1)];
    let error = small.decode_chain(&links, 5).unwrap_err().to_string();
    assert!(error.contains("waits for output 1"), "{error}");
    assert!(small.kv().is_empty(5));
}
