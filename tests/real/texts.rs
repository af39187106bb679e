//! A text is the same drafted and plain, alone and together with others.

use std::{
    ops::ControlFlow,
    path::Path,
    sync::{Arc, Mutex},
};

use crate::{ALL, models, tokenizer};
use spec_run::{
    ContextConfig, Engine, EngineConfig, Job, Model, Request, context::Planes, engine::Event,
    sampler::SamplerConfig, tokenizer::EncodeOptions,
};

const PROMPTS: [&str; 4] = [
    "<|im_start|>user\nWrite a Python class for a bounded queue with push, pop and len.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nList eight things to check before a long bicycle trip.<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    ",
    "Wenn es morgen regnet, bleiben wir",
];
const TOKENS: usize = 48;

/// Every prompt, greedy and drawn with a seed.
fn jobs(path: &Path, drafts: bool) -> Vec<Job> {
    let tokenizer = tokenizer(path);
    let job = |prompt: &str, temperature: f32| {
        let sampler = SamplerConfig { temp: temperature, seed: Some(7), ..SamplerConfig::default() };
        let ids = tokenizer.encode(prompt, EncodeOptions::PROMPT);
        let request = Request { max_tokens: Some(TOKENS), ..Request::new(&ids) };
        Job { sampler, drafts, ..Job::new(request) }
    };
    PROMPTS.iter().flat_map(|prompt| [0.0, 0.8].map(|temperature| job(prompt, temperature))).collect()
}

/// The tokens of each job, all of them at once.
fn made(engine: &mut Engine, jobs: Vec<Job>) -> (Vec<Vec<u32>>, usize) {
    let made = Arc::new(Mutex::new(vec![(Vec::<u32>::new(), 0); jobs.len()]));
    for (n, job) in jobs.into_iter().enumerate() {
        let made = made.clone();
        let listener = move |event: Event| {
            if let Event::Ended(ended) = event {
                let ended = ended.unwrap();
                made.lock().unwrap()[n] = (ended.generation.tokens, ended.report.drafting.accepted);
            }
            ControlFlow::Continue(())
        };
        engine.submit(job, Box::new(listener)).unwrap();
    }
    while engine.step() {}
    let made = std::mem::take(&mut *made.lock().unwrap());
    let accepted = made.iter().map(|(_, accepted)| accepted).sum();
    (made.into_iter().map(|(tokens, _)| tokens).collect(), accepted)
}

#[test]
fn a_text_is_the_same_drafted_and_plain_alone_and_together() {
    for (real, path) in models("a_text_is_the_same_drafted_and_plain_alone_and_together", &ALL) {
        let open = |planes, texts| {
            let context = ContextConfig { n_ctx: 2048, planes: Some(planes), ..ContextConfig::default() };
            let config = EngineConfig { texts, ..EngineConfig::default() };
            Engine::open(Model::open(&path).unwrap(), &context, config).unwrap()
        };
        let mut alone = open(Planes::Cheap, 1);
        let plain: Vec<_> =
            jobs(&path, false).into_iter().map(|job| made(&mut alone, vec![job]).0.remove(0)).collect();
        assert!(plain.iter().all(|tokens| !tokens.is_empty()), "{}", real.name);
        for planes in [Planes::Cheap, Planes::All] {
            let (together, accepted) = made(&mut open(planes, 4), jobs(&path, true));
            assert!(together == plain, "{}, drafted together, {planes:?}", real.name);
            let mut engine = open(planes, 1);
            let mut accepted = accepted;
            for (job, want) in jobs(&path, true).into_iter().zip(&plain) {
                let (mut drafted, n) = made(&mut engine, vec![job]);
                assert!(drafted.remove(0) == *want, "{}, drafted alone, {planes:?}", real.name);
                accepted += n;
            }
            println!("{}, {planes:?}: {accepted} drafted tokens accepted", real.name);
        }
    }
}
