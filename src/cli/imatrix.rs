//! `spec-run imatrix`: how much each column of a model's matrices matters, for `spec-run quantize`.

use std::{ops::ControlFlow, path::PathBuf, time::Instant};

use clap::Args;
use serde_json::json;

use super::{
    common::{self, ModelArgs, TextArgs},
    interrupt,
    output::{note, warning},
    perplexity_report::progress,
    thread_args::ThreadArgs,
};
use crate::{
    ContextConfig, Error, Result,
    context::Isa,
    placement::Basis,
    quantize::collect::{Chunks, Collector},
    tokenizer::EncodeOptions,
    words::count,
};

/// llama-imatrix's chunk.
const DEFAULT_CHUNK: usize = 512;
const SHORTEST_CHUNK: usize = 8;

#[derive(Args, Debug)]
pub struct ImatrixArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    /// The file to write, in llama.cpp's format
    #[arg(
        short = 'o',
        long,
        visible_alias = "output-file",
        value_name = "FILE",
        default_value = "imatrix.gguf"
    )]
    output: PathBuf,
    /// Tokens in a chunk of the text [default: 512, or less if the model was trained for less]
    #[arg(short = 'c', long, value_name = "N")]
    ctx_size: Option<usize>,
    /// Go through the first N chunks only
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// The head's matrix too, which is quantized without it otherwise
    #[arg(long)]
    process_output: bool,
    /// Read what looks like a special token in the text as one
    #[arg(long)]
    parse_special: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Instruction set: scalar, avx2, avxvnni, avx512, neon or i8mm [default: the best there is]
    #[arg(long, value_name = "NAME")]
    isa: Option<Isa>,
    /// Overwrite the file if it is there
    #[arg(long)]
    force: bool,
    /// One JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(args: ImatrixArgs) -> Result<()> {
    args.threads.check()?;
    common::check_overwrite(&args.output, args.force)?;
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load(&gguf)?;
    let text = args
        .text
        .read()?
        .ok_or_else(|| Error::Usage("no text: give one with -f FILE, -p TEXT or on standard input".into()))?;
    let tokens =
        tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: args.parse_special });
    let len = args.ctx_size.unwrap_or(DEFAULT_CHUNK.min(model.n_ctx_train as usize));
    let chunks = Chunks { len, bos: tokenizer.added_bos(), count: args.count(tokens.len(), len)? };
    let config = ContextConfig { n_ctx: len as u32, isa: args.isa, ..ContextConfig::default() };
    // The products are watched on the CPU, whatever else there is.
    let (mut context, took) = common::open_context(&model, &args.threads.apply(config)?, &Basis::default)?;
    note!(
        "{}: {}; {took}; {} tokens, {} of {len}",
        model.name,
        context.describe(),
        tokens.len(),
        count(chunks.count, "chunk"),
    );
    let interrupted = interrupt::flag();
    let start = Instant::now();
    let bar = progress(chunks.count, 0, "chunks");
    let collector = Collector::new(model.clone(), args.process_output);
    let done = collector.run(&mut context, &tokens, chunks, |done| {
        bar.set_position(done as u64);
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.finish_and_clear();
    if done < chunks.count {
        note!("interrupted after {done} of {}; the file has these", count(chunks.count, "chunk"));
    }
    let (tensors, partial) = collector.found();
    if partial > 0 {
        warning!("{} with experts that no token chose: a longer text reaches more", count(partial, "tensor"));
    }
    collector.write(&args.output, args.force, &args.text.name(), (done, len))?;
    let seconds = start.elapsed().as_secs_f64();
    let file = args.output.display();
    if args.json {
        return common::print_json(&json!({
            "file": file.to_string(),
            "tensors": tensors,
            "partial": partial,
            "chunks": done,
            "chunk_tokens": len,
            "seconds": seconds,
        }));
    }
    common::print(format!(
        "{file}: {} from {} of {len} tokens, in {seconds:.1} s\n",
        count(tensors, "tensor"),
        count(done, "chunk"),
    ))
}

impl ImatrixArgs {
    /// How many chunks are gone through.
    fn count(&self, tokens: usize, len: usize) -> Result<usize> {
        if len < SHORTEST_CHUNK {
            return Err(Error::Usage(format!("-c {len}: a chunk has {SHORTEST_CHUNK} tokens at least")));
        }
        let all = tokens / len;
        match self.chunks {
            Some(0) => Err(Error::Usage("--chunks 0: give 1 or more, or leave it out".into())),
            _ if all == 0 => Err(Error::Input(format!(
                "the text has {tokens} tokens, a chunk needs {len}: a longer text or a smaller -c"
            ))),
            most => Ok(most.map_or(all, |most| all.min(most))),
        }
    }
}
