//! A server of embeddings and ranks: llama.cpp's numbers in all shapes, the same bits under load, and what is refused.

use std::thread;

use serde_json::{Value, json};

use crate::common::server::Server;

fn golden(name: &str) -> String {
    format!("{}/tests/golden/embed/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn start(name: &str, args: &[&str]) -> Server {
    Server::start(&[&["-m", &golden(&format!("{name}.gguf")), "-c", "64", "--device", "cpu"], args].concat())
}

/// The texts that a model's places suffice for, and llama.cpp's vectors of them.
fn expected(name: &str, pooling: &str) -> (Vec<Vec<u32>>, Vec<Vec<Vec<f32>>>) {
    let json: Value = serde_json::from_slice(&std::fs::read(golden("embeddings.json")).unwrap()).unwrap();
    let texts: Vec<Vec<u32>> = serde_json::from_value(json["texts"].clone()).unwrap();
    let vectors = serde_json::from_value(json["models"][name][pooling].clone()).unwrap();
    (texts.into_iter().filter(|text| text.len() <= 64).collect(), vectors)
}

fn numbers(json: &Value) -> Vec<f32> {
    json.as_array().unwrap_or_else(|| panic!("{json}")).iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn length(x: &[f32]) -> f32 {
    x.iter().map(|x| x * x).sum::<f32>().sqrt()
}

#[test]
fn embeddings_over_http_are_llama_cpps() {
    let server = start("bert", &[]);
    let (texts, vectors) = expected("bert", "mean");
    let answer = server.json("/v1/embeddings", &json!({ "input": texts, "model": "mine" }));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("mine")));
    let tokens: usize = texts.iter().map(Vec::len).sum();
    assert_eq!(answer["usage"], json!({ "prompt_tokens": tokens, "total_tokens": tokens }));
    for (index, vectors) in vectors.iter().take(texts.len()).enumerate() {
        let of_text = &answer["data"][index];
        assert_eq!((&of_text["index"], &of_text["object"]), (&json!(index), &json!("embedding")));
        let (ours, theirs) = (numbers(&of_text["embedding"]), &vectors[0]);
        assert!((length(&ours) - 1.0).abs() < 1e-5);
        let off = ours.iter().zip(theirs).map(|(a, b)| (a - b / length(theirs)).abs()).fold(0.0, f32::max);
        assert!(off < 2e-3, "text {index}: {off}");
    }
    // llama-server's own shape has a list of vectors for each text; `content` asks for it everywhere.
    let plain = server.json("/embedding", &json!({ "input": texts[0] }));
    assert_eq!(plain[0]["embedding"][0], answer["data"][0]["embedding"]);
    assert_eq!(server.json("/v1/embeddings", &json!({ "content": texts[0] })), plain);
    assert_eq!(server.json("/embeddings", &json!({ "input": texts[0] })), plain);
    // As they are, and cut.
    let raw = server.json("/embedding", &json!({ "input": texts[0], "embd_normalize": -1 }));
    let off = numbers(&raw[0]["embedding"][0]).into_iter().zip(&vectors[0][0]).map(|(a, b)| (a - b).abs());
    assert!(off.fold(0.0, f32::max) < 3e-3);
    let cut = server.json("/v1/embeddings", &json!({ "input": texts[0], "dimensions": 8 }));
    let cut = numbers(&cut["data"][0]["embedding"]);
    assert!(cut.len() == 8 && (length(&cut) - 1.0).abs() < 1e-5);
    // The bytes of the same floats.
    let coded = server.json("/v1/embeddings", &json!({ "input": texts[0], "encoding_format": "base64" }));
    let coded = coded["data"][0]["embedding"].as_str().unwrap();
    let floats = numbers(&answer["data"][0]["embedding"]);
    assert_eq!(decoded(coded), floats.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
    let models = server.get("/v1/models");
    assert_eq!(models["data"][0]["meta"]["n_embd"], 32);
}

fn decoded(base64: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = base64.trim_end_matches('=').chars().flat_map(|c| {
        let digit = DIGITS.find(c).unwrap();
        (0..6).rev().map(move |bit| digit >> bit & 1)
    });
    let bits: Vec<usize> = bits.collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |all, &bit| 2 * all + bit) as u8).collect()
}

/// Texts of many requests share passes. No digit of an answer depends on it.
#[test]
fn an_embedding_is_the_same_alone_and_under_load() {
    let server = start("nomic-bert", &["-c", "512", "-b", "128"]);
    let text = |n: u32| -> Vec<u32> { (0..1 + n * 7 % 90).map(|i| 5 + (i * 3 + n) % 50).collect() };
    let ask = |n: u32| server.post("/v1/embeddings", &json!({ "input": [text(n), text(n + 40)] }));
    let alone: Vec<String> = (0..40).map(ask).collect();
    thread::scope(|scope| {
        for client in 0..8u32 {
            let (ask, alone) = (&ask, &alone);
            scope.spawn(move || {
                for i in 0..40u32 {
                    let n = (i * 7 + client * 5) % 40;
                    assert_eq!(ask(n), alone[n as usize], "client {client}, text {n}");
                }
            });
        }
    });
}

#[test]
fn answers_are_ranked_by_how_well_they_fit() {
    let server = start("bert-rank", &["--rerank"]);
    let (texts, scores) = expected("bert-rank", "rank");
    for (text, score) in texts.iter().zip(&scores) {
        let ours = server.json("/embedding", &json!({ "input": text }));
        let off = (numbers(&ours[0]["embedding"][0])[0] - score[0][0]).abs();
        assert!(off < 2e-3, "{text:?}: {off}");
    }
    let documents = ["c d e", "x", "a b", "z y x w v u t"];
    let ranked =
        server.json("/v1/rerank", &json!({ "query": "a b", "documents": documents, "model": "mine" }));
    let results = ranked["results"].as_array().unwrap();
    assert_eq!((results.len(), &ranked["model"]), (4, &json!("mine")));
    let of = |result: &Value| result["relevance_score"].as_f64().unwrap();
    assert!(results.windows(2).all(|pair| of(&pair[0]) >= of(&pair[1])), "{ranked}");
    // [CLS] a b [SEP] and the answer, by hand.
    let letter = |c: char| 5 + u32::from(c) - u32::from('a');
    for result in results {
        let document = documents[result["index"].as_u64().unwrap() as usize];
        let ids: Vec<u32> =
            [2, 5, 6, 3].into_iter().chain(document.chars().filter(|&c| c != ' ').map(letter)).collect();
        let alone = server.json("/embedding", &json!({ "input": ids }));
        assert_eq!(alone[0]["embedding"][0][0], result["relevance_score"], "{document}");
    }
    assert_eq!(ranked["usage"]["prompt_tokens"], 4 * 4 + 3 + 1 + 2 + 7);
    let top = server.json("/rerank", &json!({ "query": "a b", "documents": documents, "top_n": 2 }));
    assert_eq!(top["results"].as_array().unwrap()[..], results[..2]);
    let tei = server.json("/reranking", &json!({ "query": "a b", "texts": documents, "return_text": true }));
    assert_eq!(tei[0]["score"], results[0]["relevance_score"]);
    assert_eq!(tei[0]["text"], documents[results[0]["index"].as_u64().unwrap() as usize]);
    for wrong in [json!([]), json!(null), json!(123), json!([1, 2, 3])] {
        server.refuses("/rerank", &json!({ "query": "a", "documents": wrong }), 400, "");
    }
}

/// The shares of yes and no that a decoder's last row has.
#[test]
fn a_decoder_ranks_by_its_last_row() {
    let server = start("qwen3-rank", &["--embeddings", "-ctk", "f32", "-ctv", "f32"]);
    let (texts, scores) = expected("qwen3-rank", "rank");
    for (text, score) in texts.iter().zip(&scores) {
        let ours = numbers(&server.json("/embedding", &json!({ "input": text }))[0]["embedding"][0]);
        assert!((ours[0] - score[0][0]).abs() < 1e-5 && (ours[0] + ours[1] - 1.0).abs() < 1e-5);
    }
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let server = start("bert", &["-b", "32"]);
    let text = json!({ "messages": [{ "role": "user", "content": "a" }], "prompt": "a" });
    for (path, body, code, words) in [
        ("/v1/embeddings", json!({ "input": vec![5; 33] }), 400, "(33 tokens) is too large"),
        ("/v1/chat/completions", text.clone(), 501, "makes embeddings, not text"),
        ("/completion", text, 501, "makes embeddings, not text"),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b"] }), 501, ""),
        ("/v1/embeddings", json!({}), 400, ""),
        ("/v1/embeddings", json!({ "input": "a", "dimensions": 33 }), 400, "32 numbers"),
        ("/v1/embeddings", json!({ "input": [99999] }), 400, ""),
    ] {
        server.refuses(path, &body, code, words);
    }
    // An empty text has the tokens around it.
    assert_eq!(server.json("/v1/embeddings", &json!({ "input": "" }))["usage"]["prompt_tokens"], 2);
    let rows = start("bert", &["--pooling", "none"]);
    rows.refuses("/v1/embeddings", &json!({ "input": "a b c" }), 400, "");
    let rows = rows.json("/embeddings", &json!({ "input": "a b c" }));
    let rows = rows[0]["embedding"].as_array().unwrap();
    assert!(rows.len() == 5 && rows.iter().all(|row| (length(&numbers(row)) - 1.0).abs() > 1e-3));
}

/// The embedded model writes text; asked for embeddings it makes some, and no text then.
#[test]
fn a_model_that_writes_text_makes_embeddings_if_asked_to() {
    let text = Server::start(&[]);
    text.refuses("/v1/embeddings", &json!({ "input": "a" }), 501, "`embeddings`");
    let server = Server::start(&["--embeddings"]);
    let answer = server.json("/v1/embeddings", &json!({ "input": ["Once upon a time", "The end."] }));
    for of_text in answer["data"].as_array().unwrap() {
        assert!((length(&numbers(&of_text["embedding"])) - 1.0).abs() < 1e-5);
    }
}
