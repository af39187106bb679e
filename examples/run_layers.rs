//! Layers by hand: a pass with some sublayers skipped, beside the full one, on one cache.
//! `cargo run --release --example run_layers -- [MODEL.gguf]`

use std::{path::Path, sync::Arc};

use spec_run::{
    Batch, Context, ContextConfig, Gguf, Model, Result, RunLayers, Tokenizer, embedded,
    sampler::top_logprobs, tokenizer::EncodeOptions,
};

fn main() -> Result<()> {
    let gguf = Arc::new(match std::env::args().nth(1) {
        Some(path) => Gguf::open(Path::new(&path))?,
        None => embedded::open()?,
    });
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let n_layer = model.n_layer();
    let mut context = Context::new(model, &ContextConfig { n_ctx: 256, ..Default::default() })?;

    let text = "Tom had a red ball. He wanted to play with the";
    let ids = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: false });
    let (last, before) = ids.split_last().expect("a text has tokens");
    // All but the last token once, in full, on sequence 0.
    context.decode(&Batch::prompt(before, 0, 0))?;

    let half = n_layer / 2;
    let masks = [
        ("everything", RunLayers::all(n_layer)),
        (
            "no attention in the last half",
            (half..n_layer).fold(RunLayers::all(n_layer), RunLayers::skip_attn),
        ),
        ("no MLP in the last half", (half..n_layer).fold(RunLayers::all(n_layer), RunLayers::skip_mlp)),
        ("the first half only", RunLayers::exit(n_layer, half)),
    ];
    println!("{text} ..");
    for (name, mask) in masks {
        // A fork shares the cells of sequence 0: the masked row reads the full model's keys and values.
        context.fork(0, 1);
        context.decode(&Batch::prompt(&[*last], before.len() as u32, 1).with_layers(mask.clone()))?;
        let likeliest: Vec<String> = top_logprobs(context.logits(0), 3)
            .into_iter()
            .map(|(id, logprob)| {
                format!("{:?} {:.2}", String::from_utf8_lossy(tokenizer.piece(id)), logprob.exp())
            })
            .collect();
        println!(
            "{name:30} {:3.0} % of the bytes: {}",
            100.0 * context.mask_cost(&mask),
            likeliest.join(", ")
        );
        context.remove(1);
    }
    Ok(())
}
