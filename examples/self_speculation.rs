//! Self-speculative decoding by hand: the first half of the model drafts, all of it verifies. The text is that of
//! plain decoding, token for token. `cargo run --release --example self_speculation -- [MODEL.gguf]`

use std::{path::Path, sync::Arc};

use spec_run::{
    Batch, Context, ContextConfig, Gguf, Model, Result, RunLayers, Tokenizer, embedded, scores::greedy,
    tokenizer::EncodeOptions,
};

const DRAFTED: usize = 3;
const TEXT: u32 = 0;
const DRAFT: u32 = 1;

fn main() -> Result<()> {
    let gguf = Arc::new(match std::env::args().nth(1) {
        Some(path) => Gguf::open(Path::new(&path))?,
        None => embedded::open()?,
    });
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let n_layer = model.n_layer();
    let mut context = Context::new(model, &ContextConfig { n_ctx: 256, ..Default::default() })?;
    let mask = RunLayers::exit(n_layer, n_layer / 2);
    let mut text =
        tokenizer.encode("Once upon a time", EncodeOptions { add_special: true, parse_special: false });
    let prompt = text.len();
    context.decode(&Batch::prompt(&text, 0, TEXT))?;
    text.push(greedy(context.logits(0)));
    let mut rounds = 0;

    // In each round the cache holds all of the text but its last token.
    while text.len() < prompt + 96 && !tokenizer.is_eog(text[text.len() - 1]) {
        let known = text.len() - 1;
        // The draft: a fork that reads the full model's keys and values, and skips layers from here on.
        context.fork(TEXT, DRAFT);
        let mut tokens = vec![text[known]];
        for i in 0..DRAFTED {
            let step = Batch::prompt(&tokens[i..], (known + i) as u32, DRAFT).with_layers(mask.clone());
            context.decode(&step)?;
            tokens.push(greedy(context.logits(0)));
        }
        context.remove(DRAFT);
        // The verification: one batch of the last token and all drafts, with logits after each.
        let mut batch = Batch::new();
        for (pos, &token) in (known as u32..).zip(&tokens) {
            batch.push(token, pos, TEXT, true);
        }
        context.decode(&batch)?;
        // What the full model says decides; a draft stands while it said the same.
        for i in 0..tokens.len() {
            let token = greedy(context.logits(i));
            text.push(token);
            if tokenizer.is_eog(token) || tokens.get(i + 1) != Some(&token) {
                break;
            }
        }
        context.truncate(TEXT, text.len() - 1)?;
        rounds += 1;
    }
    let made = text.len() - prompt;
    println!("{}", String::from_utf8_lossy(&tokenizer.decode(&text)));
    println!("{made} tokens in {rounds} rounds, {:.2} tokens a round", (made - 1) as f64 / rounds as f64);
    Ok(())
}
