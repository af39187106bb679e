//! What a model says after each token, as raw numbers: `cargo run --release --example logits -- [MODEL.gguf] < lists`.
//! Reads lists of token ids, one a line, and writes the logits of each list as 32-bit floats, least byte first. With
//! `exit=N` before the model, of its first N layers.

use std::{
    io::{BufRead, Write},
    path::Path,
};

use spec_run::{Batch, Context, ContextConfig, Error, Model, Result, RunLayers};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1).peekable();
    let exit = args.next_if(|arg| arg.starts_with("exit=")).and_then(|arg| arg[5..].parse().ok());
    let model = match args.next() {
        Some(path) => Model::open(Path::new(&path))?,
        None => Model::embedded()?,
    };
    let run_layers = exit.map(|layers| RunLayers::exit(model.n_layer(), layers));
    let mut context = Context::new(model, &ContextConfig { n_ctx: 2048, ..Default::default() })?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Error::io("the standard input", e))?;
        let tokens: Vec<u32> = serde_json::from_str(&line).map_err(|e| Error::Input(e.to_string()))?;
        let mut batch = Batch { run_layers: run_layers.clone(), ..Batch::new() };
        for (pos, &token) in (0..).zip(&tokens) {
            batch.push(token, pos, 0, true);
        }
        context.remove_all();
        context.decode(&batch)?;
        let bytes: Vec<u8> =
            (0..tokens.len()).flat_map(|i| context.logits(i)).flat_map(|x| x.to_le_bytes()).collect();
        out.write_all(&bytes).map_err(|e| Error::io("the standard output", e))?;
    }
    Ok(())
}
