//! Texts of many kinds as llama-server's tokens, and vocabularies in grammars.

use spec_run::tokenizer::EncodeOptions;

use crate::{ALL, common::silent_tokens, golden, ids, models, tokenizer};

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

#[test]
fn vocabularies_serve_grammars() {
    for (real, path) in models("vocabularies_serve_grammars", &ALL) {
        silent_tokens::are_never_chosen(real.name, &tokenizer(&path));
    }
}
