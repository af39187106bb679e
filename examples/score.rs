//! How likely a model finds a text, token by token: `cargo run --release --example score -- [MODEL.gguf]`.
//! With a model it reads lists of token ids, one a line, and writes for each token but the first one of a list
//! its logarithm of probability and the token that would have been likeliest.

use std::{io::BufRead, path::Path, sync::Arc};

use serde_json::json;
use spec_run::{
    Batch, Context, ContextConfig, Error, Gguf, Model, Result, Tokenizer, embedded, scores::greedy,
    tokenizer::EncodeOptions,
};

const STORY: &str =
    "Once upon a time there was a little girl named Lily. She liked to play in the park with her dog.";

struct Score {
    logprob: f32,
    likeliest: u32,
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1);
    let gguf = Arc::new(match &path {
        Some(path) => Gguf::open(Path::new(path))?,
        None => embedded::open()?,
    });
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let mut context = Context::new(model, &ContextConfig { n_ctx: 2048, ..Default::default() })?;
    if path.is_none() {
        let ids = tokenizer.encode(STORY, EncodeOptions { add_special: true, parse_special: false });
        for (id, score) in ids[1..].iter().zip(score(&mut context, &ids)?) {
            let likeliest = tokenizer.token_text(score.likeliest);
            println!("{:10.6}  {:<12} {likeliest}", score.logprob, tokenizer.token_text(*id));
        }
        return Ok(());
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Error::io("the standard input", e))?;
        let ids: Vec<u32> = serde_json::from_str(&line).map_err(|e| Error::Input(e.to_string()))?;
        let scores = score(&mut context, &ids)?;
        let logprobs: Vec<f32> = scores.iter().map(|score| score.logprob).collect();
        let likeliest: Vec<u32> = scores.iter().map(|score| score.likeliest).collect();
        println!("{}", json!({ "logprobs": logprobs, "likeliest": likeliest }));
    }
    Ok(())
}

/// One token a pass, which is slow; several rows in a batch give the same bits.
fn score(context: &mut Context, ids: &[u32]) -> Result<Vec<Score>> {
    context.remove_all();
    let mut scores = Vec::new();
    for (pos, pair) in ids.windows(2).enumerate() {
        let mut batch = Batch::new();
        batch.push(pair[0], pos as u32, 0, true);
        context.decode(&batch)?;
        let logits = context.logits(0);
        let logit = logits.get(pair[1] as usize).copied();
        let logit = logit.ok_or_else(|| Error::Input(format!("token {}: there is none", pair[1])))?;
        let max = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
        let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - max).exp()).sum();
        let logprob = (f64::from(logit) - (max + sum.ln())) as f32;
        scores.push(Score { logprob, likeliest: greedy(logits) });
    }
    Ok(scores)
}
