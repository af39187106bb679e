//! `spec-run embed`: vectors of texts, or how well two texts fit, printed as llama-embedding does.

use std::fmt::Write;

use clap::{Args, builder::PossibleValuesParser};

use super::{
    common::{self, ContextArgs, ModelArgs, TextArgs},
    embedding_args::EmbeddingArgs,
    output::note,
};
use crate::{
    Error, Result, Tokenizer,
    embed::{Embedder, Pairs, Pooling, cosine, normalize},
    tokenizer::EncodeOptions,
    words::count,
};

#[derive(Args, Debug)]
pub struct EmbedArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The texts: one a line, unless --embd-separator says otherwise
    #[command(flatten)]
    text: TextArgs,
    /// Take -p as it is, without \n and the like
    #[arg(long)]
    no_escape: bool,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    embeddings: EmbeddingArgs,
    /// array: [[…],…]; json: as OpenAI's API; json+: with cosines; raw: a vector a line [default: a listing]
    #[arg(long, value_name = "FORMAT", default_value = "", hide_default_value = true)]
    #[arg(value_parser = PossibleValuesParser::new(["", "array", "json", "json+", "raw"]))]
    embd_output_format: String,
    /// What stands between two texts
    #[arg(long, value_name = "TEXT", default_value = "\n", hide_default_value = true)]
    embd_separator: String,
    /// What stands between a question and an answer, with --pooling rank
    #[arg(long, value_name = "TEXT", default_value = "\t", hide_default_value = true)]
    cls_separator: String,
}

pub fn run(args: EmbedArgs) -> Result<()> {
    args.context.check()?;
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load_any(&gguf, &args.context.rope)?;
    let text = args.text.needed()?;
    let escapes = !args.no_escape && args.text.on_command_line();
    let text = if escapes { common::unescape(&text) } else { text };
    let mut config = args.context.config(&model)?;
    if model.sees_both_ways() {
        config.n_ubatch = config.n_ctx as usize;
    }
    Embedder::prepare(&mut config, &model);
    let device = &args.context.device;
    if device.dry_run(&model, &config, None, false)? {
        return Ok(());
    }
    let basis = || device.basis(&model, &config, None);
    let (context, took) = common::open_context(&model, &config, &basis)?;
    let mut embedder = Embedder::new(context, args.embeddings.pooling())?;
    let pooling = embedder.pooling();
    let texts: Vec<&str> = match args.embd_separator.as_str() {
        "" => vec![&text],
        between => text.split(between).collect(),
    };
    let pairs = Pairs::of(&gguf)?;
    let cut = Some(args.cls_separator.as_str()).filter(|cut| !cut.is_empty() && pooling == Pooling::Rank);
    let ids: Vec<Vec<u32>> = texts.iter().map(|text| tokens(&tokenizer, &pairs, text, cut)).collect();
    for (ids, n) in ids.iter().zip(1..) {
        embedder.check(ids).map_err(|e| Error::Input(format!("text {n}: {e}")))?;
    }
    note!(
        "{}: {}; {took}; {}, {}, pooling {}",
        model.name,
        embedder.context().describe(),
        count(texts.len(), "text"),
        count(ids.iter().map(Vec::len).sum(), "token"),
        pooling.name(),
    );
    let made = embedder.embed(&ids)?;
    let mut vectors: Vec<Vec<f32>> = made.into_iter().flat_map(|made| made.vectors).collect();
    if pooling != Pooling::Rank {
        vectors.iter_mut().for_each(|vector| normalize(vector, args.embeddings.embd_normalize));
    }
    let whole = args.embeddings.embd_normalize == 0;
    common::print(match args.embd_output_format.as_str() {
        "array" => format!("[{}]\n", listed(&vectors, |vector| array(vector, whole), ",")),
        "raw" => vectors.iter().map(|vector| raw(vector, whole)).collect(),
        "json" => json(&vectors, whole, false),
        "json+" => json(&vectors, whole, true),
        _ => match pooling {
            Pooling::Rank => scores(&vectors),
            Pooling::None => ends(&vectors, whole),
            Pooling::Mean | Pooling::Cls | Pooling::Last => listing(&texts, &vectors, whole),
        },
    })
}

/// A text's tokens; cut in two it is a question and an answer.
fn tokens(tokenizer: &Tokenizer, pairs: &Pairs, text: &str, cut: Option<&str>) -> Vec<u32> {
    match cut.and_then(|cut| text.split_once(cut)) {
        Some((question, answer)) => pairs.encode(tokenizer, question, answer),
        None => tokenizer.encode(text, EncodeOptions::PROMPT),
    }
}

fn listed<T>(items: &[T], write: impl Fn(&T) -> String, between: &str) -> String {
    items.iter().map(write).collect::<Vec<_>>().join(between)
}

/// In a file: with all digits, or whole numbers where --embd-normalize 0 makes some.
fn number(x: f32, whole: bool) -> String {
    if whole { format!("{x:.0}") } else { format!("{x:.7}") }
}

fn array(vector: &[f32], whole: bool) -> String {
    format!("[{}]", listed(vector, |&x| number(x, whole), ","))
}

fn raw(vector: &[f32], whole: bool) -> String {
    listed(vector, |&x| number(x, whole), " ") + "\n"
}

fn json(vectors: &[Vec<f32>], whole: bool, cosines: bool) -> String {
    let mut index = 0..;
    let object = |vector: &Vec<f32>| {
        let index = index.next().unwrap_or(0);
        let embedding = array(vector, whole);
        format!(
            "    {{\n      \"object\": \"embedding\",\n      \"index\": {index},\n      \"embedding\": {embedding}\n    }}"
        )
    };
    let data = vectors.iter().map(object).collect::<Vec<_>>().join(",\n");
    let mut out = format!("{{\n  \"object\": \"list\",\n  \"data\": [\n{data}\n  ]");
    if cosines && vectors.len() > 1 {
        let row =
            |a: &Vec<f32>| format!("    [{} ]", listed(vectors, |b| format!("{:6.2}", cosine(a, b)), ", "));
        _ = write!(out, ",\n  \"cosineSimilarity\": [\n{}\n  ]", listed(vectors, row, ",\n"));
    }
    out + "\n}\n"
}

/// On a screen.
fn shown(x: f32, whole: bool) -> String {
    if whole { format!("{x:6.0} ") } else { format!("{x:9.6} ") }
}

fn scores(texts: &[Vec<f32>]) -> String {
    let mut out = String::new();
    for (n, scores) in texts.iter().enumerate() {
        for (label, score) in scores.iter().enumerate() {
            let of = if scores.len() > 1 { format!(" [{label}]") } else { String::new() };
            _ = writeln!(out, "rerank score {n}: {score:8.3}{of}");
        }
    }
    out
}

/// The first and the last numbers of each token's vector.
fn ends(vectors: &[Vec<f32>], whole: bool) -> String {
    let some = |numbers: &[f32]| numbers.iter().map(|&x| shown(x, whole)).collect::<String>();
    let line = |(n, vector): (usize, &Vec<f32>)| {
        let (first, last) = (vector.len().min(3), vector.len().saturating_sub(3));
        format!("embedding {n}: {} ... {}\n", some(&vector[..first]), some(&vector[last..]))
    };
    vectors.iter().enumerate().map(line).collect()
}

/// All numbers of one vector; of several the first ones, and how alike they are.
fn listing(texts: &[&str], vectors: &[Vec<f32>], whole: bool) -> String {
    let several = vectors.len() > 1;
    let mut out = String::new();
    for (n, vector) in vectors.iter().enumerate() {
        let most = if several { 16 } else { vector.len() };
        let numbers: String = vector.iter().take(most).map(|&x| shown(x, whole)).collect();
        _ = writeln!(out, "embedding {n}: {numbers}");
    }
    if several {
        let begin = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        _ = write!(out, "\ncosine similarity matrix:\n\n");
        texts.iter().for_each(|text| _ = write!(out, "{:>6} ", begin(text, 6)));
        out.push('\n');
        for (text, a) in texts.iter().zip(vectors) {
            vectors.iter().for_each(|b| _ = write!(out, "{:6.2} ", cosine(a, b)));
            _ = writeln!(out, "{}", begin(text, 10));
        }
    }
    out
}
