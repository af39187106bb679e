//! Many texts in one engine: each is what it would be alone, whatever comes and goes beside it.

use crate::common;
use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use common::{
    context, embedded_model, fixture, load,
    lora::{adapters, golden},
    mtp,
};
use spec_run::{
    Batch, Context, Engine, EngineConfig, Error, Job, Model, RunLayers, Sampler, Tokenizer,
    engine::{Ended, Event, Listener},
    generate::{Request, Stop, generate},
    lora::LoraFile,
    sampler::{SamplerConfig, top_logprobs},
    scores::log_sum_exp,
    speculation::{
        Controller, Costs, MaskProposer, Memory, MtpProposer, NgramProposer, Proposer, Ready, SourceInfo,
        SourceKind, Supply,
    },
};

/// A fixed stream of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

fn tokenizer(model: &Model) -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_gguf(&model.gguf).unwrap())
}

/// What was heard of a job.
#[derive(Default)]
struct Heard {
    tokens: Vec<u32>,
    likely: Vec<Vec<(u32, u32)>>,
    ended: Option<Box<Ended>>,
}

fn listener(heard: &Arc<Mutex<Heard>>) -> Listener {
    let heard = heard.clone();
    Box::new(move |event| {
        let mut heard = heard.lock().unwrap();
        match event {
            Event::Begun { .. } | Event::Evaluated(_) => {}
            Event::Token { token, score } => {
                heard.tokens.push(token.id);
                heard.likely.extend(score.map(|score| exact(&score.likely)));
            }
            Event::Ended(ended) => heard.ended = Some(ended.expect("it can be made")),
        }
        ControlFlow::Continue(())
    })
}

fn exact(likely: &[(u32, f32)]) -> Vec<(u32, u32)> {
    likely.iter().map(|&(id, logprob)| (id, logprob.to_bits())).collect()
}

/// The same job with the model to itself, by plain decoding. All that its context knows of is as much of the adapters as the
/// job has.
fn alone(
    model: &Arc<Model>,
    tokenizer: &Tokenizer,
    job: &Job,
    loras: &[LoraFile],
) -> (Vec<u32>, Vec<Vec<(u32, u32)>>) {
    let mut loras = loras.to_vec();
    if let Some(scales) = &job.loras {
        loras.iter_mut().zip(scales).for_each(|(lora, scale)| lora.scale = *scale);
    }
    let mut context = context(model, |c| (c.n_ctx, c.loras) = (256, loras));
    let mut sampler = Sampler::new(job.sampler.clone()).unwrap();
    if let Some(mask) = &job.mask {
        return under(&mut context, tokenizer, job, mask, &mut sampler);
    }
    let made =
        generate(&mut context, tokenizer, &mut sampler, &job.request, |_| Ok(ControlFlow::Continue(())))
            .unwrap();
    (made.tokens, made.logprobs.iter().map(|score| exact(&score.likely)).collect())
}

/// A text by a part of the model, step by step.
fn under(
    context: &mut Context,
    tokenizer: &Tokenizer,
    job: &Job,
    mask: &RunLayers,
    sampler: &mut Sampler,
) -> (Vec<u32>, Vec<Vec<(u32, u32)>>) {
    let (mut tokens, mut likely) = (Vec::new(), Vec::new());
    context.decode(&Batch::prompt(&job.request.prompt, 0, 0).with_layers(mask.clone())).unwrap();
    sampler.begin(&job.request.prompt);
    while job.request.max_tokens.is_none_or(|most| tokens.len() < most) {
        let token = sampler.sample(context.logits(0));
        if tokenizer.is_eog(token) && !job.request.ignore_eos {
            break;
        }
        sampler.accept(token);
        tokens.push(token);
        if job.request.logprobs > 0 {
            likely.push(exact(&top_logprobs(context.logits(0), job.request.logprobs)));
        }
        let pos = context.kv().next_pos(0);
        context.decode(&Batch::prompt(&[token], pos, 0).with_layers(mask.clone())).unwrap();
    }
    (tokens, likely)
}

/// The head for one token more in the place of the early exit, where there is one.
fn sources(n_layer: usize, has_mtp: bool) -> Vec<Box<dyn Proposer>> {
    vec![
        Box::new(NgramProposer::new(1, 6)),
        match has_mtp {
            true => Box::new(MtpProposer),
            false => Box::new(MaskProposer::exit(n_layer, n_layer * 3 / 4)),
        },
        Box::new(MaskProposer::new("all", RunLayers::all(n_layer))),
    ]
}

fn engine(model: &Arc<Model>, n_ctx: u32, config: EngineConfig) -> Engine {
    // An engine packs by itself what is not.
    engine_in(context(model, |c| (c.n_ctx, c.pack_later) = (n_ctx, true)), model, config)
}

fn engine_in(context: Context, model: &Arc<Model>, config: EngineConfig) -> Engine {
    let (n_layer, mtp) = (model.n_layer(), context.has_mtp());
    let infos: Vec<_> = sources(n_layer, mtp).iter().map(|p| p.info(&context)).collect();
    // Steps that seem to cost next to nothing, so that much is drafted.
    let costs = Costs::guess_of(&[0.0, 0.01, 0.01], 0.9).with_prefixes(&infos);
    let mut controller = Controller::new(costs, Memory::new());
    spec_run::speculation::Policy::start(&mut controller, &infos);
    Engine::new(context, tokenizer(model), config)
        .drafting(Box::new(move || sources(n_layer, mtp)), controller)
}

fn job(random: &mut Random, model: &Model, adapters: usize) -> Job {
    let n_vocab = model.n_vocab().min(300);
    // Few different beginnings, so that prompts share them.
    let mut beginning = Random(7 + random.below(3) as u64);
    let mut prompt: Vec<u32> = (0..random.below(30)).map(|_| beginning.below(n_vocab) as u32).collect();
    prompt.extend((0..=random.below(6)).map(|_| random.below(n_vocab) as u32));
    let sampler = match random.below(3) {
        0 => SamplerConfig { seed: Some(random.below(1000) as u32), ..SamplerConfig::default() },
        1 => SamplerConfig { repeat_penalty: 1.2, ..SamplerConfig::greedy() },
        _ => SamplerConfig::greedy(),
    };
    let n_layer = model.n_layer();
    let scale = |random: &mut Random| [0.0, 0.0, 0.5, -0.75][random.below(4)];
    let loras = (adapters > 0 && !random.chance(3)).then(|| (0..adapters).map(|_| scale(random)).collect());
    let request = Request {
        max_tokens: Some(random.below(24)),
        ignore_eos: random.chance(2),
        logprobs: 3 * random.below(2),
        ..Request::new(&prompt)
    };
    Job {
        loras,
        sampler,
        scores_from: random.chance(4).then(|| random.below(prompt.len() + 1)),
        mask: random.chance(6).then(|| RunLayers::all(n_layer).skip_mlp(n_layer / 2)),
        drafts: !random.chance(4),
        ..Job::new(request)
    }
}

#[test]
fn schedules_of_many_texts_change_none_of_them() {
    const TEST: &str = "schedules_of_many_texts_change_none_of_them";
    let (model, schedules) = match fixture(TEST, "models/stories260K.gguf") {
        Some(path) => (load(&path), 200),
        None => (embedded_model(), 8),
    };
    schedules_change_nothing(&model, schedules, &[]);
}

/// Texts with the same adapters share beginnings, others do not; drafts and what is evaluated again have those of their text.
#[test]
fn schedules_of_texts_with_different_adapters_change_none_of_them() {
    const TEST: &str = "schedules_of_texts_with_different_adapters_change_none_of_them";
    for name in ["llama", "qwen35", "qwen3moe", "gemma3"] {
        let Some(path) = fixture(TEST, &format!("archs/{name}.gguf")) else { return };
        println!("{name}");
        let (model, folder) = (load(&path), tempfile::tempdir().unwrap());
        let loras = adapters(folder.path(), &model, &golden(name).tensors);
        schedules_change_nothing(&model, 40, &loras);
    }
}

/// Knows the text, once it is there.
struct Knows(Arc<Mutex<Vec<u32>>>);

impl Proposer for Knows {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: "knows".into(), kind: SourceKind::Other, cost: 0.0, chance: 0.6, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        let tokens = self.0.lock().unwrap().len().saturating_sub(text.len()).min(3);
        if tokens == 0 { Supply::Nothing } else { Supply::Found(Ready { tokens, match_len: 8 }) }
    }

    fn tokens(&mut self, text: &[u32]) -> Vec<u32> {
        self.0.lock().unwrap()[text.len()..].iter().take(3).copied().collect()
    }
}

/// Texts often begin together, and who comes in the middle of a round with a draft waits for its end.
#[test]
fn after_company_a_text_alone_is_drafted_for_a_little_later() {
    let model = embedded_model();
    let context = context(&model, |c| c.n_ctx = 400);
    let known = Arc::new(Mutex::new(Vec::new()));
    let infos = [Knows(known.clone()).info(&context)];
    // By costs that no clock changes.
    let mut controller = Controller::new(Costs::frozen(&infos), Memory::new());
    spec_run::speculation::Policy::start(&mut controller, &infos);
    let config = EngineConfig { texts: 2, ..EngineConfig::default() };
    let mut engine = Engine::new(context, tokenizer(&model), config).drafting(
        Box::new({
            let known = known.clone();
            move || vec![Box::new(Knows(known.clone()))]
        }),
        controller,
    );
    let phrase = [1, 403, 407, 261, 378];
    let submit = |engine: &mut Engine| {
        let by = Arc::new(Mutex::new(Vec::new()));
        let heard = by.clone();
        let request = Request { max_tokens: Some(40), ignore_eos: true, ..Request::new(&phrase) };
        let listener: Listener = Box::new(move |event| {
            if let Event::Token { token, .. } = event {
                heard.lock().unwrap().push((token.id, token.drafted_by.is_some()));
            }
            ControlFlow::Continue(())
        });
        (engine.submit(Job { sampler: SamplerConfig::greedy(), ..Job::new(request) }, listener).unwrap(), by)
    };
    let early = |by: &Arc<Mutex<Vec<(u32, bool)>>>| by.lock().unwrap()[..4].iter().any(|token| token.1);
    let (_, plain) = submit(&mut engine);
    engine.run();
    known.lock().unwrap().extend(phrase.into_iter().chain(plain.lock().unwrap().iter().map(|token| token.0)));
    // Alone from the beginning.
    let (_, by) = submit(&mut engine);
    engine.run();
    assert!(early(&by), "{by:?}");
    // Both end in the same round, so that neither is alone before.
    let company = [submit(&mut engine), submit(&mut engine)];
    (0..2).for_each(|_| assert!(engine.step()));
    company.iter().for_each(|(id, _)| engine.cancel(*id));
    engine.run();
    let (_, by) = submit(&mut engine);
    engine.run();
    assert!(!early(&by), "{by:?}");
    let (_, by) = submit(&mut engine);
    engine.run();
    assert!(early(&by), "{by:?}");
}

/// Layers with states, windows, latents and experts: one of each kind, and some of each other.
#[test]
fn schedules_change_no_text_of_any_kind_of_layer() {
    const TEST: &str = "schedules_change_no_text_of_any_kind_of_layer";
    for name in ["qwen35", "lfm2", "mamba2", "falcon-h1", "qwen35moe", "deepseek2", "gemma3"] {
        let Some(path) = fixture(TEST, &format!("archs/{name}.gguf")) else { return };
        println!("{name}");
        schedules_change_nothing(&load(&path), 30, &[]);
    }
}

#[test]
fn schedules_change_no_text_of_models_that_predict_one_token_more() {
    for sample in mtp::samples().filter(|sample| ["qwen35", "glm4moe"].contains(&sample.name)) {
        println!("{}", sample.name);
        schedules_change_nothing(&sample.with_a_good_head(), 30, &[]);
    }
}

fn schedules_change_nothing(model: &Arc<Model>, schedules: u64, loras: &[LoraFile]) {
    let tokenizer = tokenizer(model);
    let (mut drafted, mut cached, mut ended, mut cancelled) = (0, 0, 0, 0);
    for schedule in 0..schedules {
        let mut random = Random(schedule);
        // Sometimes so few cells that texts have to give theirs up.
        let n_ctx = [72, 96, 400][random.below(3)];
        let config = EngineConfig {
            texts: 1 + random.below(6),
            chunk: 1 + random.below(24),
            keeps_prefixes: !random.chance(4),
            ..EngineConfig::default()
        };
        // Sometimes fewer states than texts want.
        let sequences = if random.chance(2) { 1 } else { config.texts };
        let room = context(model, |c| {
            (c.n_ctx, c.sequences, c.mtp) = (n_ctx, sequences, true);
            c.loras = loras.to_vec();
        });
        let mut engine = engine_in(room, model, config);
        let jobs: Vec<Job> = (0..3 + random.below(6)).map(|_| job(&mut random, model, loras.len())).collect();
        let heard: Vec<_> = jobs.iter().map(|_| Arc::<Mutex<Heard>>::default()).collect();
        let mut ids = Vec::new();
        while ids.len() < jobs.len() || engine.step() {
            if ids.len() < jobs.len() && random.chance(3) {
                let id = engine.submit(jobs[ids.len()].clone(), listener(&heard[ids.len()])).unwrap();
                ids.push(id);
            }
            if !ids.is_empty() && random.chance(25) {
                engine.cancel(ids[random.below(ids.len())]);
            }
            if ids.len() < jobs.len() {
                engine.step();
            }
        }
        for (i, (job, heard)) in jobs.iter().zip(&heard).enumerate() {
            let heard = heard.lock().unwrap();
            let told = heard.ended.as_ref().expect("every job ends");
            let (tokens, likely) = alone(model, &tokenizer, job, loras);
            let n = heard.tokens.len();
            let what = format!("schedule {schedule}, job {i}: {job:?}");
            assert_eq!(told.generation.tokens, heard.tokens, "{what}");
            if told.generation.stop == Stop::Interrupted {
                cancelled += 1;
                assert_eq!(heard.tokens, tokens[..n], "{what}");
            } else {
                assert_eq!(heard.tokens, tokens, "{what}");
                ended += 1;
            }
            if job.request.logprobs > 0 {
                assert!(heard.likely == likely[..n], "log-probabilities of {what}");
            }
            if let Some(from) = job.scores_from.filter(|_| told.generation.stop != Stop::Interrupted) {
                assert_eq!(told.scored.len(), job.request.prompt.len() - from.max(1), "{what}");
            }
            drafted += told.report.drafting.drafted;
            cached += told.cached;
        }
        let status = engine.status();
        assert_eq!((status.running, status.waiting), (0, 0));
    }
    println!(
        "{ended} ended, {cancelled} cancelled, {drafted} tokens drafted, {cached} of prompts from the cache"
    );
    assert!(drafted > 0 && cached > 0 && ended > cancelled);
}

#[test]
fn a_prompt_is_scored_as_decoding_it_scores_it() {
    let model = embedded_model();
    let tokenizer = tokenizer(&model);
    let prompt = common::tokens(40, 3, model.n_vocab());
    let mut context = context(&model, |_| {});
    let rows = common::all_logits(&mut context, &prompt);
    let request = Request { logprobs: 4, max_tokens: Some(1), ..Request::new(&prompt) };
    for (chunk, from) in [(7, 0usize), (64, 0), (7, 20), (64, 39), (64, 40)] {
        let config = EngineConfig { chunk, ..EngineConfig::default() };
        let mut engine = Engine::new(common::context(&model, |_| {}), tokenizer.clone(), config);
        let heard = Arc::<Mutex<Heard>>::default();
        // The second begins with what the first has left in the cache.
        for cached in [0, from.saturating_sub(1)] {
            let job = Job { scores_from: Some(from), ..Job::new(request.clone()) };
            engine.submit(job, listener(&heard)).unwrap();
            engine.run();
            assert_eq!(heard.lock().unwrap().ended.as_ref().unwrap().cached, cached);
        }
        let heard = heard.lock().unwrap();
        let scored = &heard.ended.as_ref().unwrap().scored;
        assert_eq!(scored.len(), prompt.len() - from.max(1));
        for (i, score) in (from.max(1) - 1..).zip(scored) {
            let logits: Vec<f32> = rows[i].iter().map(|&bits| f32::from_bits(bits)).collect();
            let expected = f64::from(logits[prompt[i + 1] as usize]) - log_sum_exp(&logits);
            assert_eq!(score.logprob, expected as f32, "row {i}");
            assert_eq!(score.likely, top_logprobs(&logits, 4), "row {i}");
        }
    }
}

#[test]
fn a_second_turn_evaluates_only_what_is_new() {
    let model = embedded_model();
    let mut engine = engine(&model, 400, EngineConfig::default());
    let first = common::tokens(50, 1, 2000);
    let job = |prompt: &[u32]| {
        let request = Request { max_tokens: Some(20), ignore_eos: true, ..Request::new(prompt) };
        Job { sampler: SamplerConfig::greedy(), ..Job::new(request) }
    };
    let ended = engine.session(job(&first)).unwrap().finish().unwrap();
    assert_eq!(ended.cached, 0);
    let mut second = first;
    second.extend(&ended.generation.tokens);
    second.extend([5, 6, 7]);
    let ended = engine.session(job(&second)).unwrap().finish().unwrap();
    // All but the last token of the answer is in the cache.
    assert_eq!((ended.cached, ended.prompt_tokens), (69, 73));
    let (tokens, _) = alone(&model, &tokenizer(&model), &job(&second), &[]);
    assert_eq!(ended.generation.tokens, tokens);
}

#[test]
fn a_text_has_the_room_that_it_was_given_and_no_more() {
    let model = embedded_model();
    let config = EngineConfig { tokens_of_text: Some(32), ..EngineConfig::default() };
    let mut engine = engine(&model, 200, config);
    let job = |n| {
        let request = Request { ignore_eos: true, ..Request::new(&common::tokens(n, 1, 2000)) };
        Job { sampler: SamplerConfig::greedy(), ..Job::new(request) }
    };
    let error = engine.session(job(33)).err().expect("it is too long");
    assert!(matches!(error, Error::TooLong { tokens: 33, most: 32 }), "{error}");
    let ended = engine.session(job(20)).unwrap().finish().unwrap();
    assert_eq!((ended.generation.stop, ended.generation.tokens.len()), (Stop::ContextFull, 12));
}

/// Each that loses its cells finds all of its text in another's, and must not wait for rows that nobody has to evaluate.
#[test]
fn equal_texts_that_have_too_few_cells_all_come_to_an_end() {
    let model = embedded_model();
    let mut engine = engine(&model, 256, EngineConfig::default());
    let request = Request { max_tokens: Some(70), ignore_eos: true, ..Request::new(&[1, 413]) };
    let sampler = SamplerConfig { seed: Some(42), ..SamplerConfig::default() };
    let job = Job { sampler, ..Job::new(request) };
    let heard: Vec<_> = (0..4).map(|_| Arc::<Mutex<Heard>>::default()).collect();
    for heard in &heard {
        engine.submit(job.clone(), listener(heard)).unwrap();
    }
    let mut steps = 0;
    while engine.step() {
        steps += 1;
        assert!(steps < 2000, "{:?}", engine.status());
    }
    let (tokens, _) = alone(&model, &tokenizer(&model), &job, &[]);
    for heard in heard {
        assert_eq!(heard.lock().unwrap().tokens, tokens);
    }
}

#[test]
fn an_engine_can_go_to_another_thread() {
    fn sends<T: Send>() {}
    sends::<Engine>();
}
