//! `spec-run imatrix`: how much each column of a model's matrices matters, for `spec-run quantize`.

use std::{ops::ControlFlow, path::PathBuf, time::Instant};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    common::{self, ModelArgs, TextArgs},
    interrupt,
    output::{note, warning},
    progress::count_bar,
    thread_args::ThreadArgs,
};
use crate::{
    ContextConfig, Error, Result,
    context::Isa,
    placement::Basis,
    quantize::{
        collect::{Chunks, Collector},
        sums::{Format, Recorded, Sums},
    },
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
    /// Importance matrices to go on from, of llama.cpp's formats; without a text they are added up
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    in_file: Vec<PathBuf>,
    /// The file to write, in llama.cpp's format
    #[arg(
        short = 'o',
        long,
        visible_alias = "output-file",
        value_name = "FILE",
        default_value = "imatrix.gguf"
    )]
    output: PathBuf,
    /// The format of that file: dat is the older one
    #[arg(long, value_name = "FORMAT", default_value = "gguf")]
    output_format: OutputFormat,
    /// Tokens in a chunk of the text [default: as in the files of --in-file, or else 512, or less if the model was trained for less]
    #[arg(short = 'c', long, value_name = "N")]
    ctx_size: Option<usize>,
    /// Leave out the first N chunks
    #[arg(
        long,
        visible_alias = "from-chunk",
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    chunk: usize,
    /// Go through N chunks only
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// The head's matrix too, which is quantized without it otherwise
    #[arg(long)]
    process_output: bool,
    /// Read what looks like a special token in the text as one
    #[arg(long)]
    parse_special: bool,
    /// Changes nothing: no perplexity is computed
    #[arg(long)]
    no_ppl: bool,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OutputFormat {
    Gguf,
    Dat,
}

pub fn run(args: ImatrixArgs) -> Result<()> {
    args.threads.check()?;
    // Those of --in-file may be replaced by what they have become.
    let inputs: Vec<PathBuf> = args.model.files().into_iter().chain(args.text.file()).collect();
    common::check_overwrite(&args.output, args.force, &inputs)?;
    let start = Instant::now();
    let begun = args.in_file.iter().map(|file| Recorded::read(file)).collect::<Result<Vec<_>>>()?;
    let chunk = begun.iter().find_map(|file| file.chunk).map(|n| n as usize);
    if !begun.is_empty() && !args.text.is_given() {
        let sums = Sums::of(begun, args.len(chunk.unwrap_or(DEFAULT_CHUNK))?)?;
        return args.write(&sums, start);
    }
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load(&gguf, &Default::default())?;
    let text = args.text.needed()?;
    let tokens =
        tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: args.parse_special });
    let len = args.len(chunk.unwrap_or(DEFAULT_CHUNK.min(model.n_ctx_train as usize)))?;
    let chunks = Chunks { len, bos: tokenizer.added_bos(), count: args.count(tokens.len(), len)? };
    let mut begun = Sums::of(begun, len)?;
    begun.datasets.push(args.text.name());
    let collector = Collector::new(model.clone(), args.process_output, begun)?;
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
    let bar = count_bar(chunks.count, 0, "chunks");
    let done = collector.run(&mut context, &tokens[args.chunk * len..], chunks, |done| {
        bar.set_position(done as u64);
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.finish_and_clear();
    if done < chunks.count {
        note!("interrupted after {done} of {}; the file has these", count(chunks.count, "chunk"));
    }
    args.write(&collector.sums(), start)
}

impl ImatrixArgs {
    fn len(&self, default: usize) -> Result<usize> {
        match self.ctx_size.unwrap_or(default) {
            len if len < SHORTEST_CHUNK => {
                Err(Error::Usage(format!("-c {len}: a chunk has {SHORTEST_CHUNK} tokens at least")))
            }
            len => Ok(len),
        }
    }

    /// How many chunks are gone through.
    fn count(&self, tokens: usize, len: usize) -> Result<usize> {
        let all = (tokens / len).saturating_sub(self.chunk);
        match self.chunks {
            Some(0) => Err(Error::Usage("--chunks 0: give 1 or more, or leave it out".into())),
            _ if all == 0 => Err(Error::Input(match self.chunk {
                0 => format!(
                    "the text has {tokens} tokens, a chunk needs {len}: a longer text or a smaller -c"
                ),
                from => {
                    format!("--chunk {from}: the text has {} of {len} tokens", count(tokens / len, "chunk"))
                }
            })),
            most => Ok(most.map_or(all, |most| all.min(most))),
        }
    }

    /// Writes the file and says what is in it.
    fn write(&self, sums: &Sums, start: Instant) -> Result<()> {
        let (tensors, partial) = (sums.tensors.len(), sums.partial());
        if partial > 0 {
            warning!(
                "{} with experts that no token chose: a longer text reaches more",
                count(partial, "tensor")
            );
        }
        let format = match self.output_format {
            OutputFormat::Gguf => Format::Gguf,
            OutputFormat::Dat => Format::Dat,
        };
        sums.write(&self.output, self.force, format)?;
        let seconds = start.elapsed().as_secs_f64();
        let file = self.output.display();
        if self.json {
            return common::print_json(&json!({
                "file": file.to_string(),
                "tensors": tensors,
                "partial": partial,
                "chunks": sums.chunks(),
                "chunk_tokens": sums.chunk,
                "seconds": seconds,
            }));
        }
        common::print(format!(
            "{file}: {} from {} of {} tokens, in {seconds:.1} s\n",
            count(tensors, "tensor"),
            count(sums.chunks(), "chunk"),
            sums.chunk,
        ))
    }
}
