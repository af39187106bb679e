//! Plain generation: `cargo run --release --example generate -- [MODEL.gguf]`.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use spec_run::{
    Context, ContextConfig, Gguf, Model, Result, Sampler, Tokenizer, embedded,
    generate::{Request, generate},
    sampler::SamplerConfig,
    tokenizer::{EncodeOptions, StreamDecoder},
};

fn main() -> Result<()> {
    let gguf = Arc::new(match std::env::args().nth(1) {
        Some(path) => Gguf::open(Path::new(&path))?,
        None => embedded::open()?,
    });
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let mut context = Context::new(model, &ContextConfig { n_ctx: 256, ..Default::default() })?;
    let mut sampler = Sampler::new(SamplerConfig { seed: Some(1), ..Default::default() })?;

    let prompt = "Once upon a time, a little fox";
    let ids = tokenizer.encode(prompt, EncodeOptions { add_special: true, parse_special: false });
    let request = Request { max_tokens: Some(64), ..Request::new(&ids) };
    let mut stream = StreamDecoder::new(&tokenizer);
    print!("{prompt}");
    let made = generate(&mut context, &tokenizer, &mut sampler, &request, |token| {
        // A token may end in the middle of a character: the stream holds it back until it is whole.
        print!("{}", stream.push(token));
        Ok(ControlFlow::Continue(()))
    })?;
    println!("\n{} tokens, {:?}", made.tokens.len(), made.stop);
    Ok(())
}
