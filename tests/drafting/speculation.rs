//! Speculation is exact: greedy text, its log-probabilities and the cache afterwards are those of plain decoding,
//! bit for bit, whatever drafts and however badly; so is sampled text.

use std::{ops::ControlFlow, path::Path};

use spec_run::{
    Context, RunLayers, Sampler,
    context::KvType,
    generate::{Speculation, Stop, speculate},
    mask::LayerBits,
    sampler::{Dry, Mirostat, SamplerConfig},
    speculation::{
        DRAFT, Drafted, ExitsProposer, Fixed, MaskProposer, NgramProposer, Offer, Policy, Proposer, Round,
        RoundChoice, SourceInfo, SourceKind, Speedup, Supply, TARGET,
    },
};

use crate::{
    common::{self, coarse, context, embedded_model, fixture, load},
    running::{drafted, encode, fixed, greedy, plain, request, same, small, tokenizer},
};

fn nothing_but_the_head(n_layer: usize) -> RunLayers {
    RunLayers::mask(vec![LayerBits::NONE; n_layer])
}

/// Good, bad and absurd ones.
fn masks(n_layer: usize) -> Vec<RunLayers> {
    let last = n_layer - 1;
    let all = || RunLayers::all(n_layer);
    let steps = |layers: &[usize]| {
        RunLayers::from_steps(n_layer, layers.iter().map(|&l| (l % n_layer, LayerBits::FULL))).unwrap()
    };
    vec![
        all(),
        (0..n_layer).step_by(2).fold(all(), RunLayers::skip_attn),
        (0..n_layer).fold(all(), RunLayers::skip_mlp),
        (n_layer / 2..n_layer).fold(all(), |m, l| m.skip_attn(l).skip_mlp(l)),
        all().skip_attn(0).skip_mlp(0).skip_attn(last).skip_mlp(last),
        nothing_but_the_head(n_layer),
        coarse(n_layer),
        steps(&[last, 0, 0, 1, 1, 1, 0, last]),
    ]
}

/// Drafts the same made-up tokens again and again.
struct Liar(Vec<u32>);

impl Proposer for Liar {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: "liar".into(), kind: SourceKind::Other, cost: 0.0, chance: 0.6, prefix: None }
    }

    fn supply(&mut self, _: &[u32]) -> Supply {
        Supply::Any
    }

    fn tokens(&mut self, _: &[u32]) -> Vec<u32> {
        self.0.clone()
    }
}

#[test]
fn greedy_text_is_plain_decodings_whatever_the_mask() {
    let test = "greedy_text_is_plain_decodings_whatever_the_mask";
    let mut models = vec![embedded_model()];
    for name in ["f16", "q2_k", "q3_k", "q4_0", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"] {
        models.extend(fixture(test, &format!("models/stories13m-{name}.gguf")).map(|path| load(&path)));
    }
    models.extend(fixture(test, "models/stories260K.gguf").map(|path| load(&path)));
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny");
    for file in std::fs::read_dir(tiny).unwrap().map(|entry| entry.unwrap().path()) {
        models.extend((file.extension().is_some_and(|e| e == "gguf")).then(|| load(&file)));
    }
    assert!(models.len() >= 7);
    let config = greedy();
    for (i, model) in models.into_iter().enumerate() {
        let mut context = small(&model, 96);
        let prompt = common::tokens(9, i as u64, model.n_vocab());
        let mut request = request(&prompt, 40);
        request.ignore_eos = true;
        let expected = plain(&mut context, &config, &request, usize::MAX);
        for (j, mask) in masks(model.n_layer()).into_iter().enumerate() {
            let max = [1, 2, 3, 4, 5, 8, 13, 16][(i + j) % 8];
            let proposer = Box::new(MaskProposer::new("test", mask.clone()));
            let (found, report) = drafted(&mut context, &config, &request, usize::MAX, proposer, fixed(max));
            same(&found, &expected, &format!("{}, {mask}, drafts of {max}", model.name));
            assert!(report.drafting.rounds > 0);
            // Verification went on from the draft's layers wherever there were any to go on from.
            let resumed = if mask.full_prefix() > 0 { report.drafting.rounds } else { 0 };
            assert_eq!(report.drafting.resumed, resumed, "{mask}");
            if mask.is_full() {
                assert_eq!(report.drafting.acceptance(), Some(1.0), "the model agrees with itself");
            }
        }
    }
}

/// Drafts write cells of their own and read the text's, in whatever form these are.
#[test]
fn drafts_change_nothing_in_any_type_of_keys_and_values() {
    let model = embedded_model();
    let prompt = encode("Once upon a time");
    let config = greedy();
    for (keys, values) in KvType::ALL.into_iter().zip(KvType::ALL.into_iter().rev()) {
        let mut context = context(&model, |c| {
            (c.n_ctx, c.threads, c.key_type, c.value_type) = (96, 1, keys, values);
        });
        let request = request(&prompt, 40);
        let expected = plain(&mut context, &config, &request, usize::MAX);
        let mask = RunLayers::all(model.n_layer()).skip_attn(5).skip_mlp(9);
        let proposer = Box::new(MaskProposer::new("test", mask));
        let (found, report) = drafted(&mut context, &config, &request, usize::MAX, proposer, fixed(4));
        same(&found, &expected, &format!("{keys} {values}"));
        assert!(report.drafting.rounds > 0);
    }
}

#[test]
fn every_draft_length_gives_the_same_text() {
    let model = embedded_model();
    let mut context = small(&model, 512);
    let config = greedy();
    for prompt in ["Once upon a time", "x"] {
        let prompt = encode(prompt);
        let request = request(&prompt, 70);
        let expected = plain(&mut context, &config, &request, usize::MAX);
        for max in 0..=16 {
            let exit = Box::new(MaskProposer::exit(16, 4));
            let (found, _) = drafted(&mut context, &config, &request, usize::MAX, exit, fixed(max));
            same(&found, &expected, &format!("exit 4, {max}"));
            let ngram = Box::new(NgramProposer::new(1, 16));
            let (found, _) = drafted(&mut context, &config, &request, usize::MAX, ngram, fixed(max));
            same(&found, &expected, &format!("ngram, {max}"));
        }
        let unsure = Fixed { max: 12, min: 2, p_min: 0.6 };
        let exit = Box::new(MaskProposer::exit(16, 6));
        let (found, report) = drafted(&mut context, &config, &request, usize::MAX, exit, unsure);
        same(&found, &expected, "with doubts");
        assert!(report.by_position.len() > 2 && report.by_position[0].0 > report.by_position[2].0);
    }
}

/// As [`greedy_text_is_plain_decodings_whatever_the_mask`], but each way of verifying against the other: logits,
/// acceptance and cache are the same whether the first layers run once or twice.
#[test]
fn verification_from_the_drafts_rows_changes_nothing() {
    let model = embedded_model();
    let config = greedy();
    let prompt = encode("Once upon a time");
    // Room for all, and so little that drafts are cut short.
    for n_ctx in [512, 40] {
        let mut context = small(&model, n_ctx);
        let mut request = request(&prompt, 60);
        request.shift_keep = (n_ctx < 64).then_some(2);
        let expected = plain(&mut context, &config, &request, usize::MAX);
        for layers in 1..16 {
            let holes = (layers..15).step_by(2).fold(RunLayers::all(16), |m, l| m.skip_attn(l).skip_mlp(l));
            let make = |exit: bool| match exit {
                true => MaskProposer::exit(16, layers),
                false => MaskProposer::new("holes", holes.clone()),
            };
            for exit in [true, false] {
                let max = 1 + (3 * layers + usize::from(exit)) % 9;
                let mut run = |proposer: MaskProposer| {
                    let proposer = Box::new(proposer);
                    drafted(&mut context, &config, &request, usize::MAX, proposer, fixed(max))
                };
                let (twice, whole) = run(make(exit).keeping_nothing());
                let (once, resumed) = run(make(exit));
                let when = format!("context {n_ctx}, layers {layers}, exit {exit}, drafts of {max}");
                same(&twice, &expected, &when);
                same(&once, &expected, &when);
                assert_eq!((whole.drafting.resumed, whole.by_position), (0, resumed.by_position), "{when}");
                assert_eq!(resumed.drafting.resumed, resumed.drafting.rounds, "{when}");
            }
        }
    }
}

/// Each token of a draft with as many layers as it takes: rows rest at an exit and go on to the next.
#[test]
fn exits_that_are_chosen_token_by_token_change_nothing() {
    let test = "exits_that_are_chosen_token_by_token_change_nothing";
    let mut models = vec![embedded_model()];
    for name in ["q4_0", "q6_k"] {
        models.extend(fixture(test, &format!("models/stories13m-{name}.gguf")).map(|path| load(&path)));
    }
    let seeded = SamplerConfig { seed: Some(5), ..SamplerConfig::default() };
    for model in models {
        let mut context = small(&model, 512);
        let prompt = encode("Once upon a time");
        for config in [greedy(), seeded.clone()] {
            let request = request(&prompt, 60);
            let expected = plain(&mut context, &config, &request, usize::MAX);
            let mut run = |proposer: Box<dyn Proposer>, max: usize| {
                let (found, report) =
                    drafted(&mut context, &config, &request, usize::MAX, proposer, fixed(max));
                same(&found, &expected, &format!("{}, {}, {max}", model.name, report.sources[0].0.name));
                report
            };
            for (exits, max) in [(vec![3, 8], 1), (vec![6, 2, 10, 15], 4), (vec![1, 2], 7), (vec![5], 3)] {
                let report = run(Box::new(ExitsProposer::new(16, exits.clone())), max);
                assert_eq!(report.drafting.resumed, report.drafting.rounds);
                let whole = run(Box::new(ExitsProposer::new(16, exits).keeping_nothing()), max);
                assert_eq!((whole.drafting.resumed, whole.by_position), (0, report.by_position));
            }
            // Doubtful tokens get more layers, so more of them stand than with the first exit alone.
            let [few, some] = [vec![3], vec![3, 10]]
                .map(|exits| run(Box::new(ExitsProposer::new(16, exits)), 3).drafting.acceptance().unwrap());
            assert!(some > few, "{}: {few} with three layers, {some} with ten in doubt", model.name);
        }
    }
}

#[test]
fn settings_of_the_sampler_do_not_show() {
    let model = embedded_model();
    let mut context = small(&model, 512);
    let prompt = encode("Once upon a time");
    let greedy = greedy();
    let seeded = SamplerConfig { seed: Some(11), ..SamplerConfig::default() };
    let flat = SamplerConfig { temp: 1.3, top_k: 0, top_p: 1.0, min_p: 0.0, ..seeded.clone() };
    let configs = [
        SamplerConfig { repeat_penalty: 1.3, ..greedy.clone() },
        SamplerConfig { frequency_penalty: 0.7, presence_penalty: 0.4, repeat_last_n: 12, ..greedy.clone() },
        SamplerConfig { logit_bias: vec![(13, f32::NEG_INFINITY), (300, 4.0)], ..greedy.clone() },
        SamplerConfig { typical_p: 0.5, ..greedy },
        SamplerConfig { typical_p: 0.7, repeat_penalty: 1.2, ..seeded.clone() },
        SamplerConfig { presence_penalty: 1.0, ..flat.clone() },
        SamplerConfig { xtc_probability: 0.5, xtc_threshold: 0.05, ..seeded.clone() },
        SamplerConfig { dry: Dry { multiplier: 0.8, ..Dry::default() }, top_n_sigma: 1.5, ..seeded.clone() },
        SamplerConfig { dynatemp_range: 0.5, xtc_probability: 0.9, ..flat.clone() },
        SamplerConfig { mirostat: Some(Mirostat::One), ..seeded.clone() },
        SamplerConfig { mirostat: Some(Mirostat::Two), mirostat_tau: 3.0, ..seeded.clone() },
        seeded,
        flat,
    ];
    for config in configs {
        let request = request(&prompt, 80);
        let expected = plain(&mut context, &config, &request, usize::MAX);
        for (layers, max) in [(3, 1), (4, 5), (10, 16)] {
            let exit = Box::new(MaskProposer::exit(16, layers));
            let (found, _) = drafted(&mut context, &config, &request, usize::MAX, exit, fixed(max));
            same(&found, &expected, &format!("{config:?}, exit {layers}, {max}"));
        }
        let ngram = Box::new(NgramProposer::new(1, 6));
        let (found, _) = drafted(&mut context, &config, &request, usize::MAX, ngram, fixed(6));
        same(&found, &expected, &format!("{config:?}, ngram"));
    }
}

#[test]
fn a_run_may_end_anywhere_in_a_draft() {
    let model = embedded_model();
    let mut context = small(&model, 512);
    let prompt = encode("Once upon a time");
    let config = greedy();
    let exit = || Box::new(MaskProposer::exit(16, 8));
    for n in 0..24 {
        let limited = request(&prompt, n);
        let expected = plain(&mut context, &config, &limited, usize::MAX);
        let (found, _) = drafted(&mut context, &config, &limited, usize::MAX, exit(), fixed(7));
        same(&found, &expected, &format!("-n {n}"));
        assert_eq!(found.tokens.len(), n);
        if n > 0 {
            let interrupted = request(&prompt, 60);
            let expected = plain(&mut context, &config, &interrupted, n);
            assert_eq!(expected.stop, Stop::Interrupted);
            let (found, _) = drafted(&mut context, &config, &interrupted, n, exit(), fixed(7));
            same(&found, &expected, &format!("interrupted after {n}"));
        }
    }
}

/// The end-of-text token at each place of a draft, of honest ones and of one that claims an end all the time.
#[test]
fn an_end_of_text_inside_a_draft_ends_the_text() {
    let model = embedded_model();
    let mut context = small(&model, 512);
    let (tokenizer, config) = (tokenizer(), greedy());
    let eog = (0..2048).find(|&id| tokenizer.is_eog(id)).expect("stories have an end");
    let start = encode("They all went home and were happy. The");
    let whole = plain(&mut context, &config, &request(&start, 400), usize::MAX);
    assert_eq!(whole.stop, Stop::EndOfText);
    let story: Vec<u32> = start.into_iter().chain(whole.tokens).collect();
    // A prompt that leaves each number of tokens to the end.
    for left in 0..=10 {
        let prompt = &story[..story.len() - left];
        for ignore_eos in [false, true] {
            let mut request = request(prompt, 24);
            request.ignore_eos = ignore_eos;
            let expected = plain(&mut context, &config, &request, usize::MAX);
            assert_eq!(expected.tokens.len(), if ignore_eos { 24 } else { left });
            let full = Box::new(MaskProposer::new("full", RunLayers::all(16)));
            let liar = Box::new(Liar(vec![300, 13, eog, 300]));
            let proposers: [Box<dyn Proposer>; 3] = [full, Box::new(MaskProposer::exit(16, 6)), liar];
            for proposer in proposers {
                let (found, _) = drafted(&mut context, &config, &request, usize::MAX, proposer, fixed(7));
                same(&found, &expected, &format!("{left} tokens before the end, ignore_eos {ignore_eos}"));
            }
        }
    }
}

#[test]
fn a_full_context_shortens_drafts_then_ends_or_shifts() {
    let model = embedded_model();
    let prompt = encode("Once upon a time");
    let config = greedy();
    for n_ctx in 12..=24 {
        let mut context = small(&model, n_ctx);
        for shift_keep in [None, Some(0), Some(3)] {
            let mut request = request(&prompt, 80);
            (request.shift_keep, request.ignore_eos) = (shift_keep, true);
            let expected = plain(&mut context, &config, &request, usize::MAX);
            let full = shift_keep.is_none();
            assert_eq!(expected.stop, if full { Stop::ContextFull } else { Stop::MaxTokens });
            for max in [1, 5, 16, 64] {
                let exit = Box::new(MaskProposer::exit(16, 8));
                let (found, report) = drafted(&mut context, &config, &request, usize::MAX, exit, fixed(max));
                same(&found, &expected, &format!("context {n_ctx}, shift {shift_keep:?}, {max}"));
                assert!(max < 16 || report.shortened > 0, "context {n_ctx}, {max}: {report}");
            }
        }
    }
}

#[test]
fn lies_cost_time_and_nothing_else() {
    let model = embedded_model();
    let mut context = small(&model, 512);
    let prompt = encode("Once upon a time");
    for config in [greedy(), SamplerConfig { seed: Some(3), ..SamplerConfig::default() }] {
        let request = request(&prompt, 50);
        let expected = plain(&mut context, &config, &request, usize::MAX);
        let liar = Box::new(Liar(vec![5, 900, 17, 2000, 1]));
        let (found, report) = drafted(&mut context, &config, &request, usize::MAX, liar, fixed(3));
        same(&found, &expected, "lies");
        assert!(report.drafting.drafted <= 3 * report.drafting.rounds, "no more than it may");
    }
}

#[test]
fn a_failing_draft_leaves_the_cache_clean() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    let prompt = encode("Once upon a time");
    // More repetitions than the context has slots for.
    let steps = RunLayers::from_steps(16, [0, 0].map(|l| (l, LayerBits::FULL))).unwrap();
    let proposers: &mut [Box<dyn Proposer>] = &mut [Box::new(MaskProposer::new("too many", steps))];
    let mut sampler = Sampler::new(greedy()).unwrap();
    let mut speculation = Speculation { proposers, policy: &mut fixed(4) };
    let on_token = |_| Ok(ControlFlow::Continue(()));
    let error =
        speculate(&mut context, &tokenizer(), &mut sampler, &request(&prompt, 9), &mut speculation, on_token);
    assert!(error.is_err_and(|e| e.to_string().contains("extra_slots")));
    assert_eq!((context.kv().len(DRAFT), context.kv().len(TARGET)), (0, prompt.len()));
}

/// Wants every source tried, and writes down what came of it.
struct Curious<'a>(Fixed, &'a mut Vec<bool>);

impl Policy for Curious<'_> {
    fn start(&mut self, sources: &[SourceInfo]) {
        self.0.start(sources);
    }

    fn choose(&mut self, offers: &[Offer]) -> RoundChoice {
        self.0.choose(offers)
    }

    fn draft_more(&self, source: usize, so_far: &[Drafted], is_paid: bool) -> bool {
        self.0.draft_more(source, so_far, is_paid)
    }

    fn record(&mut self, _: &Round) {}

    fn wants_trial(&self, _: usize, _: usize) -> bool {
        true
    }

    fn tried(&mut self, _: usize, places: &[(Drafted, bool)], _: f64) {
        self.1.extend(places.iter().map(|(_, stood)| stood));
    }

    fn off_reason(&self) -> Option<String> {
        None
    }

    fn speedup(&self) -> Speedup {
        Speedup::default()
    }
}

#[test]
fn a_trial_foresees_acceptance_and_leaves_no_trace() {
    let model = embedded_model();
    let mut context = small(&model, 512);
    let config = greedy();
    let short = encode("Once upon a time");
    let long = plain(&mut context, &config, &request(&short, 60), usize::MAX).history;
    for prompt in [short, long] {
        let request = request(&prompt, 100);
        let expected = plain(&mut context, &config, &request, usize::MAX);
        let mut judge = |mask: RunLayers| {
            let mut seen = Vec::new();
            let (policy, proposer) = (Curious(fixed(1), &mut seen), MaskProposer::new("test", mask));
            let (found, report) =
                drafted(&mut context, &config, &request, usize::MAX, Box::new(proposer), policy);
            same(&found, &expected, "with a trial");
            let share = seen.iter().filter(|&&stood| stood).count() as f64 / seen.len() as f64;
            (seen.len(), share, report.drafting.acceptance().unwrap())
        };
        let (places, agreement, _) = judge(RunLayers::all(16));
        assert!((24..=48).contains(&places) && agreement == 1.0, "{places} places, {agreement}");
        let (_, agreement, acceptance) =
            judge((6..16).fold(RunLayers::all(16), |m, l| m.skip_attn(l).skip_mlp(l)));
        assert!((agreement - acceptance).abs() < 0.3, "{agreement} foreseen, {acceptance} came");
        let (_, agreement, _) = judge(nothing_but_the_head(16));
        assert!(agreement < 0.3, "{agreement}");
    }
    // Where the cache has no room for a trial, there is none.
    let mut tight = small(&model, 30);
    let prompt = encode("Once upon a time");
    let mut seen = Vec::new();
    let policy = Curious(fixed(2), &mut seen);
    let exit = Box::new(MaskProposer::exit(16, 6));
    let (_, report) = drafted(&mut tight, &config, &request(&prompt, 60), usize::MAX, exit, policy);
    assert!(seen.is_empty() && report.drafting.rounds > 0);
}

/// An exit is a shorter model: what it drafts is what the file cut off there would say.
#[test]
fn drafts_read_the_full_models_cells_and_write_their_own() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    let prompt = encode("Once upon a time");
    let config = greedy();
    let request = request(&prompt, 64);
    let exit = Box::new(MaskProposer::exit(16, 6));
    let (_, report) = drafted(&mut context, &config, &request, usize::MAX, exit, fixed(4));
    // A masked prompt would agree about never; an honest early exit of this model about two times in three.
    assert!(report.drafting.acceptance().unwrap() > 0.35, "{report}");
    let tally = report.drafting;
    assert_eq!(tally.accepted + tally.rounds + report.plain_steps, 63);
    assert_eq!(report.by_position.iter().map(|p| p.1).sum::<usize>(), tally.accepted);
}
