//! Texts of many kinds as llama-server's tokens, and vocabularies in grammars.

use crate::{ALL, golden, ids, models, tokenizer};
use spec_run::{
    constraint::{Grammar, Vocabulary},
    sampler::Rule,
    tokenizer::EncodeOptions,
};

#[test]
fn texts_have_llama_servers_tokens() {
    let golden = golden("tokens.json");
    let texts = golden["texts"].as_array().unwrap();
    assert!(texts.len() >= 60);
    for (real, path) in models("texts_have_llama_servers_tokens", &ALL) {
        let tokenizer = tokenizer(&path);
        let of_model = &golden["models"][real.name];
        for (kind, options) in [("special", EncodeOptions::PROMPT), ("plain", EncodeOptions::PLAIN)] {
            for (text, want) in texts.iter().zip(of_model[kind].as_array().unwrap()) {
                let text = text.as_str().unwrap();
                assert_eq!(tokenizer.encode(text, options), ids(want), "{}, {kind}: {text:?}", real.name);
            }
        }
    }
}

/// No token without bytes may be chosen by a grammar, except one that ends a text.
#[test]
fn vocabularies_serve_grammars() {
    for (real, path) in models("vocabularies_serve_grammars", &ALL) {
        let tokenizer = tokenizer(&path);
        let vocabulary = Vocabulary::new(&tokenizer).unwrap();
        for grammar in [Grammar::Json, Grammar::Gbnf("root ::= .*".into())] {
            let mut constraint = vocabulary.compile(&grammar).unwrap();
            let mut logits = vec![0.0; tokenizer.vocab_size()];
            constraint.mask(&[], &mut logits);
            assert!(logits.contains(&0.0), "{}: {grammar:?} allows nothing", real.name);
            let silent = (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.piece(id).is_empty());
            for id in silent.filter(|&id| !tokenizer.is_eog(id)) {
                assert!(logits[id as usize] < 0.0, "{}: {grammar:?} allows token {id}", real.name);
            }
        }
    }
}
