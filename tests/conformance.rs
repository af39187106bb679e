//! Against llama.cpp: perplexities, greedy texts and log-probabilities in `reference.json` of the fixtures.

mod common;

use std::{fs, ops::ControlFlow};

use common::{context, fixture, load};
use serde::Deserialize;
use spec_run::{
    Gguf, Model, Sampler, Tokenizer,
    eval::perplexity::{Settings, Tally, perplexity},
    generate::{Request, generate},
    sampler::SamplerConfig,
    tokenizer::EncodeOptions,
};

const WITH_BOS: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

#[derive(Deserialize)]
struct Reference {
    perplexity: Vec<Perplexity>,
    greedy: Vec<Greedy>,
}

#[derive(Deserialize)]
struct Perplexity {
    model: String,
    text: String,
    ctx: usize,
    ppl: f64,
    stderr: f64,
    chunks: usize,
}

#[derive(Deserialize)]
struct Greedy {
    model: String,
    prompt: String,
    prompt_ids: Vec<u32>,
    tokens: Vec<u32>,
    /// Per position the likeliest tokens and their log-probabilities.
    top: Vec<Vec<(u32, f64)>>,
}

/// llama.cpp computes F32 and F16 files in floats; for the others it quantizes activations as we do, each in
/// its own way.
fn is_float(model: &str) -> bool {
    model.contains("f16") || model.contains("260K")
}

fn reference(test: &str) -> Option<Reference> {
    let path = fixture(test, "reference.json")?;
    Some(serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
}

#[test]
fn perplexity_is_llama_cpps() {
    const TEST: &str = "perplexity_is_llama_cpps";
    let Some(reference) = reference(TEST) else { return };
    let mut failures = Vec::new();
    for want in reference.perplexity {
        let Some(path) = fixture(TEST, &format!("models/{}", want.model)) else { return };
        let Some(text) = fixture(TEST, &format!("text/{}", want.text)) else { return };
        let model = load(&path);
        let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
        let tokens = tokenizer.encode(&fs::read_to_string(text).unwrap(), WITH_BOS);
        let settings = Settings { n_ctx: want.ctx, bos: tokenizer.bos(), mask: None, max_chunks: None };
        let mut context = context(&model, |c| c.n_ctx = want.ctx as u32);
        let got = perplexity(&mut context, &tokens, &settings, Tally::default(), |_| Ok(ControlFlow::Continue(())));
        let got = got.unwrap();
        let off = got.ppl() / want.ppl - 1.0;
        println!(
            "{:24} {:16} {:10.4} llama.cpp {:10.4} {:+.4} %",
            want.model,
            want.text,
            got.ppl(),
            want.ppl,
            100.0 * off
        );
        let limit = if is_float(&want.model) { 1e-3 } else { 5e-3 };
        let stderr_off = got.stderr() / want.stderr - 1.0;
        if off.abs() > limit || stderr_off.abs() > 0.02 || got.chunks != want.chunks {
            failures.push(format!("{} on {}: {:.4}, not {:.4}", want.model, want.text, got.ppl(), want.ppl));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Decodes greedily along llama.cpp's own tokens, so that one difference does not hide the rest.
#[test]
fn greedy_tokens_and_log_probabilities_are_llama_cpps() {
    const TEST: &str = "greedy_tokens_and_log_probabilities_are_llama_cpps";
    /// What two candidates may lie apart and still change places.
    const TIE: f64 = 1e-3;
    const LOGPROB_TOLERANCE: f64 = 2e-3;
    let Some(reference) = reference(TEST) else { return };
    for want in reference.greedy.iter().filter(|want| is_float(&want.model)) {
        let Some(path) = fixture(TEST, &format!("models/{}", want.model)) else { return };
        let model = load(&path);
        let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
        let at = format!("{} {:?}", want.model, want.prompt);
        assert_eq!(tokenizer.encode(&want.prompt, WITH_BOS), want.prompt_ids, "{at}");

        let mut context = context(&model, |_| {});
        let mut text = want.prompt_ids.clone();
        context.decode(&spec_run::Batch::prompt(&text, 0, 0)).unwrap();
        for (position, &token) in want.tokens.iter().enumerate() {
            let logits = context.logits(0);
            let ours = spec_run::sampler::top_logprobs(logits, logits.len());
            let of = |id: u32| f64::from(ours.iter().find(|(i, _)| *i == id).unwrap().1);
            let best = ours[0];
            assert!(
                best.0 == token || f64::from(best.1) - of(token) < TIE,
                "{at}: token {position} is {}, llama.cpp has {token}",
                best.0
            );
            for &(id, logprob) in want.top.get(position).into_iter().flatten() {
                let off = (of(id) - logprob).abs();
                assert!(off < LOGPROB_TOLERANCE, "{at}: position {position}, token {id}: {} not {logprob}", of(id));
            }
            text.push(token);
            context.decode(&spec_run::Batch::prompt(&[token], text.len() as u32 - 1, 0)).unwrap();
        }
    }
}

/// The same through the loop that users get, up to the first tie.
#[test]
fn generate_gives_the_reference_text() {
    const TEST: &str = "generate_gives_the_reference_text";
    let Some(reference) = reference(TEST) else { return };
    for want in reference.greedy.iter().filter(|want| is_float(&want.model)) {
        let Some(path) = fixture(TEST, &format!("models/{}", want.model)) else { return };
        let model = std::sync::Arc::new(Model::load(std::sync::Arc::new(Gguf::open(&path).unwrap())).unwrap());
        let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
        let mut sampler = Sampler::new(SamplerConfig { temp: 0.0, ..SamplerConfig::default() });
        let request = Request {
            prompt: &want.prompt_ids,
            max_tokens: Some(want.tokens.len()),
            ignore_eos: true,
            shift_keep: None,
            logprobs: 0,
        };
        let mut context = context(&model, |_| {});
        let got =
            generate(&mut context, &tokenizer, &mut sampler, &request, |_| Ok(ControlFlow::Continue(()))).unwrap();
        let same = std::iter::zip(&got.tokens, &want.tokens).take_while(|(a, b)| a == b).count();
        // Every difference must be a tie, which the test above checks; most texts have none in 16 tokens.
        assert!(same >= 16, "{} {:?}: differs at token {same}", want.model, want.prompt);
    }
}
