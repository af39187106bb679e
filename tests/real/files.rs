//! Files that are made of a real model: quantized, with an importance matrix. llama.cpp reads them as we do.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    SMOLLM2,
    common::{
        program::{json, stdout},
        server::Server,
    },
    llama_server, models,
};

const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories-val.txt");

fn perplexity(path: &str) -> f64 {
    let json = json(&["perplexity", "-q", "-m", path, "-f", TEXT, "-c", "256", "--chunks", "4", "--json"]);
    json["ppl"].as_f64().unwrap_or_else(|| panic!("{json}"))
}

/// Of Q4_1 weights Q8_0 is nearly all; Q3_K_S loses something, and less of it with an importance matrix of its own text.
#[test]
fn a_quantized_model_is_nearly_the_model() {
    for (_, path) in models("a_quantized_model_is_nearly_the_model", &[SMOLLM2]) {
        let (folder, source) = (tempfile::tempdir().unwrap(), path.to_str().unwrap());
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let matrix = file("imatrix.gguf");
        stdout(&["imatrix", "-q", "-m", source, "-f", TEXT, "-c", "256", "--chunks", "8", "-o", &matrix]);
        let made = |name: &str, kind: &str, more: &[&str]| {
            let path = file(name);
            stdout(&[&["quantize", "--allow-requantize"], more, &[source, &path, kind]].concat());
            perplexity(&path)
        };
        let (whole, eight) = (perplexity(source), made("q8_0.gguf", "Q8_0", &[]));
        assert!((eight / whole - 1.0).abs() < 0.01, "Q8_0 {eight}, {whole}");
        let (three, weighted) =
            (made("q3.gguf", "Q3_K_S", &[]), made("q3i.gguf", "Q3_K_S", &["--imatrix", &matrix]));
        println!("{whole} Q8_0 {eight} Q3_K_S {three} with a matrix {weighted}");
        assert!(whole < weighted && weighted < three && three < 4.0 * whole, "{whole} {weighted} {three}");
    }
}

/// Positions of a greedy text, each with the likeliest tokens and their log-probabilities; the one that was taken is the first.
fn greedy(server: &Server, prompt: &str) -> Vec<Vec<(u64, f64)>> {
    let ask = json!({"prompt": prompt, "n_predict": 24, "n_probs": 10, "temperature": 0, "post_sampling_probs": false});
    let answer = server.json("/completion", &ask);
    let rows = answer["completion_probabilities"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let number = |top: &Value| (top["id"].as_u64().unwrap(), top["logprob"].as_f64().unwrap());
    rows.iter().map(|row| row["top_logprobs"].as_array().unwrap().iter().map(number).collect()).collect()
}

#[test]
fn llama_cpp_reads_what_was_quantized_as_we_do() {
    const TEST: &str = "llama_cpp_reads_what_was_quantized_as_we_do";
    /// Of log-probabilities: rows are rounded to 8 bits on both sides, at other places.
    const NEAR: f64 = 0.25;
    for (_, path) in models(TEST, &[SMOLLM2]) {
        let Some(theirs) = llama_server(TEST) else { return };
        let (folder, source) = (tempfile::tempdir().unwrap(), path.to_str().unwrap());
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (matrix, made) = (file("imatrix.gguf"), file("made.gguf"));
        stdout(&["imatrix", "-q", "-m", source, "-f", TEXT, "-c", "256", "--chunks", "8", "-o", &matrix]);
        stdout(&["quantize", "--allow-requantize", "--imatrix", &matrix, source, &made, "Q4_K_M"]);
        let ours = Server::start(&["-c", "1024", "--parallel", "1", "-m", &made]);
        let mut command = Command::new(&theirs);
        command.args(["-m", &made, "--port", "0", "-ngl", "0", "-c", "1024", "-np", "1", "-t", "2"]);
        command.env("LD_LIBRARY_PATH", theirs.parent().unwrap_or(Path::new(".")));
        let theirs = Server::of(command);
        let (mut positions, mut differences) = (0, Vec::new());
        for prompt in [
            "The capital of France is",
            "Once upon a time there was a little robot who",
            "def fibonacci(n):\n    ",
            "The three states of matter are",
            "Dear Sir or Madam,\n\nI am writing to",
            "1, 2, 3, 4, 5,",
            "<|im_start|>user\nWhat is a refrigerator?<|im_end|>\n<|im_start|>assistant\n",
            "Das Wetter ist heute",
        ] {
            for (mine, other) in greedy(&ours, prompt).iter().zip(&greedy(&theirs, prompt)) {
                positions += 1;
                let both =
                    mine.iter().filter_map(|(id, x)| Some((x, other.iter().find(|(o, _)| o == id)?.1)));
                differences.extend(both.map(|(x, y)| (x - y).abs()));
                if mine[0].0 != other[0].0 {
                    // Two tokens that are as likely as each other; what follows is another text.
                    let lead = mine[0].1 - mine[1].1;
                    assert!(lead < 2.0 * NEAR, "{prompt:?}: {mine:?} {other:?}");
                    break;
                }
            }
        }
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        println!(
            "{positions} positions, {} log-probabilities: {mean:.4} apart on the mean",
            differences.len()
        );
        assert!(positions > 80 && differences.len() > 700 && mean < NEAR, "{positions} {mean}");
    }
}
