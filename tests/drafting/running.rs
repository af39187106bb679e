//! Texts of the tests of drafting: plain, drafted, and several together; and what of them must be the same.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use spec_run::{
    Batch, Context, Engine, EngineConfig, Job, Model, Result, Sampler, Tokenizer, embedded,
    engine::{Event, MakeProposers},
    generate::{Generation, Request, Speculation, Stop, TokenScore, generate, speculate},
    sampler::SamplerConfig,
    speculation::{
        Controller, Costs, DRAFT, Drafted, Fixed, Memory, Offer, Policy, Proposer, Report, Round,
        RoundChoice, SourceInfo, SourceKind, Speedup, TARGET, Token,
    },
    tokenizer::EncodeOptions,
};

use crate::common::{bits, context};

pub const EXTRA_SLOTS: usize = 24;

pub fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap()
}

pub fn encode(text: &str) -> Vec<u32> {
    tokenizer().encode(text, EncodeOptions { add_special: true, parse_special: false })
}

pub fn request(prompt: &[u32], max_tokens: usize) -> Request {
    Request { max_tokens: Some(max_tokens), logprobs: 3, ..Request::new(prompt) }
}

/// One thread each, because the tests run beside each other; threads do not change a bit.
pub fn small(model: &Arc<Model>, n_ctx: u32) -> Context {
    context(model, |c| (c.n_ctx, c.extra_slots, c.threads) = (n_ctx, EXTRA_SLOTS, 1))
}

/// Everything that must not depend on speculation.
#[derive(Debug, PartialEq)]
pub struct Ran {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<Vec<(u32, u32)>>,
    pub steps: usize,
    pub stop: Stop,
    pub seen: Vec<u32>,
    pub history: Vec<u32>,
    pub cells: usize,
    /// The logits of one more token.
    pub after: Vec<u32>,
}

/// Equality with a message that can be read.
pub fn same(found: &Ran, expected: &Ran, when: &str) {
    assert_eq!(found.tokens, expected.tokens, "tokens, {when}");
    let ends = |ran: &Ran| (ran.stop, ran.steps, ran.cells);
    assert_eq!(ends(found), ends(expected), "stop, steps, cells, {when}");
    assert!(found.logprobs == expected.logprobs, "log-probabilities, {when}");
    assert!(found.after == expected.after, "the cache afterwards, {when}");
    assert!(found == expected, "{when}");
}

fn ran(context: &mut Context, sampler: Sampler, generation: Generation, seen: Vec<u32>) -> Ran {
    assert!(context.kv().is_empty(DRAFT), "a draft was left in the cache");
    let cells = context.kv().len(TARGET);
    assert_eq!(context.kv().free_cells(), context.kv().capacity() - cells, "cells were lost");
    let mut after = Vec::new();
    if context.kv().free_cells() > 0 {
        context.decode(&Batch::prompt(&[7], context.kv().next_pos(TARGET), TARGET)).unwrap();
        after = bits(context.logits(0));
    }
    let exact = |score: &TokenScore| {
        let chosen = (u32::MAX, score.logprob.to_bits());
        score.likely.iter().map(|(id, p)| (*id, p.to_bits())).chain([chosen]).collect()
    };
    Ran {
        logprobs: generation.logprobs.iter().map(exact).collect(),
        tokens: generation.tokens,
        steps: generation.steps,
        stop: generation.stop,
        seen,
        history: sampler.history().to_vec(),
        cells,
        after,
    }
}

/// Ends the run after `most` tokens, as an interrupt would.
fn watch(seen: &mut Vec<u32>, token: u32, most: usize) -> Result<ControlFlow<()>> {
    seen.push(token);
    Ok(if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

pub fn plain(context: &mut Context, config: &SamplerConfig, request: &Request, most: usize) -> Ran {
    let mut sampler = Sampler::new(config.clone()).unwrap();
    let mut seen = Vec::new();
    let watcher = |token| watch(&mut seen, token, most);
    let generation = generate(context, &tokenizer(), &mut sampler, request, watcher).unwrap();
    ran(context, sampler, generation, seen)
}

pub fn drafted(
    context: &mut Context,
    config: &SamplerConfig,
    request: &Request,
    most: usize,
    proposer: Box<dyn Proposer>,
    mut policy: impl Policy,
) -> (Ran, Report) {
    let mut sampler = Sampler::new(config.clone()).unwrap();
    let mut seen = Vec::new();
    let watcher = |token: Token| watch(&mut seen, token.id, most);
    let proposers = &mut [proposer];
    let mut speculation = Speculation { proposers, policy: &mut policy };
    let (generation, report) =
        speculate(context, &tokenizer(), &mut sampler, request, &mut speculation, watcher).unwrap();
    (ran(context, sampler, generation, seen), report)
}

/// Three texts of the embedded model in one engine, where a few rows cost next to nothing, unlike those of prompts: so they are
/// drafted under load too. They must be what they are alone; gives how many drafted tokens were accepted. The clock decides whether
/// they are drafted, and other programs may spoil it: so a few times, if need be.
pub fn three_together(mut open: impl FnMut() -> (Context, MakeProposers), kind: SourceKind) -> usize {
    for _ in 0..5 {
        let (context, make) = open();
        let (rounds, accepted) = once_together(context, make, kind);
        if rounds > 0 {
            return accepted;
        }
    }
    panic!("nothing was drafted, five times");
}

/// The rounds that drafted, and the tokens that were accepted.
fn once_together(context: Context, make: MakeProposers, kind: SourceKind) -> (usize, usize) {
    let model = context.model().clone();
    let prompt = |i: u32| vec![1, 403, 407, 261, 378, 396, 300 + i];
    let expected: Vec<Vec<u32>> = (0..3)
        .map(|i| {
            let prompt = prompt(i);
            let mut request = request(&prompt, 40);
            request.ignore_eos = true;
            plain(&mut small(&model, 128), &greedy(), &request, usize::MAX).tokens
        })
        .collect();
    let infos: Vec<_> = make().iter().map(|proposer| proposer.info(&context)).collect();
    assert_eq!(infos[0].kind, kind);
    let few = |n: i32| 1.0 + 0.001 * f64::from(n);
    let rows: Vec<f64> = (0..49).map(|n| few(n) + 2.0 * f64::from((n - 15).max(0))).collect();
    let controller = Controller::new(Costs::recalled(&infos, &rows, &[Some(0.01)]), Memory::new());
    let tokenizer = Arc::new(tokenizer());
    let mut engine = Engine::new(context, tokenizer, EngineConfig::default()).drafting(make, controller);
    let ended: Vec<_> = (0..3)
        .map(|i| {
            let ended = Arc::new(Mutex::new(None));
            let sink = ended.clone();
            let request = Request { max_tokens: Some(40), ignore_eos: true, ..Request::new(&prompt(i)) };
            let job = Job { sampler: greedy(), ..Job::new(request) };
            let listener = move |event: Event| {
                if let Event::Ended(done) = event {
                    *sink.lock().unwrap() = Some(done.unwrap());
                }
                ControlFlow::Continue(())
            };
            engine.submit(job, Box::new(listener)).unwrap();
            ended
        })
        .collect();
    engine.run();
    let (mut rounds, mut accepted) = (0, 0);
    for (ended, expected) in ended.iter().zip(&expected) {
        let ended = ended.lock().unwrap().take().expect("it has ended");
        assert_eq!(ended.generation.tokens, *expected);
        rounds += ended.report.drafting.rounds;
        accepted += ended.report.drafting.accepted;
    }
    (rounds, accepted)
}

pub fn greedy() -> SamplerConfig {
    SamplerConfig::greedy()
}

/// Greedy, and drawn with a seed.
pub fn samplers() -> [SamplerConfig; 3] {
    let drawn =
        |temp: f32, top_k: usize| SamplerConfig { temp, top_k, seed: Some(5), ..SamplerConfig::default() };
    [greedy(), drawn(0.8, 40), drawn(1.2, 0)]
}

pub fn fixed(max: usize) -> Fixed {
    Fixed { max, ..Fixed::default() }
}

/// Always drafts, with so many other tokens.
pub struct Always {
    pub most: usize,
    pub others: usize,
}

impl Policy for Always {
    fn start(&mut self, _: &[SourceInfo]) {}

    fn choose(&mut self, offers: &[Offer]) -> RoundChoice {
        let draft =
            |offer: &Offer| RoundChoice::Draft { source: offer.source, most: offer.most.min(self.most) };
        offers.first().map_or(RoundChoice::Plain, draft)
    }

    fn draft_more(&self, _: usize, so_far: &[Drafted], _: bool) -> bool {
        so_far.len() < self.most
    }

    fn others(&self, _: usize, _: usize, others: &[Drafted]) -> usize {
        assert!(others.is_sorted_by(|a, b| a.confidence >= b.confidence), "{others:?}");
        self.others.min(others.len())
    }

    fn record(&mut self, round: &Round) {
        assert!(round.other.is_none_or(|other| other < round.others.len() && round.accepted == 0));
        let tokens = round.accepted + usize::from(round.other.is_some());
        assert_eq!(
            (round.gained(), round.rows()),
            (tokens + 1, 1 + round.drafted.len() + round.others.len())
        );
    }

    fn off_reason(&self) -> Option<String> {
        None
    }

    fn speedup(&self) -> Speedup {
        Speedup::default()
    }
}
