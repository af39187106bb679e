//! Texts keep to their grammars, and are the same with drafts and without.

use crate::common::{context, embedded_model};
use serde_json::Value;
use spec_run::{
    Context, Sampler, Tokenizer,
    constraint::{Constraint, ForcedTokens, Grammar, Vocabulary},
    embedded,
    generate::{Generation, Request, Speculation, Stop, generate, speculate},
    sampler::{Mirostat, SamplerConfig},
    speculation::{Fixed, MaskProposer, NgramProposer, Proposer, Report},
    tokenizer::EncodeOptions,
};
use std::ops::ControlFlow;

struct Desk {
    context: Context,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    prompt: Vec<u32>,
}

impl Desk {
    fn new() -> Self {
        let tokenizer = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
        Desk {
            context: context(&embedded_model(), |c| (c.n_ctx, c.threads) = (256, 1)),
            vocabulary: Vocabulary::new(&tokenizer).unwrap(),
            prompt: tokenizer.encode("Lily said:", EncodeOptions::PROMPT),
            tokenizer,
        }
    }

    fn plain(&mut self, config: &SamplerConfig, constraint: &Constraint) -> Generation {
        let Desk { context, tokenizer, prompt, .. } = self;
        let go_on = |_| Ok(ControlFlow::Continue(()));
        generate(context, tokenizer, &mut bound(config, constraint), &request(prompt), go_on).unwrap()
    }

    fn drafted(
        &mut self,
        config: &SamplerConfig,
        constraint: &Constraint,
        proposers: &mut [Box<dyn Proposer>],
    ) -> (Generation, Report) {
        let Desk { context, tokenizer, prompt, .. } = self;
        let mut speculation = Speculation { proposers, policy: &mut Fixed { max: 5, ..Fixed::default() } };
        let (mut sampler, request) = (bound(config, constraint), request(prompt));
        let go_on = |_| Ok(ControlFlow::Continue(()));
        speculate(context, tokenizer, &mut sampler, &request, &mut speculation, go_on).unwrap()
    }

    fn text(&self, out: &Generation) -> String {
        let bytes: Vec<u8> = out.tokens.iter().flat_map(|&id| self.tokenizer.piece(id).to_vec()).collect();
        String::from_utf8(bytes).unwrap()
    }
}

fn bound(config: &SamplerConfig, constraint: &Constraint) -> Sampler {
    let mut sampler = Sampler::new(config.clone()).unwrap();
    sampler.bind(Box::new(constraint.fresh()));
    sampler
}

fn request(prompt: &[u32]) -> Request {
    Request { max_tokens: Some(150), logprobs: 2, ..Request::new(prompt) }
}

type Check = fn(&str) -> bool;

fn grammars() -> Vec<(Grammar, Check)> {
    let schema = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 99}, "colour": {"enum": ["red", "green"]}},
        "required": ["name", "age", "colour"], "additionalProperties": false}"#;
    let is_person = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        let age = value["age"].as_u64().unwrap();
        value["name"].is_string() && (1..100).contains(&age) && value.as_object().unwrap().len() == 3
    };
    let gbnf = "root ::= \"- \" item{2} \"The end.\"\nitem ::= [a-z]{1,8} (\", \" [a-z]{1,5})? \"\\n- \"";
    let is_list = |text: &str| text.starts_with("- ") && text.ends_with("\n- The end.");
    let lark = "start: \"I am \" (\"Lily\" | \"Tom and I am happy to see you\") /[.!]/\n";
    let is_greeting = |text: &str| text.starts_with("I am ") && text.ends_with(['.', '!']);
    vec![
        (Grammar::JsonSchema(schema.into()), is_person),
        (Grammar::Gbnf(gbnf.into()), is_list),
        (Grammar::Lark(lark.into()), is_greeting),
    ]
}

#[test]
fn constrained_texts_are_the_same_with_drafts_and_without() {
    let mut desk = Desk::new();
    let layers = embedded_model().n_layer();
    let sampled = |seed| SamplerConfig { seed: Some(seed), ..SamplerConfig::default() };
    let configs = [
        SamplerConfig::greedy(),
        sampled(1),
        sampled(2),
        SamplerConfig { repeat_penalty: 1.3, ..sampled(3) },
        SamplerConfig { mirostat: Some(Mirostat::Two), ..sampled(4) },
    ];
    for (grammar, check) in grammars() {
        let constraint = desk.vocabulary.compile(&grammar).unwrap();
        let mut accepted_of_grammar = 0;
        for config in &configs {
            let plain = desk.plain(config, &constraint);
            if plain.stop == Stop::EndOfText {
                let text = desk.text(&plain);
                assert!(check(&text), "{grammar:?}: {text:?}");
            }
            let forced = || -> Box<dyn Proposer> {
                Box::new(ForcedTokens::new(&desk.vocabulary, &constraint, desk.prompt.len()))
            };
            let drafts: [Vec<Box<dyn Proposer>>; 5] = [
                vec![forced()],
                vec![forced(), Box::new(MaskProposer::exit(layers, layers / 2))],
                vec![Box::new(MaskProposer::exit(layers, 2))],
                vec![Box::new(MaskProposer::exit(layers, layers - 2)), Box::new(NgramProposer::new(1, 4))],
                vec![Box::new(NgramProposer::new(1, 4))],
            ];
            for (i, mut proposers) in drafts.into_iter().enumerate() {
                let (out, report) = desk.drafted(config, &constraint, &mut proposers);
                assert_eq!(out.tokens, plain.tokens, "draft {i}, {config:?}, {grammar:?}");
                assert_eq!((out.stop, &out.logprobs), (plain.stop, &plain.logprobs));
                if i == 0 {
                    accepted_of_grammar += report.drafting.accepted;
                }
            }
        }
        assert!(accepted_of_grammar >= 10, "{accepted_of_grammar} forced tokens stood, {grammar:?}");
    }
}

#[test]
fn a_greedy_text_ends_where_its_grammar_does() {
    let mut desk = Desk::new();
    for (grammar, check) in grammars() {
        let constraint = desk.vocabulary.compile(&grammar).unwrap();
        let out = desk.plain(&SamplerConfig::greedy(), &constraint);
        let text = desk.text(&out);
        assert!(out.stop == Stop::EndOfText && check(&text), "{grammar:?}: {text:?}");
    }
}
