//! Perplexities and log-probabilities beside a forward pass in numpy, whose numbers are not rounded on the way. Rows are rounded
//! to 8 bits before they are multiplied here, as in llama.cpp; on the mean we are to be no farther from the truth than it is, by
//! more than a tenth: over all tokens of a text both are equally far.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    ALL,
    common::{context, families::log_probabilities, fixture, load},
    golden, ids, models, tokenizer,
};
use spec_run::{Batch, Context, Model, tokenizer::EncodeOptions};

/// Of llama.cpp's error.
const MORE: f64 = 1.1;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Log-probabilities of all tokens behind each position from `first` on.
fn rows(context: &mut Context, text: &[u32], first: usize) -> Vec<Vec<f32>> {
    context.remove(0);
    let mut batch = Batch::new();
    for (pos, &token) in text.iter().enumerate() {
        batch.push(token, pos as u32, 0, pos >= first);
    }
    context.decode(&batch).unwrap();
    (0..text.len() - first).map(|i| log_probabilities(context.logits(i))).collect()
}

/// The numbers of a model, where they have been made.
fn numbers_of<'g>(test: &str, golden: &'g Value, name: &str) -> Option<&'g Value> {
    let found = golden.get(name);
    if found.is_none() {
        eprintln!("NOT RUN: {test} on {name}: its numbers have not been made");
    }
    found
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

fn open(model: &Arc<Model>, tokens: u32) -> Context {
    context(model, |c| c.n_ctx = tokens)
}

#[test]
fn the_likeliest_tokens_have_the_numbers_of_a_pass_in_floats() {
    const TEST: &str = "the_likeliest_tokens_have_the_numbers_of_a_pass_in_floats";
    let golden = golden("numbers.json");
    for (real, path) in models(TEST, &ALL) {
        let Some(golden) = numbers_of(TEST, &golden, real.name) else { continue };
        let model = load(&path);
        let mut context = open(&model, 512);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for prompt in golden["prompts"].as_array().unwrap() {
            let (start, greedy) = (ids(&prompt["tokens"]), ids(&prompt["greedy"]));
            let encoded = tokenizer(&path).encode(prompt["text"].as_str().unwrap(), EncodeOptions::PROMPT);
            assert_eq!(encoded, start, "{}", real.name);
            let text = [start.clone(), greedy].concat();
            let rows = rows(&mut context, &text, start.len() - 1);
            let positions = prompt["positions"].as_array().unwrap();
            assert_eq!(rows.len(), positions.len());
            for (row, position) in rows.iter().zip(positions) {
                let [exact, peer] = ["logprobs", "llama_cpp"].map(|key| numbers(&position[key]));
                for ((id, exact), peer) in ids(&position["tokens"]).into_iter().zip(exact).zip(peer) {
                    ours.push((f64::from(row[id as usize]) - exact).abs());
                    theirs.push((peer - exact).abs());
                }
            }
        }
        let (ours, theirs) = (mean(&ours), mean(&theirs));
        println!("{}: mean error {ours:.4}, llama.cpp's {theirs:.4}", real.name);
        assert!(ours <= MORE * theirs, "{}: {ours} {theirs}", real.name);
    }
}

#[test]
fn perplexities_are_those_of_a_pass_in_floats() {
    const TEST: &str = "perplexities_are_those_of_a_pass_in_floats";
    let golden = golden("numbers.json");
    for (real, path) in models(TEST, &ALL) {
        let Some(golden) = numbers_of(TEST, &golden, real.name) else { continue };
        let (model, tokenizer) = (load(&path), tokenizer(&path));
        for job in golden["perplexities"].as_array().unwrap() {
            let Some(file) = fixture(TEST, &format!("text/{}", job["text"].as_str().unwrap())) else {
                continue;
            };
            let text = std::fs::read_to_string(file).unwrap();
            let tokens = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false });
            let count = |key: &str| job[key].as_u64().unwrap() as usize;
            let (length, chunks) = (count("context"), count("chunks"));
            let mut context = open(&model, length as u32);
            let mut found = Vec::new();
            for chunk in tokens.chunks_exact(length).take(chunks) {
                let mut chunk = chunk.to_vec();
                chunk[0] = tokenizer.added_bos().unwrap_or(chunk[0]);
                let half = length / 2;
                let rows = rows(&mut context, &chunk, half);
                let counted = rows[..length - half - 1].iter().zip(&chunk[half + 1..]);
                found.extend(counted.map(|(row, &next)| f64::from(row[next as usize])));
            }
            let exact: Vec<f64> = job["logprobs"].as_array().unwrap().iter().flat_map(numbers).collect();
            assert_eq!(found.len(), exact.len());
            let errors: Vec<f64> = found.iter().zip(&exact).map(|(a, b)| (a - b).abs()).collect();
            let (error, theirs) = (mean(&errors), job["llama_cpp"]["mean_error"].as_f64().unwrap());
            let (perplexity, want) = ((-mean(&found)).exp(), job["perplexity"].as_f64().unwrap());
            let name = format!("{}, {} at {length}", real.name, job["text"]);
            println!(
                "{name}: {perplexity:.4}, exactly {want:.4}; mean error {error:.4}, llama.cpp's {theirs:.4}"
            );
            assert!((perplexity / want - 1.0).abs() < 0.01, "{name}: {perplexity} {want}");
            assert!(error <= MORE * theirs, "{name}: {error} {theirs}");
        }
    }
}
