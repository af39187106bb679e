//! Speculative sampling gives the distribution of plain sampling: a G-test over a million draws for each kind of
//! sampler setting. That the test can fail is shown by three wrong rules, each of which it must find out.

use crate::common;
use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

use common::{context, load};
use spec_run::{
    Batch, Context, Sampler, Tokenizer, embedded,
    generate::Request,
    sampler::{Distribution, SamplerConfig, distribution, rng::Rng},
    speculation::{
        Fixed, MaskProposer, NgramProposer, Proposal, Proposer, Speculation, Verdict, accept, speculate,
    },
};

const VOCABULARY: u32 = 5;
/// Tokens of a text, and how many texts are drawn: a million and some tokens.
const TEXT: usize = 3;
const TEXTS: usize = 400_000;
/// Fewer are enough to find a wrong rule out.
const WRONG_TEXTS: usize = 50_000;
/// Tokens drafted in a round.
const DRAFT: usize = 2;
const PROMPT: [u32; 4] = [1, 4, 1, 2];

/// Two made-up models over five tokens: logits that depend on the last two tokens, the draft's on only one and
/// off by something.
fn logits(history: &[u32], is_draft: bool) -> [f32; VOCABULARY as usize] {
    let [.., before, last] = history else { panic!("a prompt has two tokens") };
    std::array::from_fn(|id| {
        let (id, last, before) = (id as f32, *last as f32, if is_draft { 0.0 } else { *before as f32 });
        let target = 1.6 * (1.3 * id + 0.7 * last + 0.4 * before + 0.2).sin();
        target + if is_draft { 0.9 * (2.1 * id + last).cos() } else { 0.0 }
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Right,
    /// What falls is replaced by a draw from p instead of the residual.
    ResamplesFromP,
    /// Penalties look at the text as it was when the round began.
    PenaltiesOncePerRound,
    /// p is compared with the draft's softmax, not with what its token was drawn from.
    UnprocessedQ,
}

/// A draft of [`DRAFT`] tokens, as the loop makes it.
fn draft(config: &SamplerConfig, text: &[u32], lookup: bool, rng: &mut Rng) -> Vec<Proposal> {
    let mut history = text.to_vec();
    (0..DRAFT)
        .map(|_| {
            let proposal = if lookup {
                let token = (history[history.len() - 1] * 3 + 1) % VOCABULARY;
                Proposal { token, q: None }
            } else {
                let q = distribution(config, &logits(&history, true), &history);
                Proposal { token: q.draw(rng.next_f64()), q: Some(q) }
            };
            history.push(proposal.token);
            proposal
        })
        .collect()
}

fn round(config: &SamplerConfig, text: &[u32], lookup: bool, rule: Rule, rng: &mut Rng) -> Vec<u32> {
    let draft = draft(config, text, lookup, rng);
    let history: Vec<u32> = text.iter().copied().chain(draft.iter().map(|p| p.token)).collect();
    let p = |i: usize| {
        let upto = &history[..text.len() + i];
        let penalized = if rule == Rule::PenaltiesOncePerRound { text } else { upto };
        distribution(config, &logits(upto, false), penalized)
    };
    let outcome = match rule {
        Rule::Right | Rule::PenaltiesOncePerRound => accept(&draft, p, rng),
        Rule::ResamplesFromP => {
            let stands = |i: usize, rng: &mut Rng| {
                let Proposal { token, q } = &draft[i];
                let q = q.as_ref().map_or(1.0, |q| q.p(*token));
                rng.next_f64() < p(i).p(*token) / q
            };
            let accepted = (0..DRAFT).take_while(|&i| stands(i, rng)).count();
            Verdict { accepted, next: p(accepted).draw(rng.next_f64()) }
        }
        Rule::UnprocessedQ => {
            let plain =
                SamplerConfig { temp: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerConfig::default() };
            let raw = |i: usize| distribution(&plain, &logits(&history[..text.len() + i], true), &[]);
            let with_raw: Vec<_> = draft
                .iter()
                .enumerate()
                .map(|(i, proposal)| Proposal { token: proposal.token, q: Some(raw(i)) })
                .collect();
            accept(&with_raw, p, rng)
        }
    };
    draft[..outcome.accepted].iter().map(|p| p.token).chain([outcome.next]).collect()
}

/// How often each text came.
fn texts(config: &SamplerConfig, lookup: bool, rule: Rule, count: usize) -> BTreeMap<Vec<u32>, usize> {
    let mut rng = Rng::new(12);
    let mut counts = BTreeMap::new();
    let mut text = Vec::new();
    for _ in 0..count {
        text.clear();
        text.extend(PROMPT);
        while text.len() < PROMPT.len() + TEXT {
            let tokens = round(config, &text, lookup, rule, &mut rng);
            text.extend(tokens);
        }
        *counts.entry(text[PROMPT.len()..][..TEXT].to_vec()).or_insert(0) += 1;
    }
    counts
}

/// The probability of every text, by the chain rule over plain sampling's distributions.
fn exact(next: &mut impl FnMut(&[u32]) -> Distribution, length: usize) -> BTreeMap<Vec<u32>, f64> {
    let mut texts = BTreeMap::from([(Vec::new(), 1.0)]);
    for _ in 0..length {
        let longer = |(text, p): (Vec<u32>, f64)| {
            let entries = next(&text).entries().to_vec();
            entries.into_iter().map(move |(id, q)| ([&text[..], &[id]].concat(), p * q))
        };
        texts = texts.into_iter().flat_map(longer).collect();
    }
    texts
}

/// How far counts are from probabilities: the G statistic as a standard normal deviate (Wilson and Hilferty), so
/// that above 5 is one in three million by chance. Texts expected less than ten times count as one.
fn deviation(counts: &BTreeMap<Vec<u32>, usize>, exact: &BTreeMap<Vec<u32>, f64>) -> f64 {
    let total = counts.values().sum::<usize>() as f64;
    if counts.keys().any(|text| !exact.contains_key(text)) {
        return f64::INFINITY;
    }
    let cells = exact.iter().map(|(text, p)| (counts.get(text).map_or(0.0, |&n| n as f64), p * total));
    let (rare, common): (Vec<_>, Vec<_>) = cells.partition(|cell| cell.1 < 10.0);
    let rare = rare.iter().fold((0.0, 0.0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    let cells: Vec<_> = common.into_iter().chain((rare.1 > 0.0).then_some(rare)).collect();
    let g: f64 =
        cells.iter().filter(|c| c.0 > 0.0).map(|(seen, expected)| 2.0 * seen * (seen / expected).ln()).sum();
    let freedom = cells.len() as f64 - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    ((g / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

fn configs() -> Vec<(&'static str, SamplerConfig)> {
    let off = SamplerConfig { temp: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerConfig::default() };
    vec![
        ("temperature 1", off.clone()),
        ("temperature 0.5", SamplerConfig { temp: 0.5, ..off.clone() }),
        ("top-k", SamplerConfig { top_k: 3, ..off.clone() }),
        ("top-p", SamplerConfig { top_p: 0.8, ..off.clone() }),
        ("min-p", SamplerConfig { min_p: 0.15, ..off.clone() }),
        ("typical", SamplerConfig { typical_p: 0.7, ..off.clone() }),
        ("repeat penalty", SamplerConfig { repeat_penalty: 1.8, repeat_last_n: 2, ..off.clone() }),
        (
            "frequency and presence",
            SamplerConfig { frequency_penalty: 0.7, presence_penalty: 0.5, ..off.clone() },
        ),
        ("bias", SamplerConfig { logit_bias: vec![(0, 1.5), (3, f32::NEG_INFINITY)], ..off }),
        (
            "everything",
            SamplerConfig {
                temp: 0.9,
                top_k: 4,
                top_p: 0.97,
                min_p: 0.02,
                typical_p: 0.98,
                repeat_penalty: 1.2,
                frequency_penalty: 0.3,
                presence_penalty: 0.2,
                repeat_last_n: 3,
                logit_bias: vec![(2, -0.5)],
                seed: None,
            },
        ),
    ]
}

fn found_out(config: &SamplerConfig, lookup: bool, rule: Rule) -> f64 {
    let mut next = |text: &[u32]| {
        let history = [&PROMPT, text].concat();
        distribution(config, &logits(&history, false), &history)
    };
    let count = if rule == Rule::Right { TEXTS } else { WRONG_TEXTS };
    deviation(&texts(config, lookup, rule, count), &exact(&mut next, TEXT))
}

#[test]
fn a_million_draws_under_every_setting_are_plain_samplings() {
    for (name, config) in configs() {
        for lookup in [false, true] {
            let z = found_out(&config, lookup, Rule::Right);
            assert!(z < 5.0, "{name}, lookup {lookup}: {z:.1} standard deviations off");
        }
    }
}

#[test]
fn wrong_rules_are_found_out() {
    for (name, config) in configs() {
        let z = found_out(&config, false, Rule::ResamplesFromP);
        assert!(z > 10.0, "resampling from p, {name}: only {z:.1}");
        let penalized = config.repeat_penalty != 1.0 || config.frequency_penalty != 0.0;
        if penalized {
            let z = found_out(&config, false, Rule::PenaltiesOncePerRound);
            assert!(z > 10.0, "penalties once per round, {name}: only {z:.1}");
        }
        if name != "temperature 1" {
            let z = found_out(&config, false, Rule::UnprocessedQ);
            assert!(z > 10.0, "unprocessed q, {name}: only {z:.1}");
        }
    }
}

/// The loop itself, on a tiny model: the first tokens of many runs.
#[test]
fn whole_runs_follow_the_models_distribution() {
    const RUNS: u64 = 12_000;
    const LENGTH: usize = 3;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny/qwen2.gguf");
    let model = load(&path);
    let mut context = context(&model, |c| (c.n_ctx, c.threads) = (32, 1));
    let prompt = [5, 9, 5, 9];
    let config = SamplerConfig {
        temp: 0.7,
        top_k: 4,
        top_p: 1.0,
        min_p: 0.0,
        presence_penalty: 0.8,
        ..SamplerConfig::default()
    };
    let mut next = |text: &[u32]| {
        let history = [&prompt, text].concat();
        distribution(&config, &next_logits(&mut context, &history), &history)
    };
    let exact = exact(&mut next, LENGTH);
    let layers = model.n_layer();
    let tokenizer = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
    for (repeatable, lookup) in [(false, false), (true, false), (false, true)] {
        let mut counts = BTreeMap::new();
        for seed in 0..RUNS {
            let mut sampler = Sampler::new(SamplerConfig { seed: Some(seed), ..config.clone() }).unwrap();
            let proposer: Box<dyn Proposer> = match lookup {
                true => Box::new(NgramProposer::new(1, 4)),
                false => Box::new(MaskProposer::exit(layers, layers - 1)),
            };
            let (proposers, policy) = (&mut [proposer], &mut Fixed::default());
            let mut speculation = Speculation { proposers, policy, repeatable };
            let request = Request {
                prompt: &prompt,
                max_tokens: Some(LENGTH),
                ignore_eos: true,
                shift_keep: None,
                logprobs: 0,
            };
            let on_token = |_| Ok(ControlFlow::Continue(()));
            let (out, _) =
                speculate(&mut context, &tokenizer, &mut sampler, &request, &mut speculation, on_token)
                    .unwrap();
            *counts.entry(out.tokens).or_insert(0) += 1;
        }
        let z = deviation(&counts, &exact);
        assert!(z < 5.0, "repeatable {repeatable}, lookup {lookup}: {z:.1} standard deviations off");
    }
}

fn next_logits(context: &mut Context, text: &[u32]) -> Vec<f32> {
    context.remove(0);
    context.decode(&Batch::prompt(text, 0, 0)).unwrap();
    context.logits(0).to_vec()
}
