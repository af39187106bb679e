//! `spec-run embed`: vectors as llama-embedding prints them.

use serde_json::Value;

use crate::common::program::{run, stdout};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/embed/bert.gguf");
const RANK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/embed/bert-rank.gguf");

fn embed(model: &str, more: &[&str]) -> String {
    stdout(&[&["embed", "-q", "-m", model, "--device", "cpu"], more].concat())
}

#[test]
fn lines_are_texts_and_formats_are_llama_embeddings() {
    let texts = ["-p", "a b c\\nx y"];
    let with = |more: &[&str]| embed(MODEL, &[&texts, more].concat());
    let array: Vec<Vec<f32>> = serde_json::from_str(&with(&["--embd-output-format", "array"])).unwrap();
    assert_eq!(array.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32]);
    let json: Value = serde_json::from_str(&with(&["--embd-output-format", "json+"])).unwrap();
    let second: Vec<f32> = serde_json::from_value(json["data"][1]["embedding"].clone()).unwrap();
    assert_eq!(second, array[1]);
    let cosine: f32 = array[0].iter().zip(&array[1]).map(|(a, b)| a * b).sum();
    let printed = json["cosineSimilarity"][0][1].as_f64().unwrap() as f32;
    assert!((printed - cosine).abs() <= 0.0051, "{printed} {cosine}");
    let raw = with(&["--embd-output-format", "raw"]);
    let first: Vec<f32> = raw.lines().next().unwrap().split(' ').map(|x| x.parse().unwrap()).collect();
    assert!(raw.lines().count() == 2 && first == array[0]);
    let listing = with(&[]);
    assert!(
        listing.starts_with("embedding 0: ") && listing.contains("cosine similarity matrix:"),
        "{listing}"
    );
    // One text, whole numbers.
    let one = embed(MODEL, &["-p", "a", "--embd-normalize", "0", "--embd-output-format", "array"]);
    let one: Vec<Vec<i32>> = serde_json::from_str(&one).unwrap();
    assert_eq!(one[0].iter().map(|x| x.abs()).max(), Some(32760));
    let split = embed(MODEL, &["-p", "a<#>b<#>c", "--embd-separator", "<#>", "--embd-output-format", "raw"]);
    assert_eq!(split.lines().count(), 3);
    let tokens = embed(MODEL, &["-p", "a b c", "--pooling", "none", "--embd-output-format", "raw"]);
    assert_eq!(tokens.lines().count(), 5);
}

#[test]
fn questions_and_answers_get_a_score() {
    let scores = embed(RANK, &["--pooling", "rank", "-p", "a b\\tc d\\na b\\tx"]);
    assert_eq!(scores.lines().count(), 2);
    assert!(scores.lines().all(|line| line.starts_with("rerank score ")), "{scores}");
}

#[test]
fn what_cannot_be_embedded_is_one_line() {
    let long = "a ".repeat(70);
    for (args, code, words) in [
        (&["embed", "-m", MODEL, "-p", &long][..], 1, "text 1: the input (72 tokens) is too large"),
        (&["embed", "-m", MODEL, "-p", "a", "--pooling", "rank"], 1, "no head that says how well texts fit"),
        (&["embed", "-m", MODEL, "-p", "a", "--pooling", "middle"], 2, "--pooling"),
        (&["embed", "-m", MODEL, "-p", "a", "--attention", "causal"], 2, "--attention"),
        (&["-m", MODEL, "-p", "a"], 1, "makes embeddings, not text"),
        (&["perplexity", "-m", MODEL, "-p", "a"], 1, "makes embeddings, not text"),
        (&["bench", "-m", MODEL], 1, "makes embeddings, not text"),
    ] {
        run(args).refused(code, &[words]);
    }
}
