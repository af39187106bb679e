//! What a mask costs: perplexity in full and with layers skipped, and how often both say the same.
//! `cargo run --release --example perplexity_mask -- [MODEL.gguf [TEXT]]`

use std::{fs, ops::ControlFlow, path::Path, sync::Arc};

use spec_run::{
    Context, ContextConfig, Error, Gguf, Model, Result, RunLayers, Tokenizer, embedded,
    eval::perplexity::{Draft, PerplexitySettings, Tally, perplexity},
    tokenizer::EncodeOptions,
};

const STORY: &str = "Once upon a time there was a little girl named Lily. She liked to play in the park with her dog. \
    One day, Lily saw a big bird in a tall tree. The bird was sad because it could not find its nest. Lily wanted to \
    help the bird. She looked behind the tree and saw the nest on the ground. She picked it up and gave it to the bird. \
    The bird was very happy and sang a song for Lily. They became good friends and played together every day.";

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let gguf = Arc::new(match args.next() {
        Some(path) => Gguf::open(Path::new(&path))?,
        None => embedded::open()?,
    });
    let text = match args.next() {
        Some(path) => fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?,
        None => STORY.to_string(),
    };
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let n_layer = model.n_layer();
    let tokens = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false });

    for layers in [n_layer / 4, n_layer / 2, 3 * n_layer / 4] {
        let settings = PerplexitySettings {
            n_ctx: 64,
            bos: tokenizer.added_bos(),
            draft: Some(Draft::Mask(RunLayers::exit(n_layer, layers))),
            max_chunks: None,
        };
        let config = ContextConfig { n_ctx: settings.cells() as u32, ..Default::default() };
        let mut context = Context::new(model.clone(), &config)?;
        let tally = perplexity(&mut context, &tokens, &settings, Tally::default(), |_| {
            Ok(ControlFlow::Continue(()))
        })?;
        let (n, beside) = (tally.tokens, tally.against_full.expect("a mask drafts"));
        println!(
            "the first {layers:2} of {n_layer} layers: perplexity {:.2}, in full {:.2}; the same first choice {:.0} %",
            tally.ppl(),
            beside.full.perplexity(n),
            100.0 * beside.sums.agreement(n)
        );
    }
    Ok(())
}
