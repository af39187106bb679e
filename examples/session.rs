//! A text from an engine, token by token, drafted by what suits the model: `cargo run --release --example session -- [MODEL.gguf]`.
//! Further jobs may be submitted to the same engine; they go on beside it, and no text changes for that.

use std::path::Path;

use spec_run::{
    ContextConfig, Engine, EngineConfig, Job, Model, Request, Result,
    tokenizer::{EncodeOptions, StreamDecoder},
};

fn main() -> Result<()> {
    let model = match std::env::args().nth(1) {
        Some(path) => Model::open(Path::new(&path))?,
        None => Model::embedded()?,
    };
    let mut engine = Engine::open(model, &ContextConfig::default(), EngineConfig::default())?;
    let tokenizer = engine.tokenizer().clone();
    let prompt = "Once upon a time, a little fox";
    let ids = tokenizer.encode(prompt, EncodeOptions { add_special: true, parse_special: false });
    let mut stream = StreamDecoder::new(&tokenizer);
    print!("{prompt}");
    let mut session = engine.session(Job::new(Request { max_tokens: Some(64), ..Request::new(&ids) }))?;
    while let Some(token) = session.next_token()? {
        print!("{}", stream.push(token.id));
    }
    let ended = session.finish()?;
    let drafts = ended.report.drafting;
    println!(
        "\n{:?}; {} of {} drafted tokens accepted",
        ended.generation.stop, drafts.accepted, drafts.drafted
    );
    Ok(())
}
