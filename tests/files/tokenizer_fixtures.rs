//! llama.cpp's own vocabularies and expected ids, and round trips over them.

use crate::{
    common::{fixture, silent_tokens},
    tokenizer_support,
};
use std::{collections::HashSet, fs, path::PathBuf};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use spec_run::tokenizer::{EncodeOptions, StreamDecoder};
use tokenizer_support::{open, optional_fixture};

struct Vocabulary {
    name: &'static str,
    origin: Origin,
    /// A token that ends a generation.
    end: (u32, &'static str),
}

enum Origin {
    /// The fixtures.
    Fixtures,
    /// There too if anywhere, or else in the source of llama.cpp that `SPEC_RUN_LLAMA_CPP` names.
    LlamaCpp,
}
use Origin::{Fixtures, LlamaCpp};

const fn vocabulary(origin: Origin, name: &'static str, end: u32, end_text: &'static str) -> Vocabulary {
    Vocabulary { name, origin, end: (end, end_text) }
}

const VOCABULARIES: &[Vocabulary] = &[
    vocabulary(Fixtures, "deepseek-llm", 100001, "<｜end▁of▁sentence｜>"),
    vocabulary(Fixtures, "falcon", 11, "<|endoftext|>"),
    vocabulary(Fixtures, "gpt-2", 50256, "<|endoftext|>"),
    vocabulary(Fixtures, "llama-bpe", 128009, "<|eot_id|>"),
    vocabulary(Fixtures, "llama-spm", 2, "</s>"),
    vocabulary(Fixtures, "qwen2", 151645, "<|im_end|>"),
    vocabulary(Fixtures, "starcoder", 0, "<|endoftext|>"),
    vocabulary(LlamaCpp, "command-r", 255001, "<|END_OF_TURN_TOKEN|>"),
    vocabulary(LlamaCpp, "deepseek-coder", 32014, "<｜end▁of▁sentence｜>"),
    vocabulary(LlamaCpp, "gemma-4", 106, "<turn|>"),
    vocabulary(LlamaCpp, "phi-3", 32000, "<|endoftext|>"),
    vocabulary(LlamaCpp, "qwen35", 151645, "<|im_end|>"),
    vocabulary(LlamaCpp, "refact", 0, "<|endoftext|>"),
];

/// Those that are there; of the others stderr has the name and the reason.
fn vocabularies() -> impl Iterator<Item = (&'static Vocabulary, PathBuf)> {
    VOCABULARIES.iter().filter_map(|vocabulary| {
        let file = format!("ggml-vocab-{}.gguf", vocabulary.name);
        let path = match vocabulary.origin {
            Fixtures => fixture("vocabularies", &format!("vocab/{file}")),
            LlamaCpp => optional_fixture(&format!("vocab/{file}"), &format!("models/{file}")),
        };
        Some((vocabulary, path?))
    })
}

#[test]
fn ids_are_llama_cpps() {
    for (Vocabulary { name, .. }, path) in vocabularies() {
        let tokenizer = open(&path);
        let beside = |extension: &str| fs::read_to_string(path.with_extension(extension)).unwrap();
        let (texts, ids) = (beside("gguf.inp"), beside("gguf.out"));
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        let ids: Vec<&str> = ids.lines().collect();
        // The last separator ends the file, so an empty text follows it.
        assert!(texts.len() > 40 && (texts.len() == ids.len() || texts.len() == ids.len() + 1), "{name}");
        for (text, ids) in texts.iter().zip(ids) {
            let expected: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
            assert_eq!(tokenizer.encode(text, EncodeOptions::PLAIN), expected, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&expected), text.as_bytes(), "{name}: {text:?}");
        }
    }
}

#[test]
fn every_vocabulary_serves_grammars() {
    let refused = vocabularies()
        .map(|(Vocabulary { name, .. }, path)| silent_tokens::are_never_chosen(name, &open(&path)));
    println!("{} times a token without bytes was not allowed", refused.sum::<usize>());
}

#[test]
fn any_unicode_text_comes_back() {
    for (Vocabulary { name, .. }, path) in vocabularies() {
        let tokenizer = open(&path);
        let texts = prop_oneof![
            "\\PC{0,40}",
            "[ \t\r\n\u{a0}\u{3000}a-c0-9'.]{0,60}",
            proptest::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter),
        ];
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(300) });
        // Falcon and starcoder have no tokens for some control bytes and unused planes; llama.cpp drops them, too.
        let known: HashSet<u8> = (0..tokenizer.vocab_size() as u32)
            .filter_map(|id| <[u8; 1]>::try_from(tokenizer.piece(id)).ok())
            .map(|[byte]| byte)
            .collect();
        let result = runner.run(&texts, |text| {
            let text: String = text
                .chars()
                .filter(|c| c.encode_utf8(&mut [0; 4]).bytes().all(|b| known.contains(&b)))
                // Some vocabularies write a space so, and cannot tell the two apart.
                .filter(|&c| c != '▁')
                .collect();
            for options in [EncodeOptions::PLAIN, EncodeOptions::PROMPT] {
                let ids = tokenizer.encode(&text, options);
                prop_assert_eq!(tokenizer.decode(&ids), text.as_bytes(), "{:?}", ids);
            }
            let ids = tokenizer.encode(&text, EncodeOptions::PLAIN);
            let mut stream = StreamDecoder::new(&tokenizer);
            let streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
            let streamed = streamed + &stream.finish();
            let whole: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.piece(id)).copied().collect();
            prop_assert_eq!(streamed.as_bytes(), whole);
            Ok(())
        });
        result.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn prompts_of_the_reference_begin_with_bos() {
    let Some(reference) = fixture("prompts_of_the_reference_begin_with_bos", "reference.json") else {
        return;
    };
    let reference: serde_json::Value = serde_json::from_str(&fs::read_to_string(reference).unwrap()).unwrap();
    let greedy = reference["greedy"].as_array().unwrap();
    assert!(!greedy.is_empty());
    for entry in greedy {
        let model = entry["model"].as_str().unwrap();
        let file = if model.ends_with(".gguf") { model.to_owned() } else { format!("{model}.gguf") };
        let Some(path) = fixture("prompts_of_the_reference_begin_with_bos", &format!("models/{file}")) else {
            return;
        };
        let tokenizer = open(&path);
        let ids = |key: &str| serde_json::from_value::<Vec<u32>>(entry[key].clone()).unwrap();
        let prompt = entry["prompt"].as_str().unwrap();
        assert_eq!(tokenizer.encode(prompt, EncodeOptions::PROMPT), ids("prompt_ids"), "{prompt:?}");
        let mut stream = StreamDecoder::new(&tokenizer);
        let text: String = ids("tokens").iter().map(|&id| stream.push(id)).collect();
        assert_eq!(text + &stream.finish(), entry["text"].as_str().unwrap());
    }
}

#[test]
fn ends_of_generation_are_found() {
    for (&Vocabulary { name, end: (id, text), .. }, path) in vocabularies() {
        let tokenizer = open(&path);
        assert_eq!(tokenizer.token_text(id), text, "{name}");
        assert!(tokenizer.is_eog(id) && tokenizer.is_control(id), "{name}");
        assert!(!tokenizer.is_eog(300), "{name}");
        assert_eq!(tokenizer.warnings(), [""; 0], "{name}");
    }
}

#[test]
fn control_tokens_in_text_are_read_only_if_asked() {
    let Some(path) =
        fixture("control_tokens_in_text_are_read_only_if_asked", "vocab/ggml-vocab-llama-bpe.gguf")
    else {
        return;
    };
    let tokenizer = open(&path);
    let text = "<|begin_of_text|>Hello<|eot_id|>";
    let parsed = EncodeOptions { add_special: false, parse_special: true };
    assert_eq!(tokenizer.encode(text, parsed), [128000, 9906, 128009]);
    let plain = tokenizer.encode(text, EncodeOptions::PLAIN);
    assert!(plain.len() > 6 && !plain.iter().any(|&id| tokenizer.is_control(id)));
    assert_eq!(tokenizer.encode("Hello", EncodeOptions::PROMPT), [128000, 9906]);
}

/// Encoders' vocabularies: WordPiece, and unigrams with a table of characters. They forget blanks and case, so texts do not come
/// back.
#[test]
fn ids_of_encoders_are_llama_cpps() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/encoder_tokens.json");
    let golden: serde_json::Value = serde_json::from_str(&fs::read_to_string(golden).unwrap()).unwrap();
    let texts: Vec<String> = serde_json::from_value(golden["texts"].clone()).unwrap();
    for name in ["bert-bge", "nomic-bert-moe"] {
        let file = format!("ggml-vocab-{name}.gguf");
        let path = optional_fixture(&format!("vocab/{file}"), &format!("models/{file}"));
        let Some(path) = path else { continue };
        let tokenizer = open(&path);
        let ids: Vec<Vec<u32>> = serde_json::from_value(golden[name].clone()).unwrap();
        assert!(ids.len() == texts.len() && ids.len() > 50, "{name}");
        for (text, ids) in texts.iter().zip(ids) {
            assert_eq!(tokenizer.encode(text, EncodeOptions::PROMPT), ids, "{name}: {text:?}");
        }
    }
}
